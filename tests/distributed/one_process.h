#pragma once

// Compares a layer over several processes with one process that has the concatenated batch.

#include "libtorch/layers_support.h"

namespace keel::test {

/// How many rows of a batch each process has.
using Shares = std::vector<std::int64_t>;

inline std::int64_t total(const Shares& shares) {
  std::int64_t rows = 0;
  for (const std::int64_t share : shares) rows += share;
  return rows;
}

/// This process's rows of the whole batch.
inline Tensor share_of(const Tensor& whole, const Shares& shares, std::int64_t rank) {
  const Shares before(shares.begin(), shares.begin() + rank);
  return whole.narrow(0, total(before), shares[std::size_t(rank)]);
}

struct Trained {
  Tensor output, dL_dinput, dL_dweight, dL_dbias;
};

inline Trained train(const Layer& layer, const Tensor& x, const Tensor& dL_doutput) {
  const Tensor input = x.detach().clone().requires_grad_(true);
  const Tensor output = layer(input);
  const auto grads =
      torch::autograd::grad({output}, {input, layer->weight, layer->bias}, {dL_doutput});
  return {output.detach(), grads[0], grads[1], grads[2]};
}

inline double error(const Tensor& found, const Tensor& truth) {
  return truth.numel() == 0 ? 0 : relative_error(found, truth);
}

/// float64: 1e-10. Otherwise four times the error of one process against float64.
struct Tolerance {
  double factor = 4, floor = 1e-10;

  double of(const Tensor& one_process, const Tensor& exact) const {
    if (one_process.scalar_type() == at::kDouble) return floor;
    const double unit = one_process.scalar_type() == at::kFloat ? 0x1p-23 : 0x1p-8;
    return factor * std::max(error(one_process, exact), unit);
  }
};

/// Checks that a step of every layer over these processes is this process's part of one process's step. Each process
/// calls it, with the same arguments except `group`.
inline void expect_one_process(const nn::ProcessGroup& group, const Shares& shares,
                               const Tensor& whole, nn::WhiteningOptions options,
                               const std::string& what, const Tolerance& tolerance = {}) {
  const auto type = whole.scalar_type();
  const Tensor whole_grad = random(whole.sizes(), 5).to(type);
  options.num_features = whole.size(1);
  const std::vector<Layer> alone = layers(options), exact = layers(options);
  options.process_group = group;
  const std::vector<Layer> together = layers(options);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    for (const auto* one : {&alone[i], &together[i], &exact[i]}) scramble(*one);
    if (type == at::kDouble)
      for (const auto* one : {&alone[i], &together[i]}) (*one)->to(at::kDouble);
    exact[i]->to(at::kDouble);
    const Trained one = train(alone[i], whole, whole_grad);
    const Trained truth = train(exact[i], whole.to(at::kDouble), whole_grad.to(at::kDouble));
    const std::int64_t rank = group.process();
    Trained ours =
        train(together[i], share_of(whole, shares, rank), share_of(whole_grad, shares, rank));
    group.sum(ours.dL_dweight);
    group.sum(ours.dL_dbias);

    const auto expect = [&](const char* part, const Tensor& found, const Tensor& wanted,
                            const Tensor& single, const Tensor& right) {
      EXPECT_EQ(found.scalar_type(), single.scalar_type()) << part;
      EXPECT_EQ(found.sizes(), wanted.sizes()) << part;
      EXPECT_LE(error(found, wanted), tolerance.of(single, right))
          << what << ", " << alone[i].name << ", rank " << rank << ": " << part;
    };
    const auto expect_share = [&](const char* part, const Tensor& found, const Tensor& single,
                                  const Tensor& right) {
      expect(part, found, share_of(single, shares, rank), single, right);
    };
    expect_share("output", ours.output, one.output, truth.output);
    expect_share("dL_dinput", ours.dL_dinput, one.dL_dinput, truth.dL_dinput);
    expect("dL_dweight", ours.dL_dweight, one.dL_dweight, one.dL_dweight, truth.dL_dweight);
    expect("dL_dbias", ours.dL_dbias, one.dL_dbias, one.dL_dbias, truth.dL_dbias);
    const auto expect_statistic = [&](const char* part, Tensor nn::WhiteningImpl::*member) {
      const Tensor &single = (*alone[i].module).*member, &right = (*exact[i].module).*member;
      if (single.defined()) expect(part, (*together[i].module).*member, single, single, right);
    };
    expect_statistic("running_mean", &nn::WhiteningImpl::running_mean);
    expect_statistic("running_matrix", &nn::WhiteningImpl::running_matrix);
    expect_statistic("running_variance", &nn::WhiteningImpl::running_variance);
    EXPECT_TRUE(torch::equal(together[i]->kept(), alone[i]->kept())) << what;
  }
}

/// Everything that a layer derives from a batch and keeps, as one float64 list.
inline Tensor statistics_of(const Layer& layer) {
  Tensors all{layer->eigenvalues(), layer->covariance(), layer->kept()};
  for (const Tensor& buffer : layer->buffers()) all.push_back(buffer);
  for (Tensor& one : all) one = one.detach().to(at::kDouble).reshape({-1});
  return torch::cat(all);
}

}  // namespace keel::test
