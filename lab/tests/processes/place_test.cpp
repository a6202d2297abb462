#include "lab/processes/place.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "support/errors.h"

namespace keel::lab {
namespace {

/// Sets exactly these variables of ours in the environment.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& set) {
    for (const char* name : kNames) unsetenv(name);
    for (const auto& [name, value] : set) setenv(name.c_str(), value.c_str(), 1);
  }
  Variables(const Variables&) = delete;
  ~Variables() {
    for (const char* name : kNames) unsetenv(name);
  }

 private:
  static constexpr const char* kNames[] = {"RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "TORCHELASTIC_USE_AGENT_STORE",
                                           "TORCHELASTIC_RESTART_COUNT"};
};

std::string error_of(const std::map<std::string, std::string>& set) {
  const Variables variables(set);
  return keel::testing::error_of(place_from_environment);
}

TEST(Place, IsWhatTorchrunSays) {
  const Variables variables({{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29501"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TORCHELASTIC_RESTART_COUNT", "3"}});
  const auto place = place_from_environment();
  ASSERT_TRUE(place);
  EXPECT_EQ(place->process, 5);
  EXPECT_EQ(place->size, 8);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->store(), "node0:29501");
  EXPECT_TRUE(place->store_is_kept);
  EXPECT_EQ(place->attempt, "3");
}

TEST(Place, IsNowhereWithoutVariables) {
  const std::map<std::string, std::string> master{{"MASTER_ADDR", "node0"}};
  const Variables variables(master);
  EXPECT_FALSE(place_from_environment());
}

TEST(Place, AloneNeedsNoMaster) {
  const Variables variables({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(place_from_environment());
  EXPECT_FALSE(place_from_environment()->store_is_kept);
}

TEST(Place, NamesTheVariableThatIsWrong) {
  EXPECT_EQ(
      error_of({{"RANK", "1"}}),
      "keel::lab::place: expected the variable WORLD_SIZE beside RANK and WORLD_SIZE, got none");
  EXPECT_EQ(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
            "keel::lab::place: expected RANK from 0 to 1, got '2'");
  EXPECT_EQ(error_of({{"RANK", "one"}, {"WORLD_SIZE", "2"}}),
            "keel::lab::place: expected RANK from 0 to 1, got 'one'");
  EXPECT_NE(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).find("MASTER_PORT"), std::string::npos);
  EXPECT_NE(
      error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}}).find("MASTER_ADDR"),
      std::string::npos);
  EXPECT_NE(
      error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "0x5"}}).find("MASTER_PORT"),
      std::string::npos);
}

}  // namespace
}  // namespace keel::lab
