#pragma once

// CUDA threads that share a matrix, simulated on the host: by one thread, or by as many as a block has, with the warp
// sums and barriers of a block.

#include <barrier>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

namespace keel::testing {

/// ALL_HELD: whether it can hold every column.
template <bool ALL_HELD>
struct TeamOfOne {
  static constexpr int kLanes = 1, kHeld = ALL_HELD ? 40 : 4;
  static constexpr bool kAllHeld = ALL_HELD;
  static constexpr int kTiles = 512;
  static int thread() { return 0; }
  static int size() { return 1; }
  static int lane() { return 0; }
  static int lanes() { return 1; }
  static int group() { return 0; }
  static int groups() { return 1; }
  static void sync() {}
  static void step() {}
  static void fetch(const void*) {}
  static bool all(bool flag) { return flag; }
  static bool any(bool flag) { return flag; }
  static bool any_in_step(bool flag) { return flag; }
  template <typename T>
  static T sum(T x) {
    return x;
  }
  template <typename T>
  static T product(T x) {
    return x;
  }
  template <typename T>
  static T largest(T x) {
    return x;
  }
  template <typename T, int COUNT>
  static void total(T (&)[COUNT]) {}
  static int count(bool flag) { return flag ? 1 : 0; }
};

/// The shared state of a block's threads.
struct BlockOnHost {
  struct Warp {
    std::barrier<> meeting{32};
    double number[32] = {};
  };
  explicit BlockOnHost(int size)
      : meeting(size), flag(std::size_t(size), 0), number(std::size_t(size), 0) {
    for (int w = 0; w < size / 32; ++w) warps.push_back(std::make_unique<Warp>());
  }
  std::barrier<> meeting;
  std::vector<char> flag;
  std::vector<double> number;
  std::vector<std::unique_ptr<Warp>> warps;
};

template <int LANES, int HELD>
struct ThreadOnHost {
  static constexpr int kLanes = LANES, kHeld = HELD;
  static constexpr bool kAllHeld = false;
  static constexpr int kTiles = 1;
  BlockOnHost* block;
  int at;

  int thread() const { return at; }
  int size() const { return int(block->flag.size()); }
  int lane() const { return at % LANES; }
  int group() const { return at / LANES; }
  int groups() const { return size() / LANES; }
  void sync() const { block->meeting.arrive_and_wait(); }
  static void fetch(const void*) {}
  void step() const { warp().meeting.arrive_and_wait(); }
  bool any(bool mine) const {
    block->flag[std::size_t(at)] = char(mine);
    sync();
    bool all = false;
    for (const char each : block->flag) all = all || each != 0;
    sync();
    return all;
  }
  bool any_in_step(bool mine) const {
    double sum = mine ? 1 : 0;
    for (int distance = 1; distance < 32; distance *= 2) sum += near(sum, distance);
    return sum > 0;
  }
  template <typename T, int COUNT>
  void total(T (&x)[COUNT]) const {
    for (T& own : x) {
      block->number[std::size_t(at)] = double(own);
      sync();
      own = 0;
      for (const double each : block->number) own += T(each);
      sync();
    }
  }
  int count(bool mine) const {
    int sum[1] = {mine ? 1 : 0};
    total(sum);
    return sum[0];
  }
  template <typename T>
  T sum(T x) const {
    for (int distance = 1; distance < LANES; distance *= 2) x += T(near(double(x), distance));
    return x;
  }
  template <typename T>
  T largest(T x) const {
    for (int distance = 1; distance < LANES; distance *= 2)
      x = std::fmax(x, T(near(double(x), distance)));
    return x;
  }

 private:
  BlockOnHost::Warp& warp() const { return *block->warps[std::size_t(at / 32)]; }
  /// __shfl_xor_sync
  double near(double x, int distance) const {
    warp().number[at % 32] = x;
    step();
    const double other = warp().number[at % 32 ^ distance];
    step();
    return other;
  }
};

/// Runs body(thread) for `threads` threads at once.
template <typename Team, typename Body>
void on_a_block(int threads, const Body& body) {
  BlockOnHost block(threads);
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) all.emplace_back([&body, &block, t] { body(Team{&block, t}); });
  for (std::thread& each : all) each.join();
}

}  // namespace keel::testing
