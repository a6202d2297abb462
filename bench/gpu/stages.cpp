#include <fmt/format.h>
#include <torch/torch.h>

#include "cases.h"
#include "keel/affine.h"
#include "keel/layer_matrix.h"
#include "keel/moments.h"
#include "keel/running_average.h"
#include "keel/weight_backward.h"
#include "keel/whiten.h"

namespace keel::bench {
namespace {

constexpr std::int64_t kBatch = 128, kChannels = 64, kPositions = 32 * 32;
/// Inputs in turn, so that none is still in the cache when its turn comes again.
constexpr int kSets = 4;

template <typename T>
constexpr at::ScalarType kScalar = std::is_same_v<T, BFloat16> ? at::kBFloat16 : at::kFloat;

/// A layer's activations, kSets times, and all that lies between them.
template <typename T>
struct Layer {
  std::int64_t d, groups = kChannels / d;
  Order order;
  std::vector<torch::Tensor> x, slope, out;
  torch::Tensor mean, sum, values, weight, covariance, s, vectors, cross, gradient, matrix, rank,
      running_mean, running_matrix, count;

  Layer(std::int64_t size, Order given) : d(size), order(given) {
    const auto f32 = at::TensorOptions(at::kCUDA);
    const torch::Tensor mix = torch::randn({kChannels, kChannels}, f32) / 8;
    for (int k = 0; k < kSets; ++k) {
      const auto drawn = torch::randn({kBatch, kChannels, kPositions}, f32);
      const auto mixed = mix.matmul(drawn);
      const bool last = order == Order::channels_last;
      x.push_back((last ? mixed.transpose(1, 2) : mixed).contiguous().to(kScalar<T>));
      slope.push_back((last ? drawn.transpose(1, 2) : drawn).contiguous().to(kScalar<T>));
      out.push_back(torch::empty_like(x.back()));
    }
    for (auto* numbers : {&mean, &sum, &values, &weight, &running_mean})
      *numbers = torch::ones({kChannels}, f32);
    for (auto* small : {&covariance, &s, &vectors, &cross, &gradient, &matrix, &running_matrix})
      *small = torch::zeros({groups, d, d}, f32);
    rank = torch::zeros({groups}, f32.dtype(at::kLong));
    count = torch::zeros({1}, f32.dtype(at::kLong));
  }

  template <typename U>
  Activations<U> view(const torch::Tensor& t) const {
    return {static_cast<U*>(t.data_ptr()), kBatch, kChannels, kPositions, groups, order};
  }
  static float* numbers(const torch::Tensor& t) { return t.data_ptr<float>(); }
  Matrices<float> small(const torch::Tensor& t) const {
    return contiguous(t.data_ptr<float>(), groups, d);
  }
  LayerMatrixState<float> state() const {
    return {numbers(values), small(vectors), rank.data_ptr<std::int64_t>()};
  }

  void moments(int k, const Stream& stream) {
    cuda::moments<T>(view<const T>(x[k]), numbers(mean), small(covariance), stream);
  }
  void layer_matrix(int, const Stream& stream) {
    cuda::layer_matrix<float>(Zca{}, small(covariance), small(s), state(), stream);
  }
  void running_average(int, const Stream& stream) {
    cuda::running_average<float>(
        0.1, 1e-4, numbers(mean), small(covariance), small(s),
        {numbers(running_mean), small(running_matrix), nullptr, count.data_ptr<std::int64_t>()},
        stream);
  }
  void affine(int k, const Stream& stream) {
    cuda::affine<T>(small(s), numbers(mean), numbers(weight), view<const T>(x[k]), view<T>(out[k]),
                    stream);
  }
  void cross_moments(int k, const Stream& stream) {
    cuda::cross_moments<T>(view<const T>(slope[k]), view<const T>(x[k]), numbers(mean),
                           numbers(sum), small(cross), stream);
  }
  void weight_backward(int, const Stream& stream) {
    cuda::weight_backward<float>(numbers(weight), small(s), numbers(sum), small(cross),
                                 numbers(values), numbers(running_mean), small(gradient),
                                 small(matrix), stream);
  }
  void layer_matrix_backward(int, const Stream& stream) {
    cuda::layer_matrix_backward<float>(Zca{}, Exact{}, small(covariance), state(), small(cross),
                                       small(gradient), stream);
  }
  void affine_backward(int k, const Stream& stream) {
    cuda::affine_backward<T>(small(s), view<const T>(slope[k]), small(gradient), numbers(sum),
                             view<const T>(x[k]), numbers(mean), view<T>(out[k]), stream);
  }

