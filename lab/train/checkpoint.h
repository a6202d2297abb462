#pragma once

// A checkpoint is a pair of files: step-00000042.safetensors (parameters and buffers under their torchvision names,
// momenta as optimiser.NAME, what followed norms know as following.CONVOLUTION.*, the CPU generator as random.cpu) and
// step-00000042.json (the position of the run, its options, the size and checksum of the first file). The JSON is written
// last and makes the checkpoint complete.

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lab/models/resnet.h"
#include "lab/storage/files.h"
#include "lab/storage/safetensors.h"
#include "lab/train/options.h"
#include "lab/train/records.h"

namespace keel::lab {

/// The position of a run. It includes the sums of the current epoch and log interval, so that a resumed run logs the
/// same numbers as an uninterrupted one.
struct Position {
  std::int64_t step = 0;   ///< steps done
  std::int64_t epoch = 0;  ///< of the next step
  std::int64_t batch = 0;  ///< of the next step, within the epoch
  double loss_sum = 0, error_sum = 0;
  std::int64_t steps_summed = 0;
  double interval_loss_sum = 0, interval_error_sum = 0, interval_gradient_norm = 0;
  std::int64_t interval_steps = 0;
  EpochRecord
      last;  ///< the last evaluated epoch, without times; with the training loss and error of the last one
  double best_test_error = 0;
};

inline constexpr const char* kMomentum = "optimiser.";   ///< before a parameter's name
inline constexpr const char* kFollowing = "following.";  ///< before a convolution's name

struct Checkpoint {
  Position position;
  TrainOptions options;
  std::string data;                  ///< the data set's name
  std::vector<std::string> classes;  ///< class names
  /// The normalisation of the network's input.
  std::array<double, 3> mean{}, deviation{};
  /// How many batches the running statistics were recomputed from. 0: they are those of training.
  std::int64_t recalibrated = 0;
  SafeTensors tensors = {};
};

/// The files of a checkpoint say that they are not what was written: a length, a checksum, the format.
class Damaged : public Error {
 public:
  using Error::Error;
};

/// Writes `checkpoint`, whose tensors are passed separately, and returns the JSON's path. Removes older checkpoints
/// beyond `keep` and half-written files of earlier crashes, of those that keel wrote to this folder (own_files.h).
/// Throws std::system_error if writing fails, and then keeps all older checkpoints.
std::filesystem::path save_checkpoint(const std::filesystem::path& folder,
                                      const Checkpoint& checkpoint, const NamedTensors& tensors,
                                      std::int64_t keep, const WriteFile& write = replace_file);

/// The names of its two files in the folder.
std::vector<std::string> checkpoint_files(std::int64_t step);

/// Loads one checkpoint, given either of its files. Throws Damaged, or Unreadable if its files cannot be read now, or
/// another keel::Error if a later keel wrote it.
Checkpoint load_checkpoint(const std::filesystem::path& file);

/// The newest good checkpoint in a run folder or its checkpoints/ folder. If `where` is a file, loads exactly that
/// one. Skips damaged checkpoints and reports each to `say`. Returns nothing if there are none. Throws keel::Error if
/// all are damaged, or as load_checkpoint() if one cannot be read: it may be good, and going on without it would lose it.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& where,
                                            const std::function<void(const std::string&)>& say);

/// The network of a checkpoint, with its parameters and buffers, in evaluation mode on the CPU.
ResNet load_model(const Checkpoint& checkpoint);

/// Copies tensors of a checkpoint into the module's parameters and buffers, by name.
void load_network(torch::nn::Module& module, const SafeTensors& checkpoint);
/// Parameters, then buffers, with their names.
NamedTensors state_of(const torch::nn::Module& module);

}  // namespace keel::lab
