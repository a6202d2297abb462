#include "lab/train/recalibrate.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <utility>

#include "keel/torch/nn.h"
#include "lab/models/batch_norm.h"
#include "lab/random.h"
#include "lab/require.h"
#include "lab/train/step.h"

namespace keel::lab {

using torch::Tensor;

namespace {

constexpr std::uint64_t kStream = 0x7265;  // any number that no other stream of this seed uses

}  // namespace

Recalibrator::Recalibrator(ResNet model, Images images, const AugmentOptions& augmentation,
                           const TrainOptions& options, Processes* processes)
    : model_(std::move(model)),
      images_(std::move(images)),
      augmentation_(augmentation),
      options_(options),
      processes_(processes) {
  require(images_.count() >= options.batch,
          "expected at least a batch of {} training images, got {}", options.batch,
          images_.count());
  augmentation_.seed = hashed(options.seed, kStream);
  augmentation_.channels_last = options.channels_last;
  std::pair<std::int64_t, std::int64_t> part{0, options.batch};
  if (processes != nullptr) part = processes->part_of(options.batch);
  // A captured graph uses fixed addresses, so these tensors are allocated once.
  const auto whole = torch::TensorOptions(images_.pixels.device()).dtype(torch::kLong);
  order_ = torch::zeros({images_.count()}, whole);
  chosen_ = torch::zeros({part.second - part.first}, whole);
  crops_ = torch::zeros({images_.count(), 3}, whole);
}

std::int64_t Recalibrator::run(std::int64_t step) {
  auto generator =
      at::make_generator<at::CPUGeneratorImpl>(hashed(augmentation_.seed, std::uint64_t(step)));
  order_.copy_(torch::randperm(images_.count(), generator, torch::kLong));
  crops_.copy_(random_crops(augmentation_, step, images_.count(), images_.pixels.size(3)));
  const std::int64_t count = std::min(options_.recalibrate, images_.count() / options_.batch);
  keel::nn::recalibrate(*model_,
                        [&] {
                          for (std::int64_t batch = 0; batch < count; ++batch) pass(batch);
                        },
                        {.momentum_of = [&](torch::nn::Module& module) {
                          return wanted(module) ? momentum_of(module) : nullptr;
                        }});
  return count;
}

bool Recalibrator::wanted(const torch::nn::Module& norm) const {
  if (options_.recalibrate_norms == "all") return true;
  return std::ranges::any_of(model_->tested(),
                             [&](const Normed* part) { return part->norm().get() == &norm; });
}

void Recalibrator::pass(std::int64_t batch) {
  const std::int64_t first = processes_ != nullptr ? processes_->part_of(options_.batch).first : 0;
  chosen_.copy_(order_.narrow(0, batch * options_.batch + first, chosen_.size(0)));
  const bool captures = uses_graph(options_, chosen_.device(), processes_);
  if (!captures || passes_++ < kPassesBeforeCapture) return forward();
  if (!graph_) graph_ = capture([this] { forward(); });
  graph_();
}

void Recalibrator::forward() {
  const Tensor input = options_.augmentation
                           ? augment(images_.pixels, chosen_, crops_, augmentation_)
                           : normalise(images_.pixels.index_select(0, chosen_), augmentation_);
  const Autocast autocast(chosen_.device(), options_.precision == "bfloat16");
  model_->forward(input);
}

}  // namespace keel::lab
