#pragma once

// All options of a training run. for_each_field lists each with its name, help and valid values. Validation, JSON,
// the command line and the docs all use that list.

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "keel/error.h"
#include "lab/data/data_set.h"
#include "lab/models/resnet.h"

namespace keel::lab {

/// A run cannot be continued with options that are not its own.
class OtherOptions : public Error {
 public:
  using Error::Error;
};

/// The defaults are the paper's recipe, except for length and schedule.
struct TrainOptions {
  ModelOptions model;
  DataOptions data;

  std::int64_t batch = 128;
  std::int64_t epochs = 12;
  double learning_rate = 0.1;  ///< the schedule's highest rate
  double momentum = 0.9;
  double weight_decay = 5e-4;  ///< on all parameters
  double label_smoothing = 0;
  std::string schedule = "one_cycle";
  double warm_up = 0.3;      ///< share of a one-cycle run in which the rate rises
  bool augmentation = true;  ///< random crop and flip; otherwise only normalisation

  std::string precision = "float32";
  bool channels_last = false;
  std::string device = "auto";
  bool graph = true;  ///< CUDA: replay the step as a graph
  bool fused = true;  ///< CUDA: use the lab's own kernels for norms and optimiser, if built
  bool deterministic = false;  ///< CUDA: bitwise repeatable, but slower; the CPU always is
  std::int64_t threads = 0;
  bool sync_batchnorm = true;  ///< several processes: BatchNorm uses the whole batch too
  double timeout = 300;        ///< seconds to wait for another process

  std::uint64_t seed = 0;
  std::int64_t evaluate_every = 1;
  std::int64_t recalibrate = 50;  ///< batches; 0: evaluate only with the statistics of training
  std::string recalibrate_norms = "all";
  std::string follow = "none";     ///< norms that follow the weights before them: none, tested, all
  std::int64_t follow_every = 16;  ///< steps
  double follow_share = 3;
  std::int64_t evaluation_batch = 500;
  std::int64_t log_every = 20;
  std::int64_t max_steps = 0;

