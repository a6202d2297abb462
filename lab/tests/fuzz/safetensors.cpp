#include "lab/storage/safetensors.h"

#include <torch/types.h>

#include <cstring>

#include "lab/tests/fuzz/fuzz.h"

namespace keel::fuzz::safetensors {

bool same(const lab::SafeTensors& a, const lab::SafeTensors& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (const auto& [name, one] : a.tensors) {
    const auto found = b.tensors.find(name);
    if (found == b.tensors.end()) return false;
    const torch::Tensor& other = found->second;
    if (one.scalar_type() != other.scalar_type() || one.sizes() != other.sizes()) return false;
    if (one.nbytes() > 0 && std::memcmp(one.data_ptr(), other.data_ptr(), one.nbytes()) != 0)
      return false;
  }
  return true;
}

void attack(const std::string& bytes) {
  const lab::SafeTensors read = lab::parse_safetensors(bytes, kHostile);
  const auto again = must("to write what was read", [&] {
    return lab::parse_safetensors(
        lab::safetensors_bytes({read.tensors.begin(), read.tensors.end()}, read.metadata),
        kHostile);
  });
  expect(same(read, again), "what was written to be what was read");
}

std::vector<std::string> seeds() {
  const auto numbers = torch::arange(6, torch::kFloat).reshape({2, 3});
  lab::NamedTensors every;
  for (const auto type :
       {torch::kBool, torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32, torch::kInt64,
        torch::kFloat16, torch::kBFloat16, torch::kFloat32, torch::kFloat64})
    every.emplace_back(c10::toString(type), numbers.to(type));
  return {lab::safetensors_bytes({}), lab::safetensors_bytes({{"x", numbers}}, {{"format", "pt"}}),
          lab::safetensors_bytes({{"empty", torch::empty({3, 0})}, {"scalar", torch::ones({})}}),
          lab::safetensors_bytes(every)};
}

const Registration registration({"safetensors", attack, seeds});

}  // namespace keel::fuzz::safetensors
