#include "check.h"

#include <sstream>
#include <utility>

#include "device.h"

namespace keel::ops {

std::string shape_of(const Tensor& tensor) {
  std::ostringstream out;
  const char* separator = "";
  out << '(';
  for (const auto& size : tensor.sym_sizes()) {
    out << separator << size;
    separator = ", ";
  }
  out << ')';
  return out.str();
}

const char* name_of(at::ScalarType type) {
  static constexpr std::pair<at::ScalarType, const char*> kNames[] = {
      {at::kHalf, "float16"},
      {at::kBFloat16, "bfloat16"},
      {at::kFloat, "float32"},
      {at::kDouble, "float64"},
      {at::kComplexHalf, "complex32"},
      {at::kComplexFloat, "complex64"},
      {at::kComplexDouble, "complex128"},
      {at::kBool, "bool"},
      {at::kByte, "uint8"},
      {at::kChar, "int8"},
      {at::kShort, "int16"},
      {at::kInt, "int32"},
      {at::kLong, "int64"}};
  for (const auto& [each, name] : kNames)
    if (each == type) return name;
  return c10::toString(type);
}

void check_dense(const char* operation, const Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), operation, ": expected a tensor, got an undefined one");
  TORCH_CHECK(tensor.layout() == at::kStrided, operation, ": expected a dense tensor, got layout ",
              tensor.layout());
}

