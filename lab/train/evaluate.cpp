#include "lab/train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "keel/torch/threads.h"
#include "lab/require.h"
#include "lab/train/recalibrate.h"
#include "lab/train/step.h"
#include "lab/train/stopwatch.h"

namespace keel::lab {

using torch::Tensor;

void require_labels(const Images& images, std::int64_t classes) {
  if (images.count() == 0) return;
  const auto least = images.labels.min().item<std::int64_t>(),
             most = images.labels.max().item<std::int64_t>();
  require(least >= 0 && most < classes, "expected labels from 0 to {}, got {} to {}", classes - 1,
          least, most);
}

Evaluation evaluate_there(ResNet& model, const Images& images, const AugmentOptions& normalisation,
                          const TrainOptions& options, torch::Device device, Processes* processes) {
  const torch::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  const bool was_training = model->is_training();
  model->eval();
  AugmentOptions ordered = normalisation;
  ordered.channels_last = options.channels_last;
  const std::int64_t count = images.count();
  Tensor sums = torch::zeros({3}, torch::TensorOptions(device).dtype(torch::kDouble));
  const Tensor loss_sum = sums[0], wrong = sums[1], all = sums[2];
  all.fill_(count);
  for (std::int64_t first = 0; first < count; first += options.evaluation_batch) {
    const std::int64_t size = std::min(options.evaluation_batch, count - first);
    const Tensor input = normalise(images.pixels.narrow(0, first, size), ordered);
    const Tensor labels = images.labels.narrow(0, first, size);
    Tensor logits;
    {
      const Autocast autocast(device, options.precision == "bfloat16");
      logits = model->forward(input);
    }
    logits = logits.to(torch::kFloat);
    loss_sum.add_(at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum));
    wrong.add_(logits.argmax(1).ne(labels).sum());
  }
  model->train(was_training);
  if (processes != nullptr) processes->sum(sums);
  const Tensor here = sums.cpu(), means = here / here[2];  // NaN without images
  const double images_seen = here[2].item<double>();
  return {.loss = means[0].item<double>(),
          .error = means[1].item<double>(),
          .images = std::int64_t(images_seen),
          .images_per_second = images_seen / seconds_since(start)};
}

void as_trained_on(DataSet& data, const Checkpoint& checkpoint) {
  const auto& known = checkpoint.classes;
  std::vector<std::int64_t> place;
  for (const std::string& name : data.classes) {
    const auto found = std::ranges::find(known, name);
    require(found != known.end(), "{} has a class '{}', the network was trained on {}", data.name,
            name, fmt::join(known, ", "));
    place.push_back(found - known.begin());
  }
  const Tensor places = torch::tensor(place, torch::kLong);
  for (Images* images : {&data.train, &data.test})
    images->labels = places.index_select(0, images->labels.to(torch::kLong));
  data.classes = known;
  data.mean = checkpoint.mean;
  data.deviation = checkpoint.deviation;
}

Evaluation evaluate(ResNet model, const Images& images, const DataSet& data,
                    const TrainOptions& options, std::optional<std::int64_t> recalibrate_at) {
  validate(options);
  require_labels(images, model->options().classes);
  keel::use_all_cores(threads_here(options));
  const torch::Device device = device_of(options);
  const DeviceScope scope(device);
  const Precision precision(options, device);
  model->to(device);
  const AugmentOptions normalisation = augment_options(data, options.seed);
  if (recalibrate_at) {
    TrainOptions once = options;
    once.graph = false;  // capturing would cost more than it saves
    Recalibrator(model, data.train.to(device), normalisation, once).run(*recalibrate_at);
  }
  return evaluate_there(model, images.to(device), normalisation, options, device);
}

}  // namespace keel::lab
