// keel/whiten.h: the reference against finite differences, the CPU against its stages and against the reference, and
// several processes against one with all their samples.

#include "keel/whiten.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "keel/affine.h"
#include "keel/moments.h"
#include "keel/weight_backward.h"
#include "support/affine.h"
#include "support/batch.h"
#include "support/errors.h"
#include "support/finite_differences.h"
#include "support/layer.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

const LayerMap kLayerMaps[] = {Zca{1e-2}, PcaDenoising{1e-2, LeadingCount{2}}, PcaWhitening{1e-2}};
const ActivationShape kLayerShapes[] = {
    {4, 12, 25, 3}, {40, 5, 1, 1}, {3, 64, 67, 4}, {2, 16, 64, 16}};

template <typename T>
LayerOnHost<T> random_layer(const ActivationShape& shape, Order order, double mean = 1) {
  return {converted<T>(random_activations(shape, 41, mean), order),
          converted<T>(random_activations(shape, 42, 0), order)};
}

/// Runs a layer's whole step with the reference, on the numbers of another layer.
template <typename T>
LayerOnHost<double> by_reference(const LayerOnHost<T>& given, const LayerMap& map,
                                 const SpectralRule& rule = Exact{}) {
  LayerOnHost<double> layer(converted<double>(given.input, given.input.order),
                            converted<double>(given.dL_doutput, given.input.order));
  layer.weight = as<double>(given.weight);
  layer.bias = as<double>(given.bias);
  reference::whiten(map, layer.input.view(), layer.weight.data(), layer.bias.data(), layer.state(),
                    layer.output.view());
  reference::whiten_backward(map, rule, layer.dL_doutput.view(), layer.input.view(),
                             layer.weight.data(), layer.state(), layer.dL_dinput.view(),
                             layer.dL_dweight.data(), layer.dL_dbias.data());
  return layer;
}

/// How much rounding is amplified in a layer's result, through the gaps it divides by.
double sensitivity(const LayerOnHost<double>& layer) {
  const std::int64_t d = layer.shape.group_size();
  double smallest = 1;
  for (std::int64_t c = 0; c < layer.shape.channels; ++c) {
    const double here = layer.values[std::size_t(c)],
                 next = c % d + 1 < d ? layer.values[std::size_t(c) + 1] : 0;
    smallest = std::min(smallest, (here - next) / layer.values[std::size_t(c / d * d)]);
  }
  return 1 / smallest;
}

template <typename U>
double largest_of(const std::vector<U>& numbers) {
  double size = 0;
  for (const U& x : numbers) size = larger(size, std::abs(to_double(x)));
  return size;
}

/// Compares number by number, within `sloppiness` roundings of the largest and the rounding of the stored type.
template <typename T, typename U>
void expect_numbers(const char* what, const std::vector<U>& got, const std::vector<double>& truth,
                    double sloppiness) {
  ASSERT_EQ(got.size(), truth.size()) << what;
  const double error = sloppiness * kEps<Accumulator<T>> * largest_of(truth);
  for (std::size_t k = 0; k < got.size(); ++k)
    ASSERT_NEAR(to_double(got[k]), truth[k], error + storage_error<U>(std::abs(truth[k]) + error))
        << what << " " << k;
}

/// Compares output and gradients with the truth.
template <typename T>
void expect_step(const LayerOnHost<T>& got, const LayerOnHost<double>& truth) {
  // The rounding of means is relative to their own size.
  const double d = double(truth.shape.group_size()),
               sloppiness = 4 * (d + largest_of(truth.mean)) * sensitivity(truth);
  EXPECT_EQ(got.rank, truth.rank);
  expect_numbers<T>("output", got.output.data, truth.output.data, sloppiness);
  expect_numbers<T>("dL_dinput", got.dL_dinput.data, truth.dL_dinput.data, sloppiness);
  expect_numbers<T>("dL_dweight", got.dL_dweight, truth.dL_dweight, sloppiness);
  expect_numbers<T>("dL_dbias", got.dL_dbias, truth.dL_dbias, 16);
}

