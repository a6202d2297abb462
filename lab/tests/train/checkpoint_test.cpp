#include "lab/train/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "lab/storage/files.h"
#include "lab/storage/own_files.h"
#include "lab/tests/train/support.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;
using keel::testing::refuses;
using test::error_of;

Checkpoint example(std::int64_t step) {
  Checkpoint checkpoint;
  checkpoint.position.step = step;
  checkpoint.position.loss_sum = 0.1 * double(step) + 1e-17;
  checkpoint.position.last.test_error = std::nan("");
  checkpoint.options = test::small_options("zca");
  checkpoint.data = "small";
  checkpoint.classes = {"a", "b \"c\""};
  checkpoint.mean = {0.1, 0.2, 1 / 3.0};
  checkpoint.deviation = {0.4, 0.5, 0.6};
  return checkpoint;
}

NamedTensors tensors(std::int64_t step) {
  NamedTensors all{{"optimiser.fc.bias", torch::ones({4})}, {"random.cpu", torch::ones({9})}};
  for (const auto& [name, shape] : state_shapes(example(step).options.model))
    all.emplace_back(name, torch::full(shape, double(step)));
  return all;
}

fs::path save(const fs::path& folder, std::int64_t step, std::int64_t keep = 3) {
  return save_checkpoint(folder, example(step), tensors(step), keep);
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != OwnFiles::kName)
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void change(const fs::path& file, const std::function<void(std::string&)>& how) {
  std::string bytes = read_file(file);
  how(bytes);
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

struct Newest {
  std::optional<Checkpoint> checkpoint;
  std::vector<std::string> said;
};
Newest newest(const fs::path& where) {
  Newest result;
  result.checkpoint =
      newest_checkpoint(where, [&](const std::string& text) { result.said.push_back(text); });
  return result;
}

TEST(ChecksumTest, IsTheKnownCrc32) {
  EXPECT_EQ(crc32(""), 0u);
  EXPECT_EQ(crc32("123456789"), 0xcbf43926u);  // the check value of its definition
  EXPECT_EQ(crc32("The quick brown fox jumps over the lazy dog"), 0x414fa339u);
}

TEST(CheckpointTest, ComesBackWhole) {
  const test::TemporaryFolder folder;
  const fs::path file = save(folder.path(), 42);
  EXPECT_EQ(file.filename(), "step-00000042.json");
  const Checkpoint back = load_checkpoint(file);
  EXPECT_EQ(back.position.step, 42);
  EXPECT_EQ(back.position.loss_sum, example(42).position.loss_sum);
  EXPECT_TRUE(std::isnan(back.position.last.test_error));
  EXPECT_EQ(to_json(back.options), to_json(example(42).options));
  EXPECT_EQ(back.classes, example(42).classes);
  EXPECT_EQ(back.mean, example(42).mean);
  EXPECT_EQ(back.deviation, example(42).deviation);
  EXPECT_TRUE(back.tensors.tensors.at("fc.bias").equal(torch::full({4}, 42.0)));
  EXPECT_EQ(load_checkpoint(folder / "step-00000042.safetensors").position.step, 42);
}

TEST(CheckpointTest, KeepsTheNewestAndClearsWhatACrashLeft) {
  const test::TemporaryFolder folder;
  for (const std::int64_t step : {1, 2}) save(folder.path(), step, 2);
  fs::remove(folder / "step-00000002.json");
  std::ofstream(folder / "step-00000001.json.0123456789abcdef.unfinished") << "{";
  std::ofstream(folder / "notes.txt") << "not ours";
  for (const std::int64_t step : {10, 20}) save(folder.path(), step, 2);
  EXPECT_EQ(
      names_in(folder.path()),
      (std::vector<std::string>{"notes.txt", "step-00000010.json", "step-00000010.safetensors",
                                "step-00000020.json", "step-00000020.safetensors"}));
}

TEST(CheckpointTest, OthersCheckpointsStayWhateverTheirSteps) {
  const test::TemporaryFolder folder, other;
  for (const std::int64_t step : {1, 7, 30}) save(other.path(), step);
  save(folder.path(), 2);
  for (const auto& name : names_in(other.path())) fs::copy(other / name, folder / name);
  for (const std::int64_t step : {5, 6}) save(folder.path(), step, 1);
  EXPECT_THROW(save(folder.path(), 7), std::system_error);
  for (const auto& name : names_in(other.path()))
    EXPECT_EQ(read_file(folder / name), read_file(other / name)) << name;
  EXPECT_FALSE(fs::exists(folder / "step-00000005.json"));
  EXPECT_TRUE(fs::exists(folder / "step-00000006.json"));
}

TEST(CheckpointTest, OneThatCannotBeReadIsNotDamaged) {
  const test::TemporaryFolder folder;
  save(folder.path(), 1);
  save(folder.path(), 2);
  const fs::path newest_file = folder / "step-00000002.safetensors";
  fs::remove(newest_file);
  fs::create_directory(newest_file);  // stands for EACCES and EIO, which root does not meet
  EXPECT_THROW(newest(folder.path()), Unreadable);
  fs::remove(newest_file);
  fs::create_symlink(newest_file.filename(), newest_file);
  EXPECT_THROW(newest(folder.path()), Unreadable);
}

TEST(CheckpointTest, WithoutAFreeDescriptorNothingIsDamaged) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer looks at objects through a descriptor";
#endif
  const test::TemporaryFolder folder;
  save(folder.path(), 1);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{3, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_THROW(load_checkpoint(folder / "step-00000001.json"), Unreadable);
  EXPECT_THROW(newest(folder.path()), Unreadable);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(newest(folder.path()).checkpoint);
}

TEST(CheckpointTest, OfALaterFormatIsNotDamaged) {
  const test::TemporaryFolder folder;
  save(folder.path(), 1);
  save(folder.path(), 2);
  change(folder / "step-00000002.json", [](std::string& bytes) {
    bytes.replace(bytes.find("\"format\": 1"), 11, "\"format\": 9");
  });
  const std::string said = error_of([&] { newest(folder.path()); });
  EXPECT_NE(said.find("a later keel wrote it"), std::string::npos) << said;
}

TEST(CheckpointTest, IfAllAreDamagedThatIsAnError) {
  const test::TemporaryFolder folder;
  for (const std::int64_t step : {1, 2}) save(folder.path(), step);
  for (const char* name : {"step-00000001.json", "step-00000002.json"})
    change(folder / name, [](std::string& bytes) { bytes.clear(); });
  EXPECT_THROW(newest(folder.path()), Damaged);
  fs::remove(folder / "step-00000001.json");
  fs::remove(folder / "step-00000002.json");
  EXPECT_THROW(newest(folder.path()), Damaged);  // two halves are more than a kill leaves
  fs::remove(folder / "step-00000001.safetensors");
  EXPECT_FALSE(newest(folder.path()).checkpoint);
}

TEST(CheckpointTest, DamagedNewerOnesDoNotPushOutWhatIsWritten) {
  const test::TemporaryFolder folder;
  for (const std::int64_t step : {50, 100}) save(folder.path(), step, 2);
  change(folder / "step-00000100.safetensors", [](std::string& bytes) { bytes.clear(); });
  for (const std::int64_t step : {60, 70}) {  // as a run does that has fallen back to step 50
    save(folder.path(), step, 1);
    EXPECT_EQ(newest(folder.path()).checkpoint->position.step, step);
  }
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"step-00000070.json", "step-00000070.safetensors"}));
}

