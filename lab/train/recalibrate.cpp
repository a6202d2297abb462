#include "lab/train/recalibrate.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "keel/torch/nn.h"
#include "lab/data/random.h"
#include "lab/models/batch_norm.h"
#include "lab/train/autocast.h"

namespace keel::lab {

using torch::Tensor;

namespace {

constexpr std::uint64_t kStream = 0x7265;  // any number that no other stream of a seed begins with

std::optional<double>* momentum_of(torch::nn::Module& module) {
  auto* norm = module.as<BatchNormImpl>();
  return norm == nullptr ? nullptr : &norm->momentum;
}

}  // namespace

std::int64_t recalibrate(ResNet& model, const Images& images, const AugmentOptions& augmentation,
                         const TrainOptions& options, std::int64_t step, Processes* processes) {
  require(images.count() >= options.batch,
          fmt::format("keel::lab::recalibrate: expected at least a batch of {} training images, "
                      "got {}",
                      options.batch, images.count()));
  const std::uint64_t stream = hashed(hashed(options.seed, kStream), std::uint64_t(step));
  AugmentOptions own = augmentation;
  own.seed = stream;
  own.channels_last = options.channels_last;
  const torch::Device device = images.pixels.device();
  auto generator = at::make_generator<at::CPUGeneratorImpl>(stream);
  const Tensor order = torch::randperm(images.count(), generator, torch::kLong).to(device);
  const Tensor epoch = torch::zeros({}, order.options());
  std::pair<std::int64_t, std::int64_t> part{0, options.batch};
  if (processes != nullptr) part = processes->part_of(options.batch);
  const std::int64_t count = std::min(options.recalibrate, images.count() / options.batch);
  keel::nn::recalibrate(*model,
                        [&] {
                          for (std::int64_t batch = 0; batch < count; ++batch) {
                            const Tensor chosen = order.narrow(
                                0, batch * options.batch + part.first, part.second - part.first);
                            const Tensor input =
                                options.augmentation
                                    ? augment(images.pixels, chosen, epoch, own)
                                    : normalise(images.pixels.index_select(0, chosen), own);
                            const Autocast autocast(device, options.precision == "bfloat16");
                            model->forward(input);
                          }
                        },
                        {.momentum_of = momentum_of});
  return count;
}

}  // namespace keel::lab
