#pragma once

// How far rounding changes a run, measured on the run itself.
//
// A ReLU whose input is within a rounding of zero may be on in one run and off in another. The loss does not show it,
// but the gradient jumps: by 2e-3 of its norm at one step of `kSmall`, with BatchNorm as well as with whitening. From
// there on the runs diverge, and how fast depends on data, weights and machine. So no fixed tolerance fits all
// machines.

#include <cmath>

#include "lab/tests/processes/train_support.h"
#include "lab/train/checkpoint.h"

namespace keel::test {

using Losses = std::map<int, double>;

class DriftTest : public TrainTest {
 protected:
  /// Trains in one process, and four more times with the weights moved a little after the first step.
  ///
  /// Several roundings per step, over some dozens of steps, add up to a few units in the last place of a weight. The
  /// weights are moved by 16 units. A ReLU that roundings can switch is then switched by a move or by its opposite,
  /// unless the move happens not to reach it. That is why there are two moves and their opposites.
  void measure(const std::string& options) {
    const auto whole = folder / "whole";
    grown_.clear();
    fs::remove_all(whole);
    run_alone(options + "--checkpoint-every 1 --keep 1000 --run " + whole.string());
    truth = losses(whole);
    const auto name = [&](int move) { return folder / ("moved_" + std::to_string(move)); };
    std::vector<Running> runs;
    for (const int move : {-2, -1, 1, 2}) {
      const auto checkpoint =
          lab::load_checkpoint(whole / "checkpoints" / "step-00000001.safetensors");
      fs::remove_all(name(move));
      fs::create_directories(name(move));
      for (const char* file : {"config.toml", "metrics.jsonl"})
        fs::copy_file(whole / file, name(move) / file);
      lab::save_checkpoint(name(move) / "checkpoints", checkpoint,
                           moved(checkpoint.tensors.tensors, move), /*keep=*/1);
      runs.push_back(start("--resume " + name(move).string()));
    }
    for (const Running& run : runs) ASSERT_EQ(run->wait(), 0) << run->log();
    for (const int move : {-2, -1, 1, 2}) {
      double largest = 0;
      for (const auto& [step, loss] : losses(name(move))) {
        largest = std::max(largest, std::abs(loss - truth.at(step)));
        grown_[step] = std::max(grown_[step], largest);
      }
    }
  }

  /// The loss is the mean over a batch after some twenty layers: a few units in its last place. The network amplifies
  /// roundings as it amplifies a move, by up to twice as much: two ReLUs may switch in two of the runs, or both in
  /// one.
  double allowed(int step) const { return 8 * kLossUnit + 4 * grown_.at(step); }

  /// The largest difference from the run of one process, relative to the allowed one.
  double drift(const Losses& found) const {
    double largest = found.size() == truth.size() ? 0 : INFINITY;
    for (const auto& [step, loss] : truth) {
      const double share =
          found.count(step) ? std::abs(found.at(step) - loss) / allowed(step) : INFINITY;
      if (!std::isnan(largest) && !(share <= largest)) largest = share;  // NaN stays
    }
    return largest;
  }

  Losses truth;

 private:
  static constexpr double kLossUnit = 0x1p-22;  ///< the last place of a float from 2 to 4

  static lab::NamedTensors moved(const std::map<std::string, torch::Tensor>& all, int move) {
    torch::manual_seed(std::uint64_t(std::abs(move)));
    const double size = std::copysign(0x1p-19, move);
    lab::NamedTensors tensors;
    for (const auto& [name, tensor] : all) {
      const bool weight = !lab::is_of_the_run(name) && tensor.is_floating_point();
      tensors.emplace_back(
          name,
          weight ? tensor + size * tensor * torch::randint_like(tensor, 2).mul(2).sub(1) : tensor);
    }
    return tensors;
  }

  Losses grown_;
};

}  // namespace keel::test
