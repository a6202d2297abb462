#include "keel/torch/nn.h"

namespace keel::nn {
namespace {

template <typename Map>
LayerMap map_of(const WhiteningOptions& options) {
  Map map{.eps = options.eps};
  if (options.rank) map.rank = *options.rank;
  return map;
}

}  // namespace

ZcaWhiteningImpl::ZcaWhiteningImpl(const ZcaWhiteningOptions& options)
    : WhiteningImpl("keel::nn::ZcaWhitening", options, map_of<Zca>(options)) {}

PcaDenoisingImpl::PcaDenoisingImpl(const PcaDenoisingOptions& options)
    : WhiteningImpl("keel::nn::PcaDenoising", options, map_of<keel::PcaDenoising>(options)) {}

PcaWhiteningImpl::PcaWhiteningImpl(const PcaWhiteningOptions& options)
    : WhiteningImpl("keel::nn::PcaWhitening", options, map_of<keel::PcaWhitening>(options)) {}

}  // namespace keel::nn
