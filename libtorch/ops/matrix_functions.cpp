// The functions with a name of their own: thin over keel::spectral, which does all the work. They
// are made of that operator alone, so every device and autograd follow from it.

#include "check.h"
#include "keel/torch/spectral.h"
#include "ops/calls.h"

namespace keel::ops {
namespace {

template <SpectralFunction::Kind kind>
Tensor named_function(const Tensor& matrix, StringView rule) {
  return std::get<0>(spectral(matrix, to_string(SpectralFunction{kind}), "full", rule));
}

Tensor powm(const Tensor& matrix, double exponent, StringView rule) {
  const SpectralFunction power{SpectralFunction::Kind::power, exponent};
  return std::get<0>(spectral(matrix, to_string(power), "full", rule));
}

Tensor projector(const Tensor& matrix, StringView rank, StringView rule) {
  return std::get<0>(spectral(matrix, "one", rank, rule));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  using Kind = SpectralFunction::Kind;
  const auto define = [&](const std::string& name, auto* function) {
    m.def((name + "(Tensor matrix, str rule='exact') -> Tensor").c_str(), function);
  };
  define("sqrtm", &named_function<Kind::sqrt>);
  define("inv_sqrtm", &named_function<Kind::inv_sqrt>);
  define("invm", &named_function<Kind::inv>);
  define("logm", &named_function<Kind::log>);
  define("expm", &named_function<Kind::exp>);
  m.def("powm(Tensor matrix, float exponent, str rule='exact') -> Tensor", &powm);
  m.def("projector(Tensor matrix, str rank, str rule='exact') -> Tensor", &projector);
}

}  // namespace keel::ops

namespace keel {

using Kind = SpectralFunction::Kind;

torch::Tensor sqrtm(const torch::Tensor& matrix, const SpectralRule& rule) {
  return spectral(matrix, {Kind::sqrt}, FullRank{}, rule).result;
}
torch::Tensor inv_sqrtm(const torch::Tensor& matrix, const SpectralRule& rule) {
  return spectral(matrix, {Kind::inv_sqrt}, FullRank{}, rule).result;
}
torch::Tensor invm(const torch::Tensor& matrix, const SpectralRule& rule) {
  return spectral(matrix, {Kind::inv}, FullRank{}, rule).result;
}
torch::Tensor logm(const torch::Tensor& matrix, const SpectralRule& rule) {
  return spectral(matrix, {Kind::log}, FullRank{}, rule).result;
}
torch::Tensor expm(const torch::Tensor& matrix, const SpectralRule& rule) {
  return spectral(matrix, {Kind::exp}, FullRank{}, rule).result;
}
torch::Tensor powm(const torch::Tensor& matrix, double exponent, const SpectralRule& rule) {
  return spectral(matrix, {Kind::power, exponent}, FullRank{}, rule).result;
}
torch::Tensor projector(const torch::Tensor& matrix, const RankPolicy& policy,
                        const SpectralRule& rule) {
  return spectral(matrix, {Kind::one}, policy, rule).result;
}

}  // namespace keel
