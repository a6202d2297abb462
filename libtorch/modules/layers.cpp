// The layers by name: each is its map, with the rank it keeps by default.

#include "keel/torch/nn.h"

namespace keel::nn {

ZcaWhiteningImpl::ZcaWhiteningImpl(const ZcaWhiteningOptions& options)
    : WhiteningImpl(
          "keel::nn::ZcaWhitening", options,
          Zca{options.eps, options.rank.value_or(RankPolicy(Algorithm1{.eps = options.eps}))}) {}

PcaDenoisingImpl::PcaDenoisingImpl(const PcaDenoisingOptions& options)
    : WhiteningImpl(
          "keel::nn::PcaDenoising", options,
          keel::PcaDenoising{options.eps, options.rank.value_or(RankPolicy(LeadingEnergy{0.99}))}) {
}

PcaWhiteningImpl::PcaWhiteningImpl(const PcaWhiteningOptions& options)
    : WhiteningImpl(
          "keel::nn::PcaWhitening", options,
          keel::PcaWhitening{options.eps, options.rank.value_or(RankPolicy(FullRank{}))}) {}

}  // namespace keel::nn