  WhitenState<float> whole() const { return {numbers(mean), small(covariance), small(s), state()}; }
  void whiten(int k, const Stream& stream) {
    cuda::whiten<T>(Zca{}, view<const T>(x[k]), numbers(weight), numbers(sum), whole(),
                    view<T>(out[k]), stream);
  }
  void whiten_backward(int k, const Stream& stream) {
    cuda::whiten_backward<T>(Zca{}, Exact{}, view<const T>(slope[k]), view<const T>(x[k]),
                             numbers(weight), whole(), view<T>(out[k]), numbers(running_mean),
                             numbers(sum), stream);
  }
};

template <typename T>
void measure(Record& record, const std::string& label, std::int64_t d, Order order) {
  using Stage = void (Layer<T>::*)(int, const Stream&);
  struct Named {
    const char* name;
    Stage run;
    int passes;  ///< over the activations
  };
  const Named stages[] = {{"moments", &Layer<T>::moments, 1},
                          {"layer_matrix", &Layer<T>::layer_matrix, 0},
                          {"running_average", &Layer<T>::running_average, 0},
                          {"affine", &Layer<T>::affine, 2},
                          {"cross_moments", &Layer<T>::cross_moments, 2},
                          {"layer_matrix_backward", &Layer<T>::layer_matrix_backward, 0},
                          {"affine_backward", &Layer<T>::affine_backward, 3},
                          {"weight_backward", &Layer<T>::weight_backward, 0}};
  /// A layer's forward and backward as it calls them, the stages fused.
  const Named ways[] = {{"whiten", &Layer<T>::whiten, 3},
                        {"whiten_backward", &Layer<T>::whiten_backward, 5}};
  Layer<T> layer(d, order);
  const Stream stream = current_stream();
  const auto measure_one = [&](const Named& stage) {
    // The first call is the one that counts for the stages after it: they need something to work on.
    (layer.*stage.run)(0, stream);
    const double time =
        back_to_back(3 * kSets, [&](int k) { (layer.*stage.run)(k % kSets, stream); });
    const double bytes = double(stage.passes) * double(layer.x[0].nbytes());
    record.add(fmt::format("stage/{}/{}/d={}", stage.name, label, d), {{"keel", time}},
               stage.passes == 0
                   ? ""
                   : fmt::format("{:.1f} MB, {:.2f} TB/s", bytes / 1e6, bytes / time / 1e6));
    return time;
  };
  double sum = 0;
  for (const Named& stage : stages) sum += measure_one(stage);
  record.add(fmt::format("stage/sum of all/{}/d={}", label, d), {{"keel", sum}});
  for (const Named& way : ways) measure_one(way);
}

}  // namespace

void measure_stages(Record& record) {
  record.section("stages of a layer on (128, 64, 32, 32), us, one call behind another");
  for (const std::int64_t d : {64, 16, 4}) measure<float>(record, "float32", d, Order::contiguous);
  for (const std::int64_t d : {64, 16}) {
    measure<float>(record, "float32 channels_last", d, Order::channels_last);
    measure<BFloat16>(record, "bfloat16 channels_last", d, Order::channels_last);
  }
  record.write();
}

}  // namespace keel::bench
