#include "lab/train/step.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include "lab/train/autocast.h"

namespace keel::lab {
namespace {

using torch::Tensor;

/// One stream of random numbers for each epoch of each seed (splitmix64's mixing).
std::uint64_t mixed(std::uint64_t seed, std::uint64_t epoch) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15u + epoch + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

bool uses_graph(const TrainOptions& options, torch::Device device) {
  // The power method draws its starts on the host: no graph can hold that.
  const bool on_host = options.model.norm.rule == "power_method" &&
                       (options.model.norm.kind == "zca" || options.model.norm.kind == "pca");
  return options.graph && device.is_cuda() && !on_host;
}

torch::Device device_of(const TrainOptions& options) {
  const bool there = options.device != "cpu" && has_cuda();
  require(options.device != "cuda" || there,
          "keel::lab: expected a CUDA device, as asked for; LibTorch sees none");
  return there ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
}

Precision::Precision(const TrainOptions& options) {
  auto& context = at::globalContext();
  tf32_products_ = context.allowTF32CuBLAS();
  tf32_convolutions_ = context.allowTF32CuDNN();
  benchmark_ = context.benchmarkCuDNN();
  deterministic_ = context.deterministicCuDNN();
  context.setAllowTF32CuBLAS(options.precision == "tf32");
  context.setAllowTF32CuDNN(options.precision == "tf32");
  context.setBenchmarkCuDNN(!options.deterministic);
  context.setDeterministicCuDNN(options.deterministic);
}

Precision::~Precision() {
  auto& context = at::globalContext();
  context.setAllowTF32CuBLAS(tf32_products_);
  context.setAllowTF32CuDNN(tf32_convolutions_);
  context.setBenchmarkCuDNN(benchmark_);
  context.setDeterministicCuDNN(deterministic_);
}

TrainingStep::TrainingStep(ResNet model, Images images, const AugmentOptions& augmentation,
                           const TrainOptions& options, torch::Device device)
    : model_(std::move(model)),
      images_(std::move(images)),
      augmentation_(augmentation),
      options_(options),
      device_(device),
      parameters_(*model_, options.channels_last),
      use_graph_(uses_graph(options, device)) {
  augmentation_.channels_last = options.channels_last;
  for (const std::string& name : parameters_.names()) before_norm_ += name.rfind("conv1.", 0) == 0;
  const auto whole = torch::TensorOptions(device).dtype(torch::kLong);
  order_ = torch::zeros({images_.count()}, whole);
  indices_ = torch::zeros({options.batch}, whole);
  epoch_ = torch::zeros({}, whole);
  rate_ = torch::zeros({}, whole.dtype(torch::kFloat));
  meter_ = torch::zeros({4}, whole.dtype(torch::kDouble));
  loss_sum_ = meter_.select(0, 0);
  error_sum_ = meter_.select(0, 1);
  gradient_norm_ = meter_.select(0, 2);
  good_steps_ = meter_.select(0, 3);
  halted_ = torch::zeros({}, whole.dtype(torch::kBool));
  model_->train();
}

void TrainingStep::start_epoch(std::int64_t epoch) {
  // On the CPU's generator, so that every device sees the same order.
  auto generator = at::make_generator<at::CPUGeneratorImpl>(mixed(options_.seed, epoch));
  order_.copy_(torch::randperm(images_.count(), generator, torch::kLong));
  epoch_.fill_(epoch);
}

void TrainingStep::select(std::int64_t batch) {
  indices_.copy_(order_.narrow(0, batch * options_.batch, options_.batch));
}

void TrainingStep::run(std::int64_t batch, double rate) {
  select(batch);
  rate_.fill_(rate);
  if (!use_graph_ || runs_ < kStepsBeforeCapture) {
    step();
  } else {
    if (!graph_) graph_ = capture([this] { step(); });
    graph_->replay();
  }
  ++runs_;
}

Batch TrainingStep::selected() const {
  const torch::NoGradGuard no_grad;
  return {options_.augmentation
              ? augment(images_.pixels, indices_, epoch_, augmentation_)
              : normalise(images_.pixels.index_select(0, indices_), augmentation_),
          images_.labels.index_select(0, indices_)};
}

Tensor TrainingStep::loss(const Tensor& logits, const Tensor& labels) const {
  return at::cross_entropy_loss(logits.to(torch::kFloat), labels, /*weight=*/{},
                                at::Reduction::Mean,
                                /*ignore_index=*/-100, options_.label_smoothing);
}

void TrainingStep::step() {
  const torch::AutoGradMode with_gradients(true);
  const Batch batch = selected();
  Tensor logits;
  {
    const Autocast autocast(device_, options_.precision == "bfloat16");
    logits = model_->forward(batch.images);
  }
  const Tensor loss = this->loss(logits, batch.labels);
  parameters_.clear_gradients();
  loss.backward();
  parameters_.gather_gradients();
  measure(loss.detach(), logits.detach(), batch.labels);
  descend(parameters_, rate_, halted_, options_.momentum, options_.weight_decay);
}

void TrainingStep::measure(const Tensor& loss, const Tensor& logits, const Tensor& labels) {
  const torch::NoGradGuard no_grad;
  loss_sum_.add_(loss);
  error_sum_.add_(logits.argmax(1).ne(labels).sum());
  const Tensor norm = at::linalg_vector_norm(parameters_.leading_gradients(before_norm_), 2, {},
                                             /*keepdim=*/false, torch::kDouble);
  at::maximum_out(gradient_norm_, gradient_norm_, norm);
  // Extremes carry NaN and infinity, and x - x is 0 for every other x.
  const auto [least, most] = at::aminmax(parameters_.gradients);
  const Tensor extremes = at::stack({loss, least, most});
  halted_.logical_or_((extremes - extremes).sum().ne(0));
  good_steps_.add_(halted_.logical_not());
}

Readings TrainingStep::read() const {
  const Tensor here = meter_.cpu();
  const double* const numbers = here.data_ptr<double>();
  return {numbers[0], numbers[1], numbers[2], std::int64_t(numbers[3])};
}

void TrainingStep::start_interval() { meter_.narrow(0, 0, 3).zero_(); }

void TrainingStep::restore(const Readings& readings) {
  meter_.copy_(torch::tensor(
      {readings.loss_sum, readings.error_sum, readings.gradient_norm, double(readings.good_steps)},
      torch::kDouble));
}

}  // namespace keel::lab
