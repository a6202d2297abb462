#include "lab/train/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "keel/torch/threads.h"
#include "lab/models/batch_norm.h"
#include "lab/require.h"
#include "lab/storage/own_files.h"
#include "lab/train/checkpoint.h"
#include "lab/train/recalibrate.h"
#include "lab/train/signals.h"
#include "lab/train/step.h"
#include "lab/train/stopwatch.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;
using torch::Tensor;

TrainOptions resolved(TrainOptions options, const DataSet& data, std::int64_t processes) {
  options.model.classes = std::int64_t(data.classes.size());
  validate(options);
  require_labels(data.train, options.model.classes);
  require_labels(data.test, options.model.classes);
  require_batches(options, data, processes);
  const torch::Device device = device_of(options);
  require_precision(options, device);
  options.device = device.is_cuda() ? "cuda" : "cpu";
  return options;
}

ResNet fresh_model(const TrainOptions& options, torch::Device device, Processes* processes) {
  torch::manual_seed(options.seed);  // on the CPU, so every device starts from the same weights
  ResNet model(options.model);
  model->to(device);
  if (processes != nullptr) share_batches(*model, processes->group(), options.sync_batchnorm);
  return model;
}

/// The options that must be equal on all processes: all that affect the numbers, or when they are read.
nlohmann::json shared_settings(const TrainOptions& options, const DataSet& data) {
  nlohmann::json settings = to_json(options);
  for (const auto& own : options_about({About::call, About::place, About::machine}))
    settings.erase(own);
  settings["data"] = data.name;
  settings["training images"] = data.train.count();
  settings["test images"] = data.test.count();
  return settings;
}

/// This process's part of the images.
Images part_of(const Images& images, const Processes* processes) {
  if (processes == nullptr) return images;
  const auto [begin, end] = processes->part_of(images.count());
  return {images.pixels.narrow(0, begin, end - begin), images.labels.narrow(0, begin, end - begin)};
}

/// Throws unless the checkpoint's run has the same data and options, except options that do not affect the numbers (where
/// to write, how often, on which device).
void require_same_run(const Checkpoint& checkpoint, const TrainOptions& options,
                      const DataSet& data) {
  const auto then = to_json(checkpoint.options), now = to_json(options);
  for (const auto& [name, value] : now.items())
    if ((name == "seed" || !options_beside_the_experiment().count(name)) && value != then.at(name))
      throw OtherOptions(fmt::format("cannot resume: the checkpoint was made with {} {}, got {}",
                                     name, then.at(name).dump(), value.dump()));
  require(
      checkpoint.data == data.name && checkpoint.classes == data.classes,
      "cannot resume: the checkpoint was made with other data ({}, {} classes), got {}, {} classes",
      checkpoint.data, checkpoint.classes.size(), data.name, data.classes.size());
}

/// What a run is resumed from, if anything. Read before the network is built, which the options of a checkpoint that
/// does not belong to them could make as large as they like.
std::optional<Checkpoint> checkpoint_of(const TrainOptions& options, const DataSet& data,
                                        Observer& observer) {
  if (!options.resume) return {};
  auto found =
      newest_checkpoint(options.run, [&](const std::string& text) { observer.on_message(text); });
  if (found)
    require_same_run(*found, options, data);
  else
    observer.on_message("no checkpoint in " + options.run.string() + ": starting afresh");
  return found;
}

/// One call of train().
class Run {
 public:
  Run(const TrainOptions& options, const DataSet& data, Observer& observer, Processes* processes)
      : options_(options),
        data_(data),
        observer_(observer),
        processes_(processes),
        resumed_(checkpoint_of(options, data, observer)),
        device_(processes != nullptr ? processes->device() : device_of(options)),
        scope_(device_),
        precision_(options_, device_),
        signals_(/*once=*/processes == nullptr),
        normalisation_(augment_options(data, options.seed)),
        test_(part_of(data.test, processes).to(device_)),
        training_(fresh_model(options, device_, processes), data.train.to(device_), normalisation_,
                  options, device_, processes),
        per_epoch_(training_.batches()),
        steps_(options.max_steps > 0 ? std::min(options.max_steps, options.epochs * per_epoch_)
                                     : options.epochs * per_epoch_) {
    at_.last.train_loss = at_.last.train_error = at_.last.test_loss = at_.last.test_error =
        at_.best_test_error = kNotDone;
  }

  Result run() {
    reset_peak(device_);
    if (resumed_) resume();
    keeps_ = !options_.run.empty();
    if (keeps_) {  // the folder is keel's from here on
      OwnFiles own(options_.run);
      own.begin();
      own.clean();
    }
    resumed_.reset();
    if (processes_ != nullptr) share_start();
    announce();
    while (at_.step < steps_ && result_.status.empty()) epoch();
    if (result_.status.empty()) result_.status = "finished";
    return finish();
  }

