#pragma once

// The computation that the paper differentiates, written out: every eigenvector by `steps` power iterations on the
// deflated matrix, started at the true one (a constant), its value by the Rayleigh quotient. The gradient of sum_i
// g_i . v_i + h_i l_i is propagated back through the whole chain by hand, in float64.

#include <cmath>
#include <numeric>
#include <vector>

#include "batch.h"

namespace keel::testing {

using Column = std::vector<double>;

inline double dot(const Column& a, const Column& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

class DeflationChain {
 public:
  /// `vectors` are columns, in the order of deflation.
  DeflationChain(const Batch<double>& matrix, const std::vector<Column>& vectors, int steps)
      : n_(matrix.n) {
    Batch<double> deflated = matrix;
    for (const Column& start : vectors) {
      Stage stage{deflated, {start}, {}};
      for (int k = 0; k < steps; ++k) {
        Column y = times(deflated, stage.x.back());
        stage.norm.push_back(std::sqrt(dot(y, y)));
        for (double& entry : y) entry /= stage.norm.back();
        stage.x.push_back(y);
      }
      const Column& v = stage.x.back();
      add_outer(deflated, -1, times(deflated, v), v);
      stages_.push_back(stage);
    }
  }

  /// The symmetric dL/dM.
  Batch<double> backward(const std::vector<Column>& g, const Column& h) const {
    Batch<double> d_deflated(1, n_);  // with respect to the matrix after the stage, then before it
    for (std::size_t i = stages_.size(); i-- > 0;) {
      const Stage& stage = stages_[i];
      const Column& v = stage.x.back();
      Column d_v = g[i];
      // deflated' = deflated - u v^T, u = deflated v
      const Column u = times(stage.deflated, v);
      Column d_u = times(d_deflated, v);
      for (double& entry : d_u) entry = -entry;
      add(d_v, -1, transposed_times(d_deflated, u));
      add_outer(d_deflated, 1, d_u, v);
      add(d_v, 1, transposed_times(stage.deflated, d_u));
      // l = v^T deflated v
      add_outer(d_deflated, h[i], v, v);
      add(d_v, h[i], u);
      add(d_v, h[i], transposed_times(stage.deflated, v));
      // x_k+1 = y / |y|, y = deflated x_k
      for (std::size_t k = stage.norm.size(); k-- > 0;) {
        const Column& after = stage.x[k + 1];
        Column d_y = d_v;
        add(d_y, -dot(after, d_v), after);
        for (double& entry : d_y) entry /= stage.norm[k];
        add_outer(d_deflated, 1, d_y, stage.x[k]);
        d_v = transposed_times(stage.deflated, d_y);
      }
    }
    Batch<double> symmetric(1, n_);
    for (std::int64_t i = 0; i < n_; ++i)
      for (std::int64_t j = 0; j < n_; ++j)
        symmetric(0, i, j) = (d_deflated(0, i, j) + d_deflated(0, j, i)) / 2;
    return symmetric;
  }

 private:
  struct Stage {
    Batch<double> deflated;    // before this stage's own deflation
    std::vector<Column> x;     // the start and each step's result
    std::vector<double> norm;  // of each step's product
  };

  static Column times(const Batch<double>& m, const Column& x) {
    Column y(x.size(), 0.0);
    for (std::int64_t i = 0; i < m.n; ++i)
      for (std::int64_t j = 0; j < m.n; ++j) y[std::size_t(i)] += m(0, i, j) * x[std::size_t(j)];
    return y;
  }
  static Column transposed_times(const Batch<double>& m, const Column& x) {
    Column y(x.size(), 0.0);
    for (std::int64_t i = 0; i < m.n; ++i)
      for (std::int64_t j = 0; j < m.n; ++j) y[std::size_t(j)] += m(0, i, j) * x[std::size_t(i)];
    return y;
  }
  static void add(Column& to, double factor, const Column& x) {
    for (std::size_t k = 0; k < to.size(); ++k) to[k] += factor * x[k];
  }
  static void add_outer(Batch<double>& m, double factor, const Column& a, const Column& b) {
    for (std::int64_t i = 0; i < m.n; ++i)
      for (std::int64_t j = 0; j < m.n; ++j)
        m(0, i, j) += factor * a[std::size_t(i)] * b[std::size_t(j)];
  }

  std::int64_t n_;
  std::vector<Stage> stages_;
};

}  // namespace keel::testing