TEST(CheckpointTest, NewestOfARunFolderItsCheckpointsFolderOrTheOneNamed) {
  const test::TemporaryFolder folder;
  const fs::path inner = folder / "checkpoints";
  save(inner, 5);
  save(inner, 100000000);  // a ninth digit
  for (const fs::path& where : {folder.path(), inner})
    EXPECT_EQ(newest(where).checkpoint->position.step, 100000000);
  EXPECT_EQ(newest(inner / "step-00000005.json").checkpoint->position.step, 5);
  EXPECT_FALSE(newest(folder / "nowhere").checkpoint);
  const test::TemporaryFolder empty;
  EXPECT_FALSE(newest(empty.path()).checkpoint);
}

TEST(CheckpointTest, ADamagedOneIsSkippedAndNamed) {
  const auto halve = [](std::string& bytes) { bytes.resize(bytes.size() / 2); };
  const auto replace = [](const std::string& from, const std::string& to) {
    return [=](std::string& bytes) { bytes.replace(bytes.find(from), from.size(), to); };
  };
  const std::vector<std::tuple<const char*, const char*, std::function<void(std::string&)>>>
      damages{{"a bit of the tensors flips", ".safetensors",
               [](std::string& bytes) { bytes.back() = char(bytes.back() ^ 1); }},
              {"the tensors are cut short", ".safetensors", halve},
              {"the tensors are gone", ".safetensors", nullptr},
              {"the JSON is cut short", ".json", halve},
              {"the JSON is empty", ".json", [](std::string& bytes) { bytes.clear(); }},
              {"the JSON lacks a field", ".json", replace("\"epoch\"", "\"epock\"")},
              {"the JSON is of no format", ".json", replace("\"format\": 1", "\"format\": 0")}};
  for (const auto& [what, end, damage] : damages) {
    const test::TemporaryFolder folder;
    save(folder.path(), 1);
    save(folder.path(), 2);
    const fs::path file = folder / ("step-00000002" + std::string(end));
    if (damage)
      change(file, damage);
    else
      fs::remove(file);
    const Newest found = newest(folder.path());
    ASSERT_TRUE(found.checkpoint) << what;
    EXPECT_EQ(found.checkpoint->position.step, 1) << what;
    ASSERT_EQ(found.said.size(), 1u) << what;
    EXPECT_NE(found.said[0].find("skipped the damaged checkpoint of step 2"), std::string::npos)
        << found.said[0];
    EXPECT_NE(found.said[0].find("step-00000002"), std::string::npos) << found.said[0];
    EXPECT_NE(error_of([&] { load_checkpoint(folder / "step-00000002.json"); }), "no error");
  }
}