template <typename T>
class WhitenOf : public ::testing::Test {};
TYPED_TEST_SUITE(WhitenOf, ElementTypes);

TEST(Whiten, TheReferencesBackwardIsTheDerivative) {
  for (const Order order : kOrders)
    for (const LayerMap& map : kLayerMaps) {
      SCOPED_TRACE(to_string(map));
      auto layer = random_layer<double>({3, 6, 5, 2}, order);
      // For distinct eigenvalues, dropped ones included, only this rule is the derivative.
      const auto truth = by_reference(layer, map, Analytic{});
      const auto expect_slope = [&](double& at, double expected) {
        const double here = at, step = 1e-3;
        const auto loss = [&](double offset) {
          at = here + offset;
          const auto moved = by_reference(layer, map);
          at = here;
          double sum = 0;
          for (std::size_t k = 0; k < moved.output.data.size(); ++k)
            sum += moved.output.data[k] * layer.dL_doutput.data[k];
          return sum;
        };
        EXPECT_NEAR(expected, central_difference(loss, step),
                    by_differences(10 * sensitivity(truth)));
      };
      for (std::size_t k = 0; k < layer.input.data.size(); k += 7)
        expect_slope(layer.input.data[k], truth.dL_dinput.data[k]);
      for (std::size_t c = 0; c < 6; ++c) {
        expect_slope(layer.weight[c], truth.dL_dweight[c]);
        expect_slope(layer.bias[c], truth.dL_dbias[c]);
      }
    }
}

TYPED_TEST(WhitenOf, MatchesReference) {
  for (const ActivationShape& shape : kLayerShapes)
    for (const Order order : kOrders)
      for (const LayerMap& map : kLayerMaps)
        for (const SpectralRule& rule : {SpectralRule(Exact{}), SpectralRule(Taylor{})}) {
          SCOPED_TRACE(name(shape, order) + " " + to_string(map) + " " + to_string(rule));
          auto layer = random_layer<TypeParam>(shape, order);
          layer.forward(map);
          layer.backward(map, rule);
          expect_step(layer, by_reference(layer, map, rule));
        }
}

TYPED_TEST(WhitenOf, IsItsStages) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const ActivationShape& shape : kLayerShapes)
    for (const Order order : kOrders)
      for (const LayerMap& map : kLayerMaps) {
        SCOPED_TRACE(name(shape, order) + " " + to_string(map));
        auto whole = random_layer<T>(shape, order), parts = whole;
        whole.forward(map);
        whole.backward(map, Exact{});
        const auto x = std::as_const(parts.input).view(),
                   slope = std::as_const(parts.dL_doutput).view();
        std::vector<A> cross(parts.covariance), dL_dlayer_matrix(cross), dL_dcovariance(cross),
            matrix(cross), dL_dmean(parts.mean);
        cpu::moments<T>(x, parts.mean.data(), parts.per_group(parts.covariance));
        cpu::layer_matrix<A>(map, parts.per_group(parts.covariance),
                             parts.per_group(parts.layer_matrix), parts.state().spectrum);
        cpu::cross_moments<T>(slope, x, parts.mean.data(), parts.dL_dbias.data(),
                              parts.per_group(cross));
        cpu::weight_backward<A>(parts.weight.data(), parts.per_group(parts.layer_matrix),
                                parts.dL_dbias.data(), parts.per_group(cross),
                                parts.dL_dweight.data(), dL_dmean.data(),
                                parts.per_group(dL_dlayer_matrix), parts.per_group(matrix));
        cpu::affine<T>(parts.per_group(matrix), parts.mean.data(), parts.bias.data(), x,
                       parts.output.view());
        cpu::layer_matrix_backward<A>(map, Exact{}, parts.per_group(parts.covariance),
                                      parts.state().spectrum, parts.per_group(dL_dlayer_matrix),
                                      parts.per_group(dL_dcovariance));
        cpu::affine_backward<T>(parts.per_group(matrix), slope, parts.per_group(dL_dcovariance),
                                dL_dmean.data(), x, parts.mean.data(), parts.dL_dinput.view());
        EXPECT_TRUE(bitwise_equal(whole.output.data, parts.output.data));
        EXPECT_TRUE(bitwise_equal(whole.dL_dinput.data, parts.dL_dinput.data));
        for (const auto numbers :
             {&LayerOnHost<T>::mean, &LayerOnHost<T>::covariance, &LayerOnHost<T>::layer_matrix,
              &LayerOnHost<T>::values, &LayerOnHost<T>::vectors, &LayerOnHost<T>::dL_dweight,
              &LayerOnHost<T>::dL_dbias})
          EXPECT_TRUE(bitwise_equal(whole.*numbers, parts.*numbers));
      }
}