 private:
  void resume() {
    training_.restore(resumed_->tensors);
    at_ = resumed_->position;
    // Check bounds first: the product of numbers from a file may overflow.
    require(at_.step <= steps_ && at_.epoch <= options_.epochs && at_.batch < per_epoch_ &&
                at_.step == at_.epoch * per_epoch_ + at_.batch,
            "cannot resume: step {} of the checkpoint is batch {} of epoch {}, but these data make "
            "{} batches an epoch and {} steps in all",
            at_.step, at_.batch, at_.epoch + 1, per_epoch_, steps_);
    restore_readings();
  }

  bool is_first() const { return processes_ == nullptr || processes_->is_first(); }

  /// All processes start from process 0's state.
  void share_start() {
    static_assert(std::is_trivially_copyable_v<Position>);
    Tensor numbers = torch::from_blob(&at_, {std::int64_t(sizeof at_)}, torch::kByte).clone();
    numbers = torch::cat({numbers, torch::full({1}, keeps_ ? 1 : 0, torch::kByte)}).to(device_);
    processes_->broadcast(numbers);
    numbers = numbers.cpu();
    std::memcpy(&at_, numbers.data_ptr(), sizeof at_);
    keeps_ = numbers[-1].item<int>() != 0;
    const torch::NoGradGuard no_grad;
    for (const auto& [name, tensor] : training_.state()) {
      Tensor there = tensor.to(device_).contiguous();
      processes_->broadcast(there);
      if (name == kRandomState)
        set_random_state(there.cpu());
      else
        tensor.detach().copy_(there);
    }
    if (at_.step > 0) restore_readings();
  }

  void restore_readings() {
    training_.restore(
        {at_.interval_loss_sum, at_.interval_error_sum, at_.interval_gradient_norm, at_.step});
  }

  void announce() {
    RunInfo info{.options = options_,
                 .device = description(device_),
                 .parameters = training_.parameters().size(),
                 .train_images = data_.train.count(),
                 .test_images = data_.test.count(),
                 .steps_per_epoch = per_epoch_,
                 .steps = steps_,
                 .first_step = at_.step};
    observer_.on_start(info);
    if (processes_ != nullptr)
      observer_.on_message(fmt::format("{} process{} over {}", processes_->size(),
                                       processes_->size() > 1 ? "es" : "", processes_->backend()));
  }

  void epoch() {
    const auto start = std::chrono::steady_clock::now();
    training_.start_epoch(at_.epoch);
    watch_.go();
    while (at_.batch < per_epoch_ && at_.step < steps_) {
      training_.run(at_.batch, learning_rate(options_, at_.step, steps_), signals_.requested());
      ++at_.step;
      if (processes_ != nullptr && device_.is_cpu()) stop_agreed_ = training_.read().stop;
      ++at_.batch;
      ++at_.interval_steps;
      ++timed_steps_;
      const bool last = at_.batch == per_epoch_ || at_.step == steps_;
      if ((last || at_.step % options_.log_every == 0) && !log()) return;
      if (last) break;
      if (stop_wanted()) return interrupt();
      if (options_.checkpoint_every > 0 && at_.step % options_.checkpoint_every == 0 && !save())
        return;
    }
    watch_.pause();
    end_epoch(start);
  }

  /// Evaluation belongs to the epoch, so an interruption during it takes effect afterwards.
  void end_epoch(std::chrono::steady_clock::time_point start) {
    EpochRecord record{.epoch = at_.epoch, .step = at_.step};
    record.test_loss = record.test_error = kNotDone;
    // Counted from the end, so that the evaluated epochs are evenly spaced up to the last.
    const std::int64_t epochs_left = options_.epochs - 1 - at_.epoch;
    const bool evaluated = epochs_left % options_.evaluate_every == 0 || at_.step == steps_;
    if (evaluated) {
      const Evaluation test = evaluate_now();
      record.test_loss = test.loss;
      record.test_error = test.error;
      at_.best_test_error = std::fmin(at_.best_test_error, test.error);
      if (options_.follow != "none") evaluate_followed(record);
      if (options_.recalibrate > 0) evaluate_recalibrated(record);
    }
    const double images = double(at_.steps_summed * options_.batch);
    record.train_loss = at_.last.train_loss = at_.loss_sum / double(at_.steps_summed);
    record.train_error = at_.last.train_error = at_.error_sum / images;
    record.seconds = seconds_since(start);
    if (evaluated) at_.last = record;
    at_.last.seconds = at_.last.recalibration_seconds = kNotDone;  // no part of the run's state
    observer_.on_epoch(record);
    show_layer(at_.step);
    at_.loss_sum = at_.error_sum = 0;
    at_.steps_summed = 0;
    if (at_.batch == per_epoch_) {
      ++at_.epoch;
      at_.batch = 0;
    }
    const bool due = options_.checkpoint_every == 0 || at_.step == steps_ ||
                     at_.step % options_.checkpoint_every == 0;
    if (stop_wanted() && at_.step < steps_) return interrupt();
    if (due) save();
  }