TEST(CheckpointTest, AFullDiskLeavesTheOlderOnes) {
  const test::TemporaryFolder folder;
  save(folder.path(), 1, 1);
  for (const int good_writes : {0, 1}) {
    int writes = 0;
    const WriteFile until_full = [&](const fs::path& file, const std::string& bytes) {
      if (writes++ == good_writes)
        throw std::system_error(ENOSPC, std::generic_category(), file.string());
      write_file_atomically(file, bytes);
    };
    EXPECT_THROW(save_checkpoint(folder.path(), example(2), tensors(2), 1, until_full),
                 std::system_error);
    EXPECT_EQ(newest(folder.path()).checkpoint->position.step, 1);
  }
  save(folder.path(), 3, 1);
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"step-00000003.json", "step-00000003.safetensors"}));
}

// Positions that would make a run endless, end it at once, or overflow in a product; options and pixels of no run.
TEST(CheckpointTest, WhatCannotBeIsDamage) {
  const test::TemporaryFolder folder;
  save(folder.path(), 2);
  const fs::path file = folder / "step-00000002.json";
  const auto good = nlohmann::json::parse(read_file(file));
  for (const auto& [place, value, said] :
       std::vector<std::tuple<std::string, const char*, const char*>>{
           {"/position/step", "-1", "expected step to be a whole number"},
           {"/position/step", "1e300", "expected step to be a whole number"},
           {"/position/step", "2.5", "expected step to be a whole number"},
           {"/position/step", "true", "expected step to be a whole number"},
           {"/position/step", "18446744073709551615", "expected step to be a whole number"},
           {"/position/epoch", "3", "its position cannot be"},
           {"/position/epoch", "-9223372036854775808", "expected epoch to be a whole number"},
           {"/position/batch", "9223372036854775807", "its position cannot be"},
           {"/position/steps_summed", "-1", "expected steps_summed to be a whole number"},
           {"/position/steps_summed", "3", "its position cannot be"},
           {"/position/interval_steps", "3", "its position cannot be"},
           {"/options/batch", "0", "expected batch in [1, 1000000000], got 0"},
           {"/data/deviation", "[0.4, 0, 0.6]", "expected 3 numbers"},
           {"/data/deviation", "[0.4, -1, 0.6]", "expected 3 numbers"},
           {"/data/deviation", "[0.4, 0.5]", "expected 3 numbers"},
           {"/data/mean", "[0.4, 0.5, 0.6, 0.7]", "expected 3 numbers"},
           {"/data/mean", "[0.4, 0.5, 7]", "expected 3 numbers"},
           {"/data/mean", "[0.4, 0.5, null]", "expected 3 numbers"},
           {"/data/mean", "0.5", "expected 3 numbers"}}) {
    auto changed = good;
    changed[nlohmann::json::json_pointer(place)] = nlohmann::json::parse(value);
    replace_file(file, changed.dump());
    EXPECT_TRUE(refuses({file.string(), said}, [&] { load_checkpoint(file); })) << place << value;
    EXPECT_THROW(load_checkpoint(file), Damaged);
  }
}