template <typename Number>
void add(std::vector<Number>& into, const std::vector<Number>& from) {
  into.resize(from.size());
  for (std::size_t k = 0; k < from.size(); ++k) into[k] += from[k];
}

/// The combined step of one layer whose batch is split over processes with these numbers of rows.
template <typename T>
LayerOnHost<T> over_processes(LayerOnHost<T> whole, const std::vector<std::int64_t>& shares,
                              const LayerMap& map, const double* shift) {
  using A = Accumulator<T>;
  const ActivationShape& shape = whole.shape;
  std::vector<LayerOnHost<T>> processes;
  std::int64_t first = 0;
  for (const std::int64_t share : shares) {
    processes.emplace_back(rows(whole.input, first, share), rows(whole.dL_doutput, first, share));
    first += share;
  }
  std::vector<double> moments;
  for (auto& one : processes) {
    std::vector<double> own(std::size_t(partial_moments_size(shape.channels, shape.groups)));
    cpu::partial_moments<T>(std::as_const(one.input).view(), shift, own.data());
    add(moments, own);
  }
  std::vector<A> sums;
  whole.output.data.clear(), whole.dL_dinput.data.clear();
  whole.dL_dweight.assign(whole.dL_dweight.size(), 0);
  whole.dL_dbias.assign(whole.dL_dbias.size(), 0);
  for (auto& one : processes) {
    cpu::whiten_apply<T>(map, std::as_const(one.input).view(), moments.data(), shift,
                         one.weight.data(), one.bias.data(), one.state(), one.output.view());
    std::vector<A> own(one.mean.size() + one.covariance.size());
    cpu::whiten_backward_sums<T>(std::as_const(one.dL_doutput).view(),
                                 std::as_const(one.input).view(), one.state(), own.data(),
                                 one.dL_dweight.data(), one.dL_dbias.data());
    add(sums, own);
    add(whole.dL_dweight, one.dL_dweight);
    add(whole.dL_dbias, one.dL_dbias);
    EXPECT_TRUE(bitwise_equal(one.covariance, processes[0].covariance));
    EXPECT_TRUE(bitwise_equal(one.vectors, processes[0].vectors));
    EXPECT_TRUE(bitwise_equal(one.layer_matrix, processes[0].layer_matrix));
  }
  whole.rank = processes[0].rank;
  for (auto& one : processes) {
    cpu::whiten_backward_apply<T>(map, Exact{}, std::as_const(one.dL_doutput).view(),
                                  std::as_const(one.input).view(), one.weight.data(), one.state(),
                                  sums.data(), moments.data(), one.dL_dinput.view());
    for (const auto activations : {&LayerOnHost<T>::output, &LayerOnHost<T>::dL_dinput}) {
      const auto& from = (one.*activations).data;
      auto& to = (whole.*activations).data;
      to.insert(to.end(), from.begin(), from.end());
    }
  }
  return whole;
}

TYPED_TEST(WhitenOf, SeveralProcessesAreOneWithAllTheirSamples) {
  for (const std::vector<std::int64_t>& shares :
       std::vector<std::vector<std::int64_t>>{{9}, {5, 4}, {0, 7, 2}, {1, 1, 0, 7}})
    for (const Order order : kOrders)
      for (const LayerMap& map : kLayerMaps)
        for (const double mean : {1.0, 1e3}) {
          if (mean > 1 && sizeof(TypeParam) == 2) continue;  // there it leaves no digits to compare
          SCOPED_TRACE(to_string(map) + ", means of " + std::to_string(mean));
          const auto layer = random_layer<TypeParam>({9, 8, 15, 2}, order, mean);
          const auto truth = by_reference(layer, map);
          expect_step(over_processes(layer, shares, map, truth.mean.data()), truth);
          // Sums about zero are as good if float64 has digits to spare.
          if (mean == 1 || sizeof(TypeParam) < 8)
            expect_step(over_processes(layer, shares, map, nullptr), truth);
        }
}

