#pragma once

// Records how much of its bound each comparison uses. With KEEL_TEST_MARGINS=FILE in the environment, EXPECT_LT,
// EXPECT_LE and EXPECT_NEAR of floating-point numbers (and their ASSERT forms) write a line to FILE for each place in
// the sources: the largest share of the bound that was used, and in which test. The core's and the adapter's tests
// are compiled with it.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <type_traits>

namespace keel::testing {

class Margins {
 public:
  static void note(const char* file, int line, double found, double bound) {
    static Margins all;
    if (all.file_ == nullptr || !(bound > 0) || !std::isfinite(bound)) return;
    Largest& here = all.places_[std::string(file) + ":" + std::to_string(line)];
    const double share = std::abs(found) / bound;
    if (share <= here.share) return;
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    here = {share, bound,
            test != nullptr ? std::string(test->test_suite_name()) + "." + test->name() : ""};
  }

 private:
  struct Largest {
    double share = -1, bound = 0;
    std::string test;
  };

  ~Margins() {
    FILE* const out = file_ != nullptr ? std::fopen(file_, "a") : nullptr;
    if (out == nullptr) return;
    for (const auto& [place, most] : places_)
      std::fprintf(out, "%.3f\t%s\t%s\t%.3g\n", most.share, place.c_str(), most.test.c_str(),
                   most.bound);
    std::fclose(out);
  }

  const char* const file_ = std::getenv("KEEL_TEST_MARGINS");
  std::map<std::string, Largest> places_;
};

/// A GoogleTest comparison that also records its margin.
template <typename Compare>
struct Noted {
  const char* file;
  int line;
  Compare compare;

  template <typename A, typename B>
  ::testing::AssertionResult operator()(const char* a_text, const char* b_text, const A& a,
                                        const B& b) const {
    if constexpr (std::is_floating_point_v<A> && std::is_floating_point_v<B>)
      Margins::note(file, line, double(a), double(b));
    return compare(a_text, b_text, a, b);
  }
  ::testing::AssertionResult operator()(const char* a_text, const char* b_text, const char* by_text,
                                        double a, double b, double by) const {
    Margins::note(file, line, a - b, by);
    return ::testing::internal::DoubleNearPredFormat(a_text, b_text, by_text, a, b, by);
  }
};
template <typename Compare>
Noted(const char*, int, Compare) -> Noted<Compare>;

}  // namespace keel::testing

#define KEEL_NOTED(compare)                                                                \
  (::keel::testing::Noted{__FILE__, __LINE__,                                              \
                          [](const char* s, const char* t, const auto& x, const auto& y) { \
                            return ::testing::internal::compare(s, t, x, y);               \
                          }})
#undef EXPECT_LT
#undef EXPECT_LE
#undef EXPECT_NEAR
#undef ASSERT_LT
#undef ASSERT_LE
#undef ASSERT_NEAR
#define EXPECT_LT(a, b) EXPECT_PRED_FORMAT2(KEEL_NOTED(CmpHelperLT), a, b)
#define EXPECT_LE(a, b) EXPECT_PRED_FORMAT2(KEEL_NOTED(CmpHelperLE), a, b)
#define EXPECT_NEAR(a, b, by) EXPECT_PRED_FORMAT3(KEEL_NOTED(CmpHelperEQ), a, b, by)
#define ASSERT_LT(a, b) ASSERT_PRED_FORMAT2(KEEL_NOTED(CmpHelperLT), a, b)
#define ASSERT_LE(a, b) ASSERT_PRED_FORMAT2(KEEL_NOTED(CmpHelperLE), a, b)
#define ASSERT_NEAR(a, b, by) ASSERT_PRED_FORMAT3(KEEL_NOTED(CmpHelperEQ), a, b, by)