// A network of width 4096 takes 11 GB, and its description a kilobyte.
TEST(CheckpointTest, WhatTheOptionsDescribeIsComparedWithTheFileBeforeAnythingOfItIsInMemory) {
  const test::TemporaryFolder folder;
  save(folder.path(), 1);
  const fs::path file = folder / "step-00000001.json";
  const std::string good = read_file(file);
  const std::string many = "[" + keel::testing::repeated("0.5,", 300'000) + "0.5]";
  const std::vector<std::tuple<std::string, std::string, std::string>> changes = {
      {"\"width\": 4", "\"width\": 4096", "expected 'bn1.bias' of shape .4096."},
      {"\"classes\": 4", "\"classes\": 1000000000", "expected 'fc.bias' of shape .1000000000."},
      {"\"model\": \"resnet_small\"", "\"model\": \"resnet50\"", "has no tensor"},
      {"\"norm\": \"zca\"", "\"norm\": \"batch\"", "has no tensor 'bn1.running_var'"},
      {"\"name\": \"small\"", "\"name\": [" + keel::testing::repeated("{},", 340'000) + "{}]",
       "must be string"},
      {"\"name\": \"small\"", "\"mean\": " + many, "expected at most 1048576 bytes"}};
  for (const auto& [from, to, said] : changes) {
    change(file, [&](std::string& bytes) {
      ASSERT_NE(good.find(from), good.npos) << from;
      bytes = good;
      bytes.replace(good.find(from), from.size(), to);
    });
    EXPECT_EXIT(
        {
          test::allow_more_memory(std::size_t{64} << 20);
          std::fputs(error_of([&] { load_checkpoint(file); }).c_str(), stderr);
          std::_Exit(0);
        },
        ::testing::ExitedWithCode(0), said);
  }
  // A file of the same size in which one tensor has another's shape.
  change(file, [&](std::string& bytes) { bytes = good; });
  change(folder / "step-00000001.safetensors", [](std::string& bytes) {
    const std::string from = "\"shape\":[4,3,3,3]", to = "\"shape\":[3,4,3,3]";
    ASSERT_NE(bytes.find(from), bytes.npos);
    bytes.replace(bytes.find(from), from.size(), to);
  });
  EXPECT_TRUE(
      refuses({"expected 'conv1.weight' of shape [4, 3, 3, 3]"}, [&] { load_checkpoint(file); }));
}

TEST(StateTest, ItsShapesAreKnownWithoutTheNetwork) {
  const auto compare = [](const ModelOptions& options) {
    Shapes built;
    for (const auto& [name, tensor] : state_of(*ResNet(options)))
      built[name] = tensor.sizes().vec();
    EXPECT_EQ(state_shapes(options), built) << options.name << " " << options.norm.kind;
  };
  ModelOptions small{.name = "resnet_small", .classes = 3, .width = 4};
  for (const std::string& kind : norm_kinds())
    for (const char* where : {"first", "all", "layer*.bn1,layer2.0.downsample.1"})
      for (const std::int64_t group : {0, 2})
        for (const char* rule : {"exact", "power_method"}) {
          small.where = where;
          small.norm = {.kind = kind, .group_size = group, .rule = rule};
          compare(small);
        }
  compare({.name = "resnet18"});
  compare({.name = "resnet50", .classes = 2});
}

TEST(StateTest, OfACheckpointMakesItsNetwork) {
  const TrainOptions options = test::small_options("zca");
  ResNet from(options.model);
  std::map<std::string, torch::Tensor> state;
  for (const auto& [name, tensor] : state_of(*from)) state.emplace(name, tensor.clone());
  Checkpoint checkpoint;
  checkpoint.options = options;
  checkpoint.tensors.tensors = state;
  checkpoint.tensors.tensors["optimiser.fc.bias"] = torch::ones({4});
  checkpoint.tensors.tensors["random.cpu"] = torch::ones({4});
  ResNet loaded = load_model(checkpoint);
  EXPECT_FALSE(loaded->is_training());
  from->eval();
  const auto x = torch::randn({2, 3, 8, 8});
  EXPECT_TRUE(loaded->forward(x).equal(from->forward(x)));
  checkpoint.tensors.tensors["fc.bias"] = torch::ones({1});
  EXPECT_EQ(error_of([&] { load_model(checkpoint); }),
            "expected 'fc.bias' of shape [4] in the checkpoint");
}

}  // namespace
}  // namespace keel::lab