TEST(Whiten, WithoutAWeightAndABiasTheyAreOneAndZero) {
  auto with = random_layer<float>({4, 12, 25, 3}, Order::contiguous), without = with;
  with.weight.assign(12, 1.0f);
  with.bias.assign(12, 0.0f);
  with.forward(Zca{});
  with.backward(Zca{}, Exact{});
  const auto x = std::as_const(without.input).view();
  int asked = 0;
  cpu::whiten<float>(Zca{}, x, nullptr, nullptr, without.state(), [&] {
    ++asked;
    return without.output.view();
  });
  EXPECT_EQ(asked, 1);
  cpu::whiten_backward<float>(Zca{}, Exact{}, std::as_const(without.dL_doutput).view(), x, nullptr,
                              without.state(), without.dL_dinput.view(), without.dL_dweight.data(),
                              without.dL_dbias.data());
  EXPECT_TRUE(bitwise_equal(with.output.data, without.output.data));
  EXPECT_TRUE(bitwise_equal(with.dL_dinput.data, without.dL_dinput.data));
  EXPECT_TRUE(bitwise_equal(with.dL_dweight, without.dL_dweight));
}

TEST(Whiten, TheSameBitsOnAnyNumberOfThreadsAndNaNStaysInItsGroup) {
  for (const Order order : kOrders)
    for (const LayerMap& map : kLayerMaps) {
      auto clean = random_layer<float>({8, 64, 300, 4}, order), bad = clean;
      clean.forward(map);
      clean.backward(map, Exact{});
      bad.input.at(5, 17) = std::numeric_limits<float>::quiet_NaN();
      bad.forward(map, threads(3));
      bad.backward(map, Exact{}, threads(3));
      for (std::int64_t k = 0; k < clean.shape.samples(); ++k)
        for (std::int64_t c = 0; c < 64; ++c)
          for (const auto activations :
               {&LayerOnHost<float>::output, &LayerOnHost<float>::dL_dinput}) {
            const float found = (bad.*activations).at(k, c);
            if (c / 16 == 1)
              ASSERT_TRUE(std::isnan(found));
            else
              ASSERT_EQ(found, (clean.*activations).at(k, c));
          }
    }
}

TEST(Whiten, NothingToDoAndErrors) {
  for (const ActivationShape& shape : {ActivationShape{0, 4, 5, 2}, {3, 4, 0, 1}, {3, 0, 5, 1}}) {
    auto layer = random_layer<float>(shape, Order::contiguous);
    layer.forward(Zca{});
    layer.backward(Zca{}, Exact{});
    for (const float entry : layer.mean) EXPECT_TRUE(std::isnan(entry));
    for (const float entry : layer.dL_dbias) EXPECT_EQ(entry, 0);
  }
  auto layer = random_layer<float>({2, 8, 5, 2}, Order::contiguous);
  const auto x = std::as_const(layer.input).view();
  WhitenState<float> state = layer.state();
  state.layer_matrix = contiguous(layer.layer_matrix.data(), 1, 8);
  EXPECT_TRUE(
      refuses({"keel::whiten: expected layer_matrix of shape (2, 4, 4), got (1, 8, 8)"},
              [&] { cpu::whiten<float>(Zca{}, x, nullptr, nullptr, state, layer.output.view()); }));
  Activations<const float> other = x;
  other.order = Order::channels_last;
  EXPECT_TRUE(refuses({"keel::whiten_backward_sums: expected dL_doutput", "channels_last"}, [&] {
    cpu::whiten_backward_sums<float>(other, x, layer.state(), nullptr, nullptr, nullptr);
  }));
}

}  // namespace
}  // namespace keel::testing
