#pragma once

// Stage: covariance -> S, the d x d matrix by which a layer multiplies its centred activations.
// Whitening layers differ in this stage only. Backward: dL_dlayer_matrix -> dL_dcovariance.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/spectral.h"
#include "keel/stream.h"

namespace keel {

/// Zero-phase whitening: S = M^(-1/2) over the kept eigenvalues of M = Cov + eps I.
struct Zca {
  double eps = 1e-4;
  RankPolicy rank = LeadingReliable{.eps = eps};

  static constexpr const char* kName = "zca";
  static void fields(auto&& self, auto&& visit) {
    visit("eps", self.eps, term::kFromZero);
    visit("rank", self.rank);
  }
};

/// Standardises each channel, then projects onto the leading eigenvectors: with D = diag(Cov_ii +
/// eps)^(-1/2) and M = D Cov D + eps I, S = P D, where P is the projector onto the kept
/// eigenvectors of M. D_ii is 0 where Cov_ii + eps is 0.
struct PcaDenoising {
  double eps = 1e-4;
  RankPolicy rank = LeadingEnergy{0.99};

  static constexpr const char* kName = "pca_denoising";
  static void fields(auto&& self, auto&& visit) {
    visit("eps", self.eps, term::kFromZero);
    visit("rank", self.rank);
  }
};

/// Rotates into the eigenbasis and scales: S = diag(values)^(-1/2) V^T of M = Cov + eps I. The rows
/// of dropped eigenvalues are zero. S depends on the choice of basis inside an eigenspace, so no
/// rule can be exact at repeated eigenvalues: `Exact` means `Masked` here.
struct PcaWhitening {
  double eps = 1e-4;
  RankPolicy rank = FullRank{};

  static constexpr const char* kName = "pca_whitening";
  static void fields(auto&& self, auto&& visit) {
    visit("eps", self.eps, term::kFromZero);
    visit("rank", self.rank);
  }
};

using LayerMap = std::variant<Zca, PcaDenoising, PcaWhitening>;

void validate(const LayerMap& map);
std::string to_string(const LayerMap& map);
LayerMap layer_map(std::string_view text, std::string_view operation = "keel::layer_map");

/// What forward writes for backward: O(d^2) numbers per group.
template <typename T>
struct LayerMatrixState {
  T* values = nullptr;           ///< batch x n, eigenvalues of M as eigh found them, descending
  Matrices<T> vectors;           ///< eigenvectors of M
  std::int64_t* rank = nullptr;  ///< batch

  operator LayerMatrixState<const T>() const { return {values, vectors, rank}; }
};

/// Only the lower triangle of `covariance` is read. NaN in a covariance gives NaN for its group
/// alone. A covariance has no negative eigenvalues, so those of M are at least eps. Computed
/// eigenvalues below eps are rounding errors, and S uses eps in their place, so no negative number
/// reaches a square root. Two of them are then equal. That makes no pole: Analytic differentiates
/// S as computed, with the differences that eigh found, and all other rules are bounded where
/// eigenvalues are equal. Two dropped eigenvalues contribute nothing under any rule.
namespace reference {
void layer_matrix(const LayerMap& map, Matrices<const double> covariance, Matrices<double> result,
                  LayerMatrixState<double> state);
void layer_matrix_backward(const LayerMap& map, const SpectralRule& rule,
                           Matrices<const double> covariance, LayerMatrixState<const double> state,
                           Matrices<const double> dL_dlayer_matrix,
                           Matrices<double> dL_dcovariance);
}  // namespace reference

namespace cpu {
template <typename T>
void layer_matrix(const LayerMap& map, Matrices<const T> covariance, Matrices<T> result,
                  LayerMatrixState<T> state, const Executor& executor = serial());

/// dL_dcovariance is symmetric, and both triangles are written.
template <typename T>
void layer_matrix_backward(const LayerMap& map, const SpectralRule& rule,
                           Matrices<const T> covariance, LayerMatrixState<const T> state,
                           Matrices<const T> dL_dlayer_matrix, Matrices<T> dL_dcovariance,
                           const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
/// One launch up to n = 128 (float64: 64): the spectrum stays on the chip between the steps.
template <typename T>
void layer_matrix(const LayerMap& map, Matrices<const T> covariance, Matrices<T> result,
                  LayerMatrixState<T> state, const Stream& stream = {});

/// One launch up to n = 64.
template <typename T>
void layer_matrix_backward(const LayerMap& map, const SpectralRule& rule,
                           Matrices<const T> covariance, LayerMatrixState<const T> state,
                           Matrices<const T> dL_dlayer_matrix, Matrices<T> dL_dcovariance,
                           const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