namespace {

bool is_floating(const Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

void check_dense_floating(const char* operation, const Tensor& tensor,
                          Numbers numbers = Numbers::real) {
  check_dense(operation, tensor);
  const auto type = tensor.scalar_type();
  const bool is_complex = type == at::kComplexFloat || type == at::kComplexDouble;
  const bool takes_complex = numbers == Numbers::real_or_complex;
  TORCH_CHECK(is_floating(tensor) || (is_complex && takes_complex), operation,
              ": expected float16, bfloat16, float32",
              takes_complex ? ", float64, complex64 or complex128" : " or float64", ", got ",
              name_of(type), is_complex ? "; it has no complex version" : "");
}

void check_device(const char* operation, const Tensor& tensor) {
  if (tensor.is_cpu() || tensor.is_meta() || (tensor.is_cuda() && has_cuda())) return;
  TORCH_CHECK(!tensor.is_cuda(), operation, ": expected a tensor on the CPU, got one on ",
              tensor.device(),
              "; this build of keel has no CUDA kernels: move the tensor to the CPU, or build keel "
              "with nvcc and a PyTorch that has CUDA (docs/install.md)");
  TORCH_CHECK(false, operation, ": expected a tensor on ",
              has_cuda() ? "the CPU or CUDA" : "the CPU", ", got one on ", tensor.device());
}

void check_type(const char* operation, const char* name, const Tensor& tensor,
                at::ScalarType type) {
  TORCH_CHECK(tensor.scalar_type() == type, operation, ": expected ", name, " of type ",
              name_of(type), ", got ", name_of(tensor.scalar_type()));
}

}  // namespace

void check_place(const char* operation, const char* name, const Tensor& tensor,
                 const Tensor& like) {
  TORCH_CHECK(tensor.device() == like.device(), operation, ": expected ", name, " on ",
              like.device(), ", got one on ", tensor.device());
}

void check_one_number(const char* operation, const char* name, const Tensor& tensor,
                      at::ScalarType type, const Tensor& like) {
  TORCH_CHECK(tensor.sym_numel() == 1 && tensor.scalar_type() == type, operation, ": expected ",
              name, " to be one ", name_of(type), ", got ", shape_of(tensor), " of type ",
              name_of(tensor.scalar_type()));
  check_place(operation, name, tensor, like);
}

void check_matrices(const char* operation, const Tensor& matrices, Numbers numbers) {
  check_dense_floating(operation, matrices, numbers);
  TORCH_CHECK(matrices.dim() >= 2 && matrices.sym_size(-1) == matrices.sym_size(-2), operation,
              ": expected (..., n, n), got ", shape_of(matrices));
  check_device(operation, matrices);
}

void check_rectangles(const char* operation, const Tensor& matrices, Numbers numbers) {
  check_dense_floating(operation, matrices, numbers);
  TORCH_CHECK(matrices.dim() >= 2, operation, ": expected (..., m, n), got ", shape_of(matrices));
  check_device(operation, matrices);
}

void check_activations(const char* operation, const char* name, const Tensor& tensor,
                       std::int64_t groups) {
  check_dense_floating(operation, tensor);
  TORCH_CHECK(tensor.dim() >= 2, operation, ": expected ", name, " (N, C, *), got ",
              shape_of(tensor));
  TORCH_CHECK_VALUE(groups >= 1 && tensor.sym_size(1) % groups == 0, operation,
                    ": expected a number of groups that divides the channels, got ", groups,
                    " groups of ", tensor.sym_size(1), " channels");
  check_device(operation, tensor);
}

void check_channels(const char* operation, const char* name, const Tensor& tensor,
                    const Tensor& activations) {
  if (!tensor.defined()) return;
  TORCH_CHECK(tensor.dim() == 1 && tensor.sym_size(0) == activations.sym_size(1), operation,
              ": expected ", name, " with one number per channel of ", shape_of(activations),
              ", got ", shape_of(tensor));
  TORCH_CHECK(is_floating(tensor), operation, ": expected floating-point ", name, ", got ",
              name_of(tensor.scalar_type()));
  check_place(operation, name, tensor, activations);
}

void check_group_matrices(const char* operation, const char* name, const Tensor& matrices,
                          const Tensor& activations) {
  TORCH_CHECK(matrices.defined() && is_floating(matrices), operation, ": expected floating-point ",
              name, " (G, d, d), got ",
              matrices.defined() ? name_of(matrices.scalar_type()) : "an undefined tensor");
  TORCH_CHECK(matrices.dim() == 3 && matrices.sym_size(1) == matrices.sym_size(2) &&
                  matrices.sym_size(0) * matrices.sym_size(1) == activations.sym_size(1),
              operation, ": expected ", name, " (G, d, d) with G * d channels of ",
              shape_of(activations), ", got ", shape_of(matrices));
  check_place(operation, name, matrices, activations);
}

void check_like(const char* operation, const char* name, const Tensor& tensor, const Tensor& like) {
  if (!tensor.defined()) return;
  TORCH_CHECK(tensor.sym_sizes() == like.sym_sizes(), operation, ": expected ", name, " of shape ",
              shape_of(like), ", got ", shape_of(tensor));
  check_type(operation, name, tensor, like.scalar_type());
  check_place(operation, name, tensor, like);
}

void check_values(const char* operation, const char* name, const Tensor& values,
                  const Tensor& vectors) {
  if (!values.defined()) return;
  const auto expected = vectors.sym_sizes().slice(0, vectors.dim() - 1);
  TORCH_CHECK(values.sym_sizes() == expected, operation, ": expected ", name,
              " with one number per eigenvector of ", shape_of(vectors), ", got ",
              shape_of(values));
  check_type(operation, name, values, type_of_values(vectors));
  check_place(operation, name, values, vectors);
}

void check_rank(const char* operation, const Tensor& rank, const Tensor& vectors) {
  TORCH_CHECK(rank.sym_sizes() == vectors.sym_sizes().slice(0, vectors.dim() - 2) &&
                  rank.scalar_type() == at::kLong,
              operation, ": expected rank with one int64 per matrix of ", shape_of(vectors),
              ", got ", shape_of(rank), " of type ", name_of(rank.scalar_type()));
  check_place(operation, "rank", rank, vectors);
}

void check_statistics(const char* operation, const char* name, const Tensor& tensor,
                      const Tensor& matrices) {
  const auto type = matrices.scalar_type();
  TORCH_CHECK(type == compute_type(type), operation, ": expected float32 or float64, got ",
              name_of(type));
  check_type(operation, name, tensor, type);
  check_place(operation, name, tensor, matrices);
}

RankPolicy policy_for(const char* operation, StringView rank, const Tensor& matrices) {
  RankPolicy policy = parsed(rank_policy, operation, rank);
  const auto* const paper = std::get_if<Algorithm1>(&policy);
  TORCH_CHECK_VALUE(
      !matrices.is_complex() || paper == nullptr || !paper->rayleigh_tolerance, operation,
      ": expected a rank policy without rayleigh_tolerance for complex matrices, got ",
      to_string(policy));
  return policy;
}

}  // namespace keel::ops