  Evaluation evaluate_now() {
    return evaluate_there(training_.model(), test_, normalisation_, options_, device_, processes_);
  }

  /// Evaluates with running statistics that `change` writes. Training continues with its own, unless they stay.
  Evaluation evaluate_after(const std::function<void()>& change, bool stay) {
    std::vector<std::pair<Tensor, Tensor>> own;
    for (const Tensor& buffer : training_.model()->buffers())
      own.emplace_back(buffer, buffer.clone());
    change();
    const Evaluation test = evaluate_now();
    if (!stay)
      for (auto& [buffer, value] : own) buffer.copy_(value);
    return test;
  }

  void evaluate_followed(EpochRecord& record) {
    const bool narrow = training_.options().precision == "bfloat16";
    const auto follow = [&] {
      for (const Normed* part : training_.model()->normed())
        if (part->following())
          part->following()->refresh(narrow ? torch::kBFloat16 : torch::kFloat);
    };
    const Evaluation test = evaluate_after(follow, /*stay=*/false);
    record.followed_test_loss = test.loss;
    record.followed_test_error = test.error;
  }

  /// After the last step the recomputed statistics stay, for the last checkpoint.
  void evaluate_recalibrated(EpochRecord& record) {
    const auto start = std::chrono::steady_clock::now();
    if (!recalibrator_)
      recalibrator_.emplace(training_.model(), training_.images(), normalisation_, options_,
                            processes_);
    std::int64_t batches = 0;
    const bool last = at_.step == steps_;
    const Evaluation test =
        evaluate_after([&] { batches = recalibrator_->run(at_.step); }, /*stay=*/last);
    record.recalibrated_test_loss = test.loss;
    record.recalibrated_test_error = test.error;
    if (last) recalibrated_ = batches;
    record.recalibration_seconds = seconds_since(start);
    result_.recalibration_seconds += record.recalibration_seconds;
  }

  /// Reads the device's measurements. Returns false if the run has failed.
  bool log() {
    const Readings readings = training_.read();
    stop_agreed_ = readings.stop;
    if (failed(readings)) return false;
    const double seconds = watch_.lap();
    const LayerStates layers = layer_states(training_.model(), Covariances::kWithout);
    const double steps = double(at_.interval_steps), images = double(options_.batch);
    observer_.on_step({.step = at_.step,
                       .epoch = at_.epoch,
                       .loss = readings.loss_sum / steps,
                       .error = readings.error_sum / (steps * images),
                       .learning_rate = learning_rate(options_, at_.step - 1, steps_),
                       .gradient_norm_layer = readings.gradient_norm,
                       .images_per_second = double(timed_steps_) * images / seconds,
                       .rank = smallest_rank(layers) > 0 ? double(smallest_rank(layers)) : kNotDone,
                       .smallest_gap = smallest_gap(layers)});
    throughput_.add(double(timed_steps_) * images, seconds);
    if (result_.peak_mib == 0) result_.peak_mib = peak_mib(device_);  // before any evaluation
    at_.loss_sum += readings.loss_sum;
    at_.error_sum += readings.error_sum;
    at_.steps_summed += at_.interval_steps;
    at_.interval_steps = timed_steps_ = 0;
    training_.start_interval();
    return true;
  }

  bool failed(const Readings& readings) {
    if (readings.good_steps == at_.step) return false;
    throughput_.add(double(timed_steps_ * options_.batch), watch_.lap());
    const std::int64_t bad = readings.good_steps;  // counted from 0
    training_.select(bad % per_epoch_);  // every epoch ends with a check, so it is in this one
    result_.failure = diagnose(training_, bad + 1);
    result_.status = "failed";
    observer_.on_failure(*result_.failure);
    show_layer(bad + 1);
    return true;
  }

  /// A single process stops as soon as it is told to. Several processes stop once all have seen the request in the
  /// same step's sums. On a GPU they look only at the next record, to avoid synchronising.
  bool stop_wanted() const { return processes_ == nullptr ? signals_.requested() : stop_agreed_; }

  void interrupt() {
    if (keeps_ && !save()) return;
    result_.status = "interrupted";
  }

  /// Returns false, without saving, if the run turns out to have failed.
  bool save() {
    if (!keeps_) return true;
    watch_.pause();
    const Readings readings = training_.read();
    if (failed(readings)) return false;
    at_.interval_loss_sum = readings.loss_sum;
    at_.interval_error_sum = readings.error_sum;
    at_.interval_gradient_norm = readings.gradient_norm;
    if (is_first()) write_checkpoint();
    watch_.go();
    return true;
  }

