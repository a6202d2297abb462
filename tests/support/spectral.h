#pragma once

// The spectral stage with owned memory, on the CPU (any T) and by the reference (double).

#include "backward.h"
#include "keel/spectral.h"

namespace keel::testing {

using Kind = SpectralFunction::Kind;

inline const SpectralFunction kFunctions[] = {
    {Kind::one},        {Kind::sqrt},     {Kind::inv_sqrt},       {Kind::inv},
    {Kind::log},        {Kind::exp},      {Kind::power, 1.0 / 3}, {Kind::power, -0.75},
    {Kind::power, 2.5}, {Kind::power, 2}, {Kind::power, -2},      {Kind::power, 3},
    {Kind::power, 1},   {Kind::power, 0},
};

inline std::vector<std::int64_t> full_rank(std::int64_t batch, std::int64_t n) {
  return std::vector<std::int64_t>(std::size_t(batch), n);
}

template <typename T>
Batch<T> spectral(const SpectralFunction& f, const Solved<T>& s,
                  const std::vector<std::int64_t>& rank, const Executor& executor = serial()) {
  Batch<T> out(s.vectors.batch, s.vectors.n, T(-77));
  cpu::spectral<T>(f, s.values.data(), s.vectors.view(), rank.data(), out.view(), executor);
  return out;
}

inline Batch<double> spectral_by_reference(const SpectralFunction& f, const Solved<double>& s,
                                           const std::vector<std::int64_t>& rank) {
  Batch<double> out(s.vectors.batch, s.vectors.n);
  reference::spectral(f, s.values.data(), s.vectors.view(), rank.data(), out.view());
  return out;
}

template <typename T>
Batch<T> spectral_backward(const SpectralFunction& f, const SpectralRule& rule, const Solved<T>& s,
                           const std::vector<std::int64_t>& rank, const Batch<T>& dL_dresult,
                           const Executor& executor = serial()) {
  Batch<T> out(s.vectors.batch, s.vectors.n, T(-77));
  cpu::spectral_backward<T>(f, rule, s.values.data(), s.vectors.view(), rank.data(),
                            dL_dresult.view(), out.view(), executor);
  return out;
}

inline Batch<double> spectral_backward_by_reference(const SpectralFunction& f,
                                                    const SpectralRule& rule,
                                                    const Solved<double>& s,
                                                    const std::vector<std::int64_t>& rank,
                                                    const Batch<double>& dL_dresult) {
  Batch<double> out(s.vectors.batch, s.vectors.n);
  reference::spectral_backward(f, rule, s.values.data(), s.vectors.view(), rank.data(),
                               dL_dresult.view(), out.view());
  return out;
}

}  // namespace keel::testing
