// Simulates other machines by what their convolutions do in the child process.

#include "lab/train/bfloat16_cpu.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "lab/tests/train/support.h"

namespace keel::lab {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Restores oneDNN's variables at the end.
class Bfloat16CpuTest : public ::testing::Test {
 protected:
  Bfloat16CpuTest() {
    for (const char* name : kNames)
      if (const char* value = std::getenv(name)) before_[name] = value;
    for (const char* name : kNames) unsetenv(name);
  }
  ~Bfloat16CpuTest() override {
    for (const char* name : kNames) unsetenv(name);
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }

  static std::string cap() {
    const char* const set = std::getenv("ONEDNN_MAX_CPU_ISA");
    return set != nullptr ? set : "";
  }
  /// Executes a real illegal instruction, unless oneDNN is limited to one of `enough`.
  static Ending dies_unless(const std::vector<std::string>& enough) {
    return in_child([&] {
      if (std::find(enough.begin(), enough.end(), cap()) == enough.end()) __builtin_trap();
    });
  }

  static constexpr const char* kNames[] = {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"};

 private:
  std::map<std::string, std::string> before_;
};

TEST_F(Bfloat16CpuTest, AMachineThatComputesInItIsLeftAlone) {
  int trials = 0;
  const auto found = find_out_bfloat16([&] {
    ++trials;
    return in_child([] {});
  });
  EXPECT_EQ(found.fault, "");
  EXPECT_EQ(found.note, "");
  EXPECT_EQ(cap(), "");
  EXPECT_EQ(trials, 1);
}

TEST_F(Bfloat16CpuTest, WhereTilesAreShownAndNotGrantedItDoesWithoutThem) {
  const auto found = find_out_bfloat16([] {
    return dies_unless({"AVX512_CORE_BF16", "AVX512_CORE"});
  });
  EXPECT_EQ(found.fault, "");
  EXPECT_TRUE(contains(found.note, "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 does without"))
      << found.note;
  EXPECT_EQ(cap(), "AVX512_CORE_BF16");
  EXPECT_STREQ(std::getenv("DNNL_MAX_CPU_ISA"), "AVX512_CORE_BF16");
}

TEST_F(Bfloat16CpuTest, WhereMoreIsNotGrantedItDoesWithLess) {
  const auto found = find_out_bfloat16([] { return dies_unless({"AVX512_CORE"}); });
  EXPECT_EQ(found.fault, "");
  EXPECT_EQ(cap(), "AVX512_CORE");
}

// As if oneDNN had been used before in this process and no longer reads the variable.
TEST_F(Bfloat16CpuTest, WhereNoCapHelpsItSaysSoAndLeavesNone) {
  const auto found = find_out_bfloat16([] { return dies_unless({}); });
  EXPECT_TRUE(contains(found.fault, "a convolution dies of an illegal instruction")) << found.fault;
  EXPECT_TRUE(contains(found.fault, "use float32")) << found.fault;
  EXPECT_EQ(found.note, "");
  EXPECT_EQ(cap(), "");
}

TEST_F(Bfloat16CpuTest, AUsersOwnCapStays) {
  for (const char* name : kNames) {
    setenv(name, "ALL", 1);
    const auto found = find_out_bfloat16([] { return dies_unless({"AVX512_CORE_BF16"}); });
    EXPECT_TRUE(contains(found.fault, "ONEDNN_MAX_CPU_ISA=AVX512_CORE")) << found.fault;
    EXPECT_STREQ(std::getenv(name), "ALL");
    unsetenv(name);
  }
}

TEST_F(Bfloat16CpuTest, WhatLibTorchRefusesIsToldInItsWords) {
  const auto found =
      find_out_bfloat16([] { return in_child([] { throw std::runtime_error("needs avx512"); }); });
  EXPECT_TRUE(contains(found.fault, "keel::lab: expected a CPU that computes in bfloat16, got "))
      << found.fault;
  EXPECT_TRUE(contains(found.fault, "says: needs avx512; use float32, or a GPU")) << found.fault;
  EXPECT_EQ(cap(), "");
}

TEST_F(Bfloat16CpuTest, AnEndThatTellsNothingIsNoFault) {
  for (const int number : {SIGKILL, SIGALRM}) {
    const auto found = find_out_bfloat16([&] { return in_child([&] { std::raise(number); }); });
    EXPECT_EQ(found.fault, "");
    EXPECT_EQ(cap(), "");
  }
}

TEST_F(Bfloat16CpuTest, AChildIsGoneWhenItHasAnswered) {
  EXPECT_EQ(in_child([] { std::raise(SIGILL); }).signal, SIGILL);
  EXPECT_EQ(in_child([] { throw std::runtime_error(std::string(100000, 'x')); }).words.size(),
            4096u);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

// Runs after threads were started here, which the child does not have.
TEST_F(Bfloat16CpuTest, TheConvolutionsOfThisMachineComeToAnEnd) {
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  torch::randn({512, 512}).mm(torch::randn({512, 512})).exp();
  const int signal = in_child(convolve_in_bfloat16).signal;
  EXPECT_TRUE(signal == 0 || signal == SIGILL) << signal;
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace keel::lab