  void write_checkpoint() {
    try {
      OwnFiles(options_.run).add({run_files::kCheckpoints});
      save_checkpoint(options_.run / run_files::kCheckpoints,
                      {.position = at_,
                       .options = options_,
                       .data = data_.name,
                       .classes = data_.classes,
                       .mean = data_.mean,
                       .deviation = data_.deviation,
                       .recalibrated = recalibrated_},
                      training_.state(), options_.keep);
      unsaved_.clear();
    } catch (const std::system_error& error) {
      unsaved_ = error.what();
      observer_.on_message(
          fmt::format("step {}: no checkpoint ({}); the run goes on", at_.step, error.what()));
    }
  }

  void show_layer(std::int64_t step) {
    const LayerStates layers = layer_states(training_.model());
    for (const LayerState& layer : layers) observer_.on_layer(layer, step);
    if (options_.run.empty()) return;
    try {
      OwnFiles(options_.run).add({run_files::kSpectrum});
      replace_file(options_.run / run_files::kSpectrum, to_json(layers, step).dump() + "\n");
    } catch (const std::system_error& error) {
      observer_.on_message(
          fmt::format("step {}: no spectrum.json ({}); the run goes on", step, error.what()));
    }
  }

  Result finish() {
    result_.steps = result_.failure ? result_.failure->step : at_.step;
    result_.epochs = at_.epoch;
    result_.train_loss = at_.last.train_loss;
    result_.train_error = at_.last.train_error;
    result_.test_loss = at_.last.test_loss;
    result_.test_error = at_.last.test_error;
    result_.best_test_error = at_.best_test_error;
    result_.recalibrated_test_error = at_.last.recalibrated_test_error;
    result_.followed_test_error = at_.last.followed_test_error;
    if (!result_.failure) result_.unsaved = unsaved_;
    result_.images_per_second = throughput_.per_second();
    result_.seconds = seconds_since(started_);
    observer_.on_finish(result_);
    return result_;
  }

  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  const TrainOptions options_;
  const DataSet& data_;
  Observer& observer_;
  Processes* const processes_;
  std::optional<Checkpoint> resumed_;  ///< until its state is restored
  const torch::Device device_;
  const DeviceScope scope_;
  const Precision precision_;
  const StopOnSignal signals_;
  const AugmentOptions normalisation_;
  const Images test_;
  TrainingStep training_;
  const std::int64_t per_epoch_, steps_;
  Position at_;
  Result result_;
  Stopwatch watch_;
  Throughput throughput_;
  std::int64_t timed_steps_ = 0;  ///< in this process since the last record
  bool keeps_ = false;            ///< whether process 0 writes checkpoints
  bool stop_agreed_ = false;
  std::optional<Recalibrator> recalibrator_;
  std::int64_t recalibrated_ =
      0;                 ///< batches behind the model's final statistics; 0: training's own
  std::string unsaved_;  ///< why the newest checkpoint was not written
};

}  // namespace

void require_batches(const TrainOptions& options, const DataSet& data, std::int64_t processes) {
  require(data.train.count() >= options.batch,
          "expected at least a batch of {} training images, got {}", options.batch,
          data.train.count());
  require(processes == 1 || options.model.norm.kind == "none" || can_follow(options.model.norm),
          "expected a rule of the library in several processes, got {}", options.model.norm.rule);
  require(options.batch >= processes,
          "expected a batch of at least {}, an image for each process, got {}", processes,
          options.batch);
  // A single value has no variance. The last stage has the fewest values. The first always has enough, since images
  // are at least 4 x 4.
  const std::int64_t height = last_size(options.model, data.train.pixels.size(2)),
                     width = last_size(options.model, data.train.pixels.size(3)),
                     images = options.sync_batchnorm ? options.batch : options.batch / processes;
  require(images * height * width >= 2,
          "expected at least 2 values of a channel for the norms of the last stage, got 1: {} of "
          "{} x {} there (batch, size)",
          counted(images, "image"), height, width);
}

Result train(const TrainOptions& given, const DataSet& data, Observer& observer) {
  const TrainOptions options = resolved(given, data, /*processes=*/1);
  keel::use_all_cores(threads_here(options));
  return Run(options, data, observer, nullptr).run();
}

Result train(const TrainOptions& given, const DataSet& data, Observer& observer,
             Processes& processes) {
  TrainOptions options = resolved(given, data, processes.size());
  processes.require_same(shared_settings(options, data));
  keel::use_all_cores(threads_here(options));
  Observer nobody;
  if (!processes.is_first()) {
    options.run.clear();
    options.resume = false;
  }
  const Result result =
      Run(options, data, processes.is_first() ? observer : nobody, &processes).run();
  processes.meet();  // process 0 may host the store, so it must not exit while others still read it
  return result;
}

}  // namespace keel::lab
