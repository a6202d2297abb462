#include "lab/train/step.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "lab/random.h"
#include "lab/require.h"
#include "lab/train/checkpoint.h"
#include "lab/train/fused_step.h"

namespace keel::lab {
namespace {

using torch::Tensor;

/// The number of parameters before that module, in the order of model.parameters().
std::size_t parameters_before(const torch::nn::Module& model, const std::string& module) {
  std::size_t count = 0;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (item.key() == module) break;
    count += item.value()->parameters(/*recurse=*/false).size();
  }
  return count;
}

Tensor random_state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

/// What followed norms know of their convolutions' inputs.
NamedTensors followed_inputs(ResNet& model) {
  NamedTensors result;
  for (const Normed* part : model->normed()) {
    const auto& following = part->following();
    if (!following) continue;
    const std::string name = kFollowing + part->convolution_name() + ".";
    result.emplace_back(name + "input_mean", following->input_mean);
    result.emplace_back(name + "input_covariance", following->input_covariance);
    result.emplace_back(name + "looks", following->looks);
  }
  return result;
}

}  // namespace

void set_random_state(const torch::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

bool uses_fused_step(const TrainOptions& options, torch::Device device,
                     const Processes* processes) {
  return options.fused && device.is_cuda() && has_fused_step() && processes == nullptr;
}

bool uses_graph(const TrainOptions& options, torch::Device device, const Processes* processes) {
  return options.graph && device.is_cuda() && processes == nullptr &&
         can_be_captured(options.model.norm);
}

torch::Device device_of(const TrainOptions& options, std::int64_t index) {
  const bool there = options.device != "cpu" && has_cuda();
  require(options.device != "cuda" || there,
          "expected a CUDA device, as asked for; LibTorch sees none");
  if (!there) return torch::kCPU;
  require(index < cuda_devices(),
          "expected a CUDA device for each process of a machine, got LOCAL_RANK " +
              std::to_string(index) + " and " + std::to_string(cuda_devices()) + " devices");
  return torch::Device(torch::kCUDA, c10::DeviceIndex(index));
}

void require_precision(const TrainOptions& options, torch::Device device) {
  require(options.precision != "tf32" || device.is_cuda(),
          "expected a CUDA device for precision tf32, got cpu; use float32, or a GPU");
  if (options.precision == "bfloat16" && device.is_cpu())
    require(bfloat16_fault().empty(), bfloat16_fault());
}

const std::string& bfloat16_fault() {
  static const std::string fault = []() -> std::string {
    const torch::NoGradGuard no_grad;
    const std::vector<std::int64_t> one{1, 1}, none{0, 0};
    const auto x = torch::ones({4, 3, 8, 8}, torch::kBFloat16),
               weight = torch::ones({64, 3, 3, 3}, torch::kBFloat16);
    try {
      const auto y = at::convolution(x, weight, {}, one, one, one, false, none, 1);
      at::convolution_backward(y, x, weight, at::OptionalIntArrayRef(), one, one, one, false, none,
                               1, {true, true, false});
    } catch (const std::exception& error) {  // LibTorch's, or oneDNN's own
      const auto* torchs = dynamic_cast<const c10::Error*>(&error);
      const std::string words = torchs ? torchs->what_without_backtrace() : error.what();
      return "expected a CPU that computes in bfloat16; use float32, or a GPU. LibTorch says: " +
             words.substr(0, words.find('\n'));
    }
    return "";
  }();
  return fault;
}

Precision::Precision(const TrainOptions& options, torch::Device device) {
  if (options.precision == "bfloat16") require_precision(options, device);
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
                           const TrainOptions& options, torch::Device device, Processes* processes)
    : model_(std::move(model)),
      images_(std::move(images)),
      augmentation_(augmentation),
      options_(options),
      device_(device),
      processes_(processes),
      size_(options.batch),
      parameters_(*model_, options.channels_last),
      fused_(uses_fused_step(options, device, processes)),
      narrow_(fused_ && options.precision == "bfloat16"),
      use_graph_(uses_graph(options, device, processes)) {
  augmentation_.channels_last = options.channels_last;
  before_layer_ =
      parameters_.end_of(parameters_before(*model_, model_->tested().front()->norm_name()));
  const auto whole = torch::TensorOptions(device).dtype(torch::kLong);
  order_ = torch::zeros({images_.count()}, whole);
  if (processes_ != nullptr) {
    const auto [begin, end] = processes_->part_of(options.batch);
    first_ = begin;
    size_ = end - begin;
  }
  indices_ = torch::zeros({size_}, whole);
  crops_ = torch::zeros({images_.count(), 3}, whole);
  rate_ = torch::zeros({}, whole.dtype(torch::kFloat));
  stop_ = torch::zeros({}, whole.dtype(torch::kDouble));
  meter_ = torch::zeros({5}, whole.dtype(torch::kDouble));
  readings_.loss_sum = meter_.select(0, 0);
  readings_.error_sum = meter_.select(0, 1);
  readings_.gradient_norm = meter_.select(0, 2);
  readings_.good_steps = meter_.select(0, 3);
  stops_ = meter_.select(0, 4);
  readings_.halted = torch::zeros({}, whole.dtype(torch::kBool));
  readings_.recent =
      torch::full({kRecent}, std::numeric_limits<double>::quiet_NaN(), meter_.options());
  if (fused_) not_finite_ = torch::zeros({1}, whole.dtype(torch::kInt));
  model_->fuse_norms(options.fused);
  if (options.follow != "none")
    for (Normed* part : options.follow == "all" ? model_->normed() : model_->tested())
      part->follow({.share = options.follow_share, .every = options.follow_every});
  model_->train();
}

void TrainingStep::start_epoch(std::int64_t epoch) {
  // One random stream per seed and epoch. On the CPU's generator, so that every device gets the same order.
  auto generator = at::make_generator<at::CPUGeneratorImpl>(
      hashed(options_.seed * kGolden + std::uint64_t(epoch) + 1));
  order_.copy_(torch::randperm(images_.count(), generator, torch::kLong));
  crops_.copy_(random_crops(augmentation_, epoch, images_.count(), images_.pixels.size(3)));
}

void TrainingStep::select(std::int64_t batch) {
  indices_.copy_(order_.narrow(0, batch * options_.batch + first_, size_));
}

/// Counted from the epoch's end, so that evaluation comes right after a look. A captured one has been run before.
bool TrainingStep::looks(std::int64_t batch) const {
  if (options_.follow == "none") return false;
  return (batches() - 1 - batch) % options_.follow_every == 0 ||
         (use_graph_ && runs_ < kStepsBeforeCapture);
}

void TrainingStep::run(std::int64_t batch, double rate, bool stop) {
  select(batch);
  if (rate != rate_now_) rate_.fill_(rate_now_ = rate);
  if (narrow_ && changed_outside_) parameters_.update_bfloat16();
  changed_outside_ = false;
  if (processes_ != nullptr) stop_.fill_(stop ? 1 : 0);
  const bool looks = this->looks(batch);
  if (!use_graph_ || runs_ < kStepsBeforeCapture) {
    step(looks);
  } else {
    if (!graph_) capture_steps();
    looks ? replay_with_a_look() : graph_();
  }
  ++runs_;
}

/// The layers report the tensors of the step that was captured last, the one without a look.
void TrainingStep::capture_steps() {
  if (options_.follow != "none") {
    looking_graph_ = capture([this] { step(/*looks=*/true); });
    reported_by_looking_ = reported();
  }
  graph_ = capture([this] { step(/*looks=*/false); });
}

void TrainingStep::replay_with_a_look() {
  looking_graph_();
  const auto there = reported();
  for (std::size_t i = 0; i < there.size(); ++i) there[i].copy_(reported_by_looking_[i]);
}

std::vector<Tensor> TrainingStep::reported() const {
  std::vector<Tensor> all;
  for (const Normed* part : model_->tested())
    if (const auto* layer = part->norm()->as<keel::nn::WhiteningImpl>())
      for (const Tensor& tensor : {layer->eigenvalues(), layer->covariance(), layer->kept()})
        all.push_back(tensor.detach());
  return all;
}

Batch TrainingStep::selected() const {
  const torch::NoGradGuard no_grad;
  return {options_.augmentation
              ? augment(images_.pixels, indices_, crops_, augmentation_)
              : normalise(images_.pixels.index_select(0, indices_), augmentation_),
          images_.labels.index_select(0, indices_)};
}

Tensor TrainingStep::forward(const Tensor& images) {
  const torch::AutoGradMode with_gradients(true);
  const Autocast autocast(device_, options_.precision == "bfloat16");
  std::optional<FlatParameters::Bfloat16Weights> weights;
  if (narrow_) weights.emplace(parameters_, *model_);
  return model_->forward(images);
}

Tensor TrainingStep::loss(const Tensor& logits, const Tensor& labels) const {
  const bool whole = processes_ == nullptr;
  const Tensor loss = at::cross_entropy_loss(logits.to(torch::kFloat), labels, /*weight=*/{},
                                             whole ? at::Reduction::Mean : at::Reduction::Sum,
                                             /*ignore_index=*/-100, options_.label_smoothing);
  return whole ? loss : loss / double(options_.batch);
}

void TrainingStep::backward(const Tensor& loss) {
  parameters_.clear_gradients();
  loss.backward();
}

void TrainingStep::step(bool looks) {
  const torch::AutoGradMode with_gradients(true);
  const Batch batch = selected();
  for (Normed* part : model_->normed()) part->looks = looks;
  const Tensor logits = forward(batch.images);
  for (Normed* part : model_->normed()) part->looks = false;
  const Tensor loss = this->loss(logits, batch.labels);
  const Tensor errors = logits.detach().argmax(1).ne(batch.labels).sum();
  backward(loss);
  parameters_.gather_gradients(not_finite_);
  if (processes_ != nullptr) processes_->sum(parameters_.gradients);
  measure(loss.detach(), errors);
  if (fused_) {
    const torch::NoGradGuard no_grad;
    const Tensor rate =
        rate_.masked_fill(readings_.halted, std::numeric_limits<double>::quiet_NaN());
    fused_descend({parameters_.values, parameters_.gradients, parameters_.momenta,
                   narrow_ ? parameters_.bfloat16_values : Tensor()},
                  rate, options_.momentum, options_.weight_decay);
  } else {
    descend(parameters_, rate_, readings_.halted, options_.momentum, options_.weight_decay);
  }
}

void TrainingStep::measure(Tensor loss, Tensor errors) {
  const torch::NoGradGuard no_grad;
  if (processes_ != nullptr) {
    // All processes see the same loss, so all halt at the same step. All also learn that one wants to stop.
    Tensor totals = at::stack({loss.to(torch::kDouble), errors.to(torch::kDouble), stop_});
    processes_->sum(totals);
    loss = totals.select(0, 0).to(torch::kFloat);
    errors = totals.select(0, 1);
    stops_.add_(totals.select(0, 2));
  }
  readings_.loss_sum.add_(loss);
  readings_.error_sum.add_(errors);
  const Tensor norm = at::linalg_vector_norm(parameters_.gradients.narrow(0, 0, before_layer_), 2,
                                             {}, /*keepdim=*/false, torch::kDouble);
  at::maximum_out(readings_.gradient_norm, readings_.gradient_norm, norm);
  const Tensor place = readings_.good_steps.to(torch::kLong).remainder(kRecent).view({1});
  readings_.recent.index_copy_(
      0, place, at::where(readings_.halted, readings_.recent.index_select(0, place), norm));
  // x - x is 0 exactly if x is finite.
  readings_.halted.logical_or_((loss - loss).ne(0));
  if (fused_) {
    readings_.halted.logical_or_(not_finite_.squeeze(0));
    not_finite_.zero_();
  } else {  // NaN and infinity show up in the extremes
    const auto [least, most] = at::aminmax(parameters_.gradients);
    const Tensor extremes = at::stack({least, most});
    readings_.halted.logical_or_((extremes - extremes).sum().ne(0));
  }
  readings_.good_steps.add_(readings_.halted.logical_not());
}

Readings TrainingStep::read() {
  const Tensor here = meter_.cpu();
  const double* const numbers = here.data_ptr<double>();
  return {numbers[0], numbers[1], numbers[2], std::int64_t(numbers[3]), numbers[4] > 0};
}

std::vector<double> TrainingStep::gradients_before_halt() {
  if (!readings_.halted.item<bool>()) return {};
  const std::int64_t last = std::int64_t(readings_.good_steps.item<double>());
  const Tensor here = readings_.recent.cpu();
  std::vector<double> norms;
  for (std::int64_t step = std::max<std::int64_t>(0, last - kRecent + 1); step <= last; ++step)
    norms.push_back(here[step % kRecent].item<double>());
  return norms;
}

void TrainingStep::start_interval() { meter_.narrow(0, 0, 3).zero_(); }

void TrainingStep::restore(const Readings& readings) {
  meter_.copy_(torch::tensor({readings.loss_sum, readings.error_sum, readings.gradient_norm,
                              double(readings.good_steps), double(readings.stop)},
                             torch::kDouble));
}

NamedTensors TrainingStep::state() {
  NamedTensors result = state_of(*model_);
  for (const auto& [name, momentum] : parameters_.named_momenta())
    result.emplace_back(kMomentum + name, momentum);
  for (const auto& one : followed_inputs(model_)) result.push_back(one);
  result.emplace_back(kRandomState, random_state());
  return result;
}

void TrainingStep::restore(const SafeTensors& tensors) {
  changed_outside_ = true;
  load_network(*model_, tensors);
  const torch::NoGradGuard no_grad;
  for (auto [name, momentum] : parameters_.named_momenta()) {
    const auto found = tensors.tensors.find(kMomentum + name);
    require(found != tensors.tensors.end() && found->second.sizes() == momentum.sizes(),
            "cannot resume: expected {}{} of shape {} in the checkpoint", kMomentum, name,
            c10::str(momentum.sizes()));
    momentum.copy_(found->second);
  }
  // A run may be continued with other norms that follow. Those start again.
  for (auto [name, tensor] : followed_inputs(model_))
    if (const auto found = tensors.tensors.find(name); found != tensors.tensors.end())
      tensor.copy_(found->second);
  const auto random = tensors.tensors.find(kRandomState);
  if (random != tensors.tensors.end()) set_random_state(random->second);
}

}  // namespace keel::lab
