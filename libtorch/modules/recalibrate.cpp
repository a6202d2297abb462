#include "keel/torch/nn/recalibrate.h"

#include <torch/nn/modules/batchnorm.h>

#include <list>
#include <set>
#include <utility>
#include <vector>

#include "keel/torch/nn/whitening.h"

namespace keel::nn {

using torch::Tensor;
using torch::nn::Module;

/// Resets one norm's statistics so that they can be recomputed. The destructor restores whatever keep() does not keep.
class Recalibration {
 public:
  /// Delegates to the default constructor, so that the destructor also runs if this body throws.
  Recalibration(Module& module, const RecalibrateOptions& options) : Recalibration() {
    for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
      if (!buffer.value().defined()) continue;
      if (buffer.key() == "num_batches_tracked")
        count_ = buffer.value();
      else if (buffer.key().rfind("running_", 0) != 0)
        continue;
      before_.emplace_back(buffer.value(), buffer.value().clone());
    }
    if (!count_.defined()) return;
    if (auto* layer = module.as<WhiteningImpl>()) {
      take(layer->options.momentum);
      whitening_ = layer;
      kept_ = layer->kept_, eigenvalues_ = layer->eigenvalues_, covariance_ = layer->covariance_;
    } else if (std::optional<double>* own =
                   options.momentum_of ? options.momentum_of(module) : nullptr) {
      take(*own);
    } else if (options.batch_norms) {
      take_of(module.as<torch::nn::BatchNorm1dImpl>());
      take_of(module.as<torch::nn::BatchNorm2dImpl>());
      take_of(module.as<torch::nn::BatchNorm3dImpl>());
    }
    if (!is_norm()) return;
    // The first batch gets all the weight. Zeroing removes a NaN, which would survive even a weight of 0.
    for (auto& [buffer, value] : before_) buffer.zero_();
    module.train();
  }
  Recalibration(const Recalibration&) = delete;
  Recalibration& operator=(const Recalibration&) = delete;
  ~Recalibration() {
    if (!is_norm()) return;
    restore_momentum_();
    if (whitening_ != nullptr)
      whitening_->kept_ = kept_, whitening_->eigenvalues_ = eigenvalues_,
      whitening_->covariance_ = covariance_;
    if (keeps_) return;
    for (auto& [buffer, value] : before_) {
      try {
        buffer.copy_(value);
      } catch (const c10::Error&) {  // e.g. a lost device: the error already in flight reports it
      }
    }
  }

  bool is_norm() const { return bool(restore_momentum_); }
  /// Keeps the new statistics, if the norm has seen a batch.
  void keep() { keeps_ = count_.item<std::int64_t>() > 0; }

 private:
  Recalibration() = default;
  /// `Optional` is c10::optional or std::optional, depending on LibTorch's version.
  template <typename Optional>
  void take(Optional& momentum) {
    restore_momentum_ = [&momentum, before = momentum] { momentum = before; };
    momentum.reset();
  }
  template <typename Layer>
  void take_of(Layer* layer) {
    if (layer != nullptr) take(layer->options.momentum());
  }

  std::vector<std::pair<Tensor, Tensor>> before_;  ///< buffers and their previous contents
  Tensor count_;
  std::function<void()> restore_momentum_;
  WhiteningImpl* whitening_ = nullptr;
  Tensor kept_, eigenvalues_, covariance_;
  bool keeps_ = false;
};

namespace {

/// Restores every module's training mode. Parents come first, because train() also sets their children.
class Modes {
 public:
  explicit Modes(Module& model) : modes_{{&model, model.is_training()}} {
    for (const auto& module : model.modules(/*include_self=*/false))
      modes_.emplace_back(module.get(), module->is_training());
  }
  Modes(const Modes&) = delete;
  Modes& operator=(const Modes&) = delete;
  ~Modes() {
    for (const auto& [module, training] : modes_) module->train(training);
  }

  std::set<Module*> modules() const {  // a shared module counts once
    std::set<Module*> all;
    for (const auto& mode : modes_) all.insert(mode.first);
    return all;
  }

 private:
  std::vector<std::pair<Module*, bool>> modes_;
};

}  // namespace

void recalibrate(Module& model, const std::function<void()>& run,
                 const RecalibrateOptions& options) {
  const torch::NoGradGuard no_grad;
  const Modes modes(model);
  model.eval();
  std::list<Recalibration> norms;
  for (Module* module : modes.modules())
    if (!norms.emplace_back(*module, options).is_norm()) norms.pop_back();
  run();
  for (Recalibration& norm : norms) norm.keep();
}

}  // namespace keel::nn