  std::filesystem::path run;  ///< the run folder; empty: write nothing
  std::int64_t checkpoint_every = 0;
  std::int64_t keep = 3;
  bool resume = false;
};

/// Valid values of a field.
struct Anything {};
struct OneOf {
  std::vector<std::string> choices;
};
struct Range {
  double least = 0, most = std::numeric_limits<double>::infinity();
};

/// What an option is about. Everything that treats options differently goes by this.
enum class About {
  network,
  layer,       ///< the layer under test
  data,        ///< which images
  place,       ///< where the images are
  training,    ///< the steps
  arithmetic,  ///< how numbers are rounded
  machine,     ///< what the machine has: changes no result beyond rounding
  seed,
  evaluation,  ///< changes nothing in training
  records,     ///< which files are written, and when
  call,        ///< the run folder, and whether to resume it
};
/// The options about any of these.
std::set<std::string> options_about(std::initializer_list<About> these);
/// The options in which runs of one experiment may differ.
const std::set<std::string>& options_beside_the_experiment();

/// Calls visit(name, about, field, help, valid) for every option; `valid` is one of the types above. Field types:
/// std::string, std::int64_t, std::uint64_t, double, bool, std::optional<double>, path.
template <typename Options, typename Visit>
void for_each_field(Options& o, Visit&& visit) {
  using enum About;
  // Integers are limited so that their products fit 64 bits.
  const Range positive{1, 1e9}, count{0, 1e9}, share{0, 1}, weight{0, 1e6};
  visit("model", network, o.model.name, "network", OneOf{model_names()});
  visit("width", network, o.model.width, "resnet_small: channels of its first stage",
        Range{1, 4096});
  visit("classes", network, o.model.classes, "number of classes; training takes it from the data",
        positive);
  visit("norm", layer, o.model.norm.kind, "layer under test, in place of the network's own norm",
        OneOf{norm_kinds()});
  visit("where", layer, o.model.where,
        "which norms are the layer under test: first, all, or their names with commas, which may "
        "be patterns (bn1,layer2.*.bn1)",
        Anything{});
  visit("group_size", layer, o.model.norm.group_size, "channels whitened together; 0: all of them",
        count);
  visit("rule", layer, o.model.norm.rule, "gradient rule of the eigendecomposition",
        OneOf{norm_rules()});
  visit(
      "parameter", layer, o.model.norm.parameter,
      "value of the rule's parameter (terms, iterations, width or tolerance) [the rule's default]",
      weight);
  visit("rank", layer, o.model.norm.rank,
        "zca: which directions to whiten: those that the paper's Algorithm 1 keeps, to the letter "
        "or with margins for rounding, or all",
        OneOf{norm_ranks()});
  visit("eps", layer, o.model.norm.eps, "added to the covariance's diagonal", Range{0, 1});
  visit("energy", layer, o.model.norm.energy, "pca: share of the energy that is kept", share);
  visit("components", layer, o.model.norm.components, "pca: directions kept; 0: by energy", count);
  visit("norm_momentum", layer, o.model.norm.momentum,
        "weight of the newest batch in the layer's running statistics", share);
  visit("dead_channels", network, o.model.dead_channels,
        "filters of the first convolution that start at 0", count);

  visit("source", data, o.data.source, "where the images come from", OneOf{data_sources()});
  visit("path", place, o.data.path, "file or folder of the images", Anything{});
  visit("size", data, o.data.size, "height and width of the images; 0: as they come",
        Range{0, 1024});
  visit("train_limit", data, o.data.train_limit, "use this many training images; 0: all", count);
  visit("test_limit", data, o.data.test_limit, "use this many test images; 0: all", count);
  visit("data_seed", data, o.data.seed, "seed of synthetic images and of splits", Anything{});

  visit("batch", training, o.batch,
        "images in a step, of all processes; an epoch's last, incomplete batch is dropped",
        positive);
  visit("epochs", training, o.epochs, "passes over the training images", positive);
  visit("max_steps", training, o.max_steps, "stop after this many steps; 0: after the epochs",
        Range{0, 1e15});
  visit("learning_rate", training, o.learning_rate, "highest learning rate", weight);
  visit("momentum", training, o.momentum, "momentum of stochastic gradient descent", share);
  visit("weight_decay", training, o.weight_decay, "weight decay, on all parameters", weight);
  visit("label_smoothing", training, o.label_smoothing,
        "share of each label spread over all classes", share);
  visit(
      "schedule", training, o.schedule,
      "learning rate over time: paper (x 0.1 at 2/7, 4/7 and 6/7 of the run), one_cycle, constant",
      OneOf{{"one_cycle", "paper", "constant"}});
  visit("warm_up", training, o.warm_up, "share of a one-cycle run in which the rate rises", share);
  visit("augmentation", training, o.augmentation, "random crops and flips", Anything{});
  visit("sync_batchnorm", training, o.sync_batchnorm,
        "several processes: BatchNorm's statistics are those of the whole batch", Anything{});

  visit("precision", arithmetic, o.precision, "arithmetic of convolutions and products",
        OneOf{{"float32", "tf32", "bfloat16"}});
  visit("channels_last", arithmetic, o.channels_last, "memory order of the activations",
        Anything{});
  visit("device", machine, o.device, "auto: CUDA where there is one",
        OneOf{{"auto", "cpu", "cuda"}});
  visit("graph", machine, o.graph, "CUDA: capture the step in a graph and replay it", Anything{});
  visit("fused", machine, o.fused,
        "CUDA: norms with addition and ReLU, and the optimiser, in the lab's own kernels",
        Anything{});
  visit("deterministic", machine, o.deterministic, "CUDA: the same bits each time, at some cost",
        Anything{});
  visit("threads", machine, o.threads,
        "CPU threads, at most one per core; 0: OMP_NUM_THREADS, or all cores", Range{0, 65536});
  visit("evaluation_batch", machine, o.evaluation_batch, "images at a time in evaluation",
        positive);

  visit("seed", seed, o.seed,
        "seed of the initial weights, the order of the images and their augmentation", Anything{});
  visit("evaluate_every", evaluation, o.evaluate_every,
        "epochs between evaluations on the test images, counted back from the last", positive);
  visit("recalibrate", evaluation, o.recalibrate,
        "evaluate a second time, with running statistics recomputed from this many training "
        "batches; the last checkpoint keeps them; 0: off, as in the paper",
        count);
  visit("recalibrate_norms", evaluation, o.recalibrate_norms,
        "norms whose statistics are recomputed: all, or the layer under test alone",
        OneOf{{"all", "tested"}});
  visit("follow", evaluation, o.follow,
        "evaluate once more, with the running statistics of these norms made from the present "
        "weights: none, the layer under test, or all norms",
        OneOf{{"none", "tested", "all"}});
  visit("follow_every", evaluation, o.follow_every,
        "follow: steps between two looks at the input of the convolution before a norm", positive);
  visit("follow_share", evaluation, o.follow_share,
        "follow: the most work that a look may be, over the convolution's own in that step. With "
        "little the statistics are averages over more looks, and older",
        Range{1e-6, 1e6});
  visit("log_every", records, o.log_every, "steps between two records", positive);
  visit("run", call, o.run, "run folder", Anything{});
  visit("checkpoint_every", records, o.checkpoint_every, "steps between checkpoints; 0: each epoch",
        count);
  visit("keep", records, o.keep, "checkpoints kept", positive);
  visit("timeout", records, o.timeout,
        "several processes: seconds to wait for one that does not respond", Range{1, 86400});
  visit("resume", call, o.resume, "continue from the run folder's newest good checkpoint",
        Anything{});
}

/// Throws keel::Error that names the option, the expected value and the actual one.
void validate(const TrainOptions& options);

/// The threads to start: as asked, but at most one per core of this machine. More only wait for each other, and a run of
/// a large machine may be continued or evaluated on a small one. 0 stays 0.
int threads_here(const TrainOptions& options);

/// The learning rate of the next step, after `done` of `steps` steps.
///
/// - one_cycle: rises from 1/25 of the highest rate to the highest rate over the first `warm_up` of the run, then
///   falls to 1/250,000 of it. Both parts are half a cosine.
/// - paper: starts at the highest rate and divides it by 10 after 2/7, 4/7 and 6/7 of the run (epochs 100, 200 and
///   300 of 350).
/// - constant: the highest rate.
double learning_rate(const TrainOptions& options, std::int64_t done, std::int64_t steps);

/// "0 ... 1", "at least 1", "a, b or c"; empty if everything is valid.
std::string valid_text(const Range& range);
std::string valid_text(const OneOf& choice);
std::string valid_text(const Anything&);

/// All options as TOML, each below a comment with its meaning and valid values. Reading it back with --config gives
/// the same options, except the run folder and --resume, which belong to one call.
std::string to_toml(const TrainOptions& options);

nlohmann::json to_json(const TrainOptions& options);
/// Missing fields keep the value of `otherwise`. Unknown names, wrong types and out-of-range values throw
/// keel::Error.
TrainOptions train_options(const nlohmann::json& json, TrainOptions otherwise = {});

}  // namespace keel::lab
