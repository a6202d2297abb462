#include <fmt/format.h>

#include <random>
#include <vector>

#include "add.h"
#include "cases.h"
#include "keel/affine.h"
#include "keel/layer_matrix.h"
#include "keel/moments.h"
#include "torch_threads.h"

namespace keel::bench {
namespace {

constexpr std::int64_t kPositions = kSide * kSide;

/// A layer's input, the gradient of its output, and all that lies between them.
struct Layer {
  std::int64_t d, groups = kChannels / d;
  std::vector<float> x, dL_dy, out, mean, sum, values, covariance, s, vectors, cross, gradient;
  std::vector<std::int64_t> rank;

  explicit Layer(std::int64_t size) : d(size) {
    std::mt19937 generator(7);
    std::normal_distribution<float> normal;
    for (auto* activations : {&x, &dL_dy, &out}) {
      activations->resize(std::size_t(kBatch * kChannels * kPositions));
      for (float& entry : *activations) entry = normal(generator);
    }
    for (auto* numbers : {&mean, &sum, &values}) numbers->resize(std::size_t(kChannels));
    for (auto* small : {&covariance, &s, &vectors, &cross, &gradient})
      small->resize(std::size_t(kChannels * d));
    rank.resize(std::size_t(groups));
    moments();  // the later stages need something to work on
    layer_matrix();
    cross_moments();
    layer_matrix_backward();
  }

  template <typename T>
  Activations<T> view(std::vector<float>& numbers) const {
    return {numbers.data(), kBatch, kChannels, kPositions, groups, Order::contiguous};
  }
  Matrices<float> small(std::vector<float>& numbers) const {
    return contiguous(numbers.data(), groups, d);
  }
  LayerMatrixState<float> state() { return {values.data(), small(vectors), rank.data()}; }

  void moments() {
    cpu::moments<float>(view<const float>(x), mean.data(), small(covariance), on_torch_threads);
  }
  void layer_matrix() {
    cpu::layer_matrix<float>(Zca{}, small(covariance), small(s), state(), on_torch_threads);
  }
  void affine() {
    cpu::affine<float>(small(s), mean.data(), nullptr, view<const float>(x), view<float>(out),
                       on_torch_threads);
  }
  void cross_moments() {
    cpu::cross_moments<float>(view<const float>(dL_dy), view<const float>(x), mean.data(),
                              sum.data(), small(cross), on_torch_threads);
  }
  void layer_matrix_backward() {
    cpu::layer_matrix_backward<float>(Zca{}, Exact{}, small(covariance), state(), small(cross),
                                      small(gradient), on_torch_threads);
  }
  void affine_backward() {
    cpu::affine_backward<float>(small(s), view<const float>(dL_dy), small(gradient), sum.data(),
                                view<const float>(x), mean.data(), view<float>(out),
                                on_torch_threads);
  }
};

}  // namespace

void register_stages() {
  using Stage = void (Layer::*)();
  const std::pair<const char*, Stage> stages[] = {
      {"moments", &Layer::moments},
      {"layer_matrix", &Layer::layer_matrix},
      {"affine", &Layer::affine},
      {"cross_moments", &Layer::cross_moments},
      {"layer_matrix_backward", &Layer::layer_matrix_backward},
      {"affine_backward", &Layer::affine_backward},
  };
  for (const auto& [name, stage] : stages)
    add(fmt::format("stage {}/n=64/batch={}/keel", name, kBatch),
        [stage = stage](benchmark::State& state) {
          Layer layer(64);
          for (auto _ : state) (layer.*stage)();
        });
}

}  // namespace keel::bench
