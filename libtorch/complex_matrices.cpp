#include "complex_matrices.h"

#include "autograd.h"
#include "device.h"
#include "matrix_tensors.h"

namespace keel::ops {
namespace {

/// Matrices in units of a power of two near their largest entry, which keeps squares in range and is exact. Those with NaN
/// or infinity are replaced by zero, because LibTorch would throw.
struct Scaled {
  Tensor matrix, unit, broken;

  explicit Scaled(const Tensor& given) {
    const Tensor parts = at::view_as_real(given);
    const Tensor found = parts.abs().amax({-3, -2, -1});
    broken = found.isfinite().logical_not();
    const auto each = [](const Tensor& of) { return of.unsqueeze(-1).unsqueeze(-1).unsqueeze(-1); };
    const Tensor largest = at::where(broken.logical_or(found == 0), at::ones_like(found), found);
    unit = largest / (2 * std::get<0>(at::frexp(largest)));  // exact, and never out of range
    const Tensor sound = at::where(each(broken), at::zeros_like(parts), parts);
    matrix = at::view_as_complex(sound / each(unit));
  }

  Tensor values(const Tensor& of_unit) const {
    return nan_where(broken, of_unit * unit.unsqueeze(-1));
  }
};

/// The phases that make the entry of largest magnitude in each column real and positive, the first one where several tie. In
/// real arithmetic, because the rounding of LibTorch's complex products depends on the place in memory.
class Phases {
 public:
  explicit Phases(const Tensor& vectors) {
    const Tensor re = at::real(vectors), im = at::imag(vectors);
    const Tensor squares = re * re + im * im;
    place_ = squares.argmax(-2, /*keepdim=*/true);
    size_ = squares.gather(-2, place_).sqrt();
    cos_ = re.gather(-2, place_) / size_;
    sin_ = im.gather(-2, place_) / size_;
  }

  Tensor of_columns(const Tensor& vectors) const {
    return turned(vectors, cos_, -sin_).scatter(-2, place_, size_.to(vectors.scalar_type()));
  }
  /// The other factor of a product, whose rows turn the other way.
  Tensor of_rows(const Tensor& vectors) const { return turned(vectors, cos_.mT(), sin_.mT()); }

 private:
  static Tensor turned(const Tensor& vectors, const Tensor& cos, const Tensor& sin) {
    const Tensor re = at::real(vectors), im = at::imag(vectors);
    return at::complex(re * cos - im * sin, im * cos + re * sin);
  }

  Tensor place_, size_, cos_, sin_;  ///< (..., 1, k)
};

}  // namespace

Tensor hermitian_of_lower(const Tensor& matrix) {
  const Tensor below = matrix.tril(-1);
  return below + below.mH() + at::diag_embed(at::real(matrix.diagonal(0, -2, -1)));
}

Tensors<3> complex_svd(const Tensor& matrix) {
  if (matrix.numel() == 0) return empty_svd(matrix);
  TORCH_CHECK(!matrix.is_cuda() || !capturing_on_cuda(matrix),
              "keel::svd: complex matrices cannot be decomposed during CUDA graph capture, because "
              "LibTorch's svd waits for the device");
  const WithoutAutocast in_its_type;
  const Scaled scaled(matrix);
  const auto [left, values, right] = at::linalg_svd(scaled.matrix, /*full_matrices=*/false);
  const Phases phases(left);
  return {nan_where(scaled.broken, phases.of_columns(left)).contiguous(), scaled.values(values),
          nan_where(scaled.broken, phases.of_rows(right)).contiguous()};
}

Tensor hermitian_part(const Tensor& matrix) { return (matrix + matrix.mH()) / 2; }

Tensor units_beside(const Tensor& values) {
  auto sizes = values.sizes().vec();
  sizes.push_back(values.size(-1));
  return at::eye(values.size(-1), values.options()).expand(sizes);
}

namespace real_form {

Tensor of_matrix(const Tensor& hermitian) {
  const Tensor re = at::real(hermitian), im = at::imag(hermitian);
  return at::cat({at::cat({re, -im}, -1), at::cat({im, re}, -1)}, -2);
}

Tensor of_values(const Tensor& values) { return values.repeat_interleave(2, -1); }

Tensor of_vectors(const Tensor& vectors) {
  const Tensor re = at::real(vectors), im = at::imag(vectors);
  return at::stack({at::cat({re, im}, -2), at::cat({-im, re}, -2)}, -1).flatten(-2);
}

Tensor back(const Tensor& symmetric) {
  const std::int64_t n = symmetric.size(-1) / 2;
  const Tensor half = symmetric.narrow(-1, 0, n);
  return hermitian_part(at::complex(half.narrow(-2, 0, n), half.narrow(-2, n, n)));
}

}  // namespace real_form

}  // namespace keel::ops
