// Compares the end of a training step in the lab's own kernels with the same step in torch's operators. Also tests
// bfloat16 weights, on any device.

#include "lab/train/fused_step.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "lab/models/resnet.h"
#include "lab/tests/train/support.h"
#include "lab/train/flat_parameters.h"
#include "lab/train/graph.h"
#include "lab/train/step.h"

namespace keel::lab {
namespace {

using test::Recorder;
using torch::Tensor;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A network's gradients in one pass, with weights narrowed by autocast or all at once.
Tensor gradients_of(torch::Device device, bool channels_last, bool at_once) {
  torch::manual_seed(4);
  ResNet model(ModelOptions{.name = "resnet_small", .classes = 4, .width = 8});
  model->to(device);
  FlatParameters flat(*model, channels_last);
  const Tensor images = torch::randn({8, 3, 8, 8})
                            .to(device)
                            .contiguous(channels_last ? at::MemoryFormat::ChannelsLast
                                                      : at::MemoryFormat::Contiguous);
  Tensor logits;
  {
    const Autocast autocast(device, true);
    std::optional<FlatParameters::Bfloat16Weights> weights;
    if (at_once) {
      flat.update_bfloat16();
      weights.emplace(flat, *model);
    }
    logits = model->forward(images);
  }
  for (const Tensor& parameter : model->parameters())
    EXPECT_EQ(parameter.scalar_type(), torch::kFloat);
  for (const auto& module : model->modules())  // restored
    if (const auto* convolution = module->as<torch::nn::Conv2d>()) {
      EXPECT_EQ(convolution->weight.scalar_type(), torch::kFloat);
    }
  logits.to(torch::kFloat).square().mean().backward();
  flat.gather_gradients();
  for (const Tensor& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
  return flat.gradients;
}

TEST(Bfloat16Weights, GradientsAreThoseOfAutocast) {
  if (!bfloat16_fault().empty()) GTEST_SKIP() << bfloat16_fault();
  for (const bool channels_last : {false, true}) {
    const Tensor one = gradients_of(torch::kCPU, channels_last, false),
                 other = gradients_of(torch::kCPU, channels_last, true);
    EXPECT_GT(one.abs().max().item<double>(), 0);
    EXPECT_TRUE(one.equal(other));
  }
}

TEST(Bfloat16Weights, FollowTheValues) {
  ResNet model(ModelOptions{.name = "resnet_small", .classes = 4, .width = 8});
  FlatParameters flat(*model, /*channels_last=*/true);
  const Tensor* weight = &model->first_convolution()->weight;
  for (const double value : {1.0, 0.3}) {
    {
      const torch::NoGradGuard no_grad;
      weight->fill_(value);  // as loading a checkpoint does
    }
    flat.update_bfloat16();
    const FlatParameters::Bfloat16Weights narrow(flat, *model);
    const Tensor& inside = model->first_convolution()->weight;
    EXPECT_EQ(inside.scalar_type(), torch::kBFloat16);
    EXPECT_TRUE(inside.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(inside.detach().equal(torch::full_like(inside, value)));
  }
}

class FusedStepTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
    if (!has_fused_step()) GTEST_SKIP() << "a build without the lab's CUDA kernels";
    torch::manual_seed(3);
  }

  static torch::TensorOptions floats() { return torch::dtype(torch::kFloat).device(torch::kCUDA); }
};

TEST_F(FusedStepTest, DescendsToTheBitsOfTorchsOperators) {
  torch::manual_seed(6);
  torch::nn::Linear one(313, 41), other(313, 41);
  one->to(torch::kCUDA), other->to(torch::kCUDA);
  FlatParameters ours(*one, false), theirs(*other, false);
  theirs.values.copy_(ours.values);
  ours.update_bfloat16();
  const Tensor rate = torch::zeros({}, floats()),
               halted = torch::zeros({}, floats().dtype(torch::kBool));
  for (const double decay : {5e-4, 0.0})
    for (int step = 0; step < 10; ++step) {
      rate.fill_(0.1 / (1 + step));
      ours.gradients.normal_();
      theirs.gradients.copy_(ours.gradients);
      fused_descend({ours.values, ours.gradients, ours.momenta, ours.bfloat16_values}, rate, 0.9,
                    decay);
      descend(theirs, rate, halted, 0.9, decay);
      EXPECT_TRUE(ours.momenta.equal(theirs.momenta)) << decay << " " << step;
      EXPECT_TRUE(ours.values.equal(theirs.values)) << decay << " " << step;
      EXPECT_TRUE(ours.bfloat16_values.equal(ours.values.to(torch::kBFloat16)));
    }
}

TEST_F(FusedStepTest, NoRateKeepsEveryBitWhateverTheGradient) {
  const Tensor values = torch::randn({1001}, floats()), momenta = torch::randn({1001}, floats()),
               gradients = torch::full({1001}, kNaN, floats());
  const Tensor before = values.clone(), before_momenta = momenta.clone();
  fused_descend({values, gradients, momenta, {}}, torch::full({}, kNaN, floats()), 0.9, 5e-4);
  EXPECT_TRUE(values.equal(before));
  EXPECT_TRUE(momenta.equal(before_momenta));
}

TEST_F(FusedStepTest, GathersPiecesOfEitherTypeInOrder) {
  std::vector<GradientPiece> pieces;
  std::vector<Tensor> wide;
  std::int64_t size = 0;
  for (std::int64_t i = 0; i < 203; ++i) {  // more than a launch takes
    const std::int64_t length = i % 7 == 0 ? 0 : i % 5 == 0 ? 9000 + i : 1 + i * 3;
    const auto type = i % 2 ? torch::kBFloat16 : torch::kFloat;
    pieces.push_back({torch::randn({length}, floats()).to(type), size});
    wide.push_back(pieces.back().numbers.to(torch::kFloat));
    size += length;
  }
  const Tensor gradients = torch::full({size}, kNaN, floats());
  const Tensor flag = torch::zeros({1}, floats().dtype(torch::kInt));
  fused_gather(pieces, gradients, flag);
  EXPECT_TRUE(gradients.equal(torch::cat(wide)));
  EXPECT_EQ(flag.item<int>(), 0);
  for (const double bad : {kNaN, kInfinity, -kInfinity})
    for (const std::size_t where : {std::size_t(1), std::size_t(50), std::size_t(202)}) {
      const Tensor kept = pieces[where].numbers.clone();
      pieces[where].numbers[-1] = bad;
      fused_gather(pieces, gradients, flag);
      EXPECT_EQ(flag.item<int>(), 1) << bad << " " << where;
      flag.zero_();
      pieces[where].numbers.copy_(kept);
    }
}

TrainOptions options_of(const std::string& norm, const char* precision) {
  TrainOptions options = test::small_options(norm);
  options.model.width = 8;
  options.epochs = 2;
  options.device = "cuda";
  options.deterministic = true;
  options.precision = precision;
  options.channels_last = true;
  options.fused = true;
  return options;
}

/// Compares the losses of the first steps with and without the lab's kernels.
void expect_same_training(const std::string& norm, const char* precision, const char* where) {
  TrainOptions fused = options_of(norm, precision);
  fused.model.where = where;
  fused.model.norm.group_size = 4;
  fused.max_steps = 4;
  TrainOptions plain = fused;
  plain.fused = false;
  Recorder one, other;
  EXPECT_EQ(train(fused, test::small_data(), one).status, "finished");
  EXPECT_EQ(train(plain, test::small_data(), other).status, "finished");
  ASSERT_EQ(one.steps.size(), other.steps.size());
  // bfloat16 activations have 8 bits, and the loss has that precision. The drift grows with the steps.
  const double unit = std::string(precision) == "bfloat16" ? 0x1p-7 : 1e-4;
  for (std::size_t i = 0; i < one.steps.size(); ++i)
    EXPECT_NEAR(one.steps[i].loss, other.steps[i].loss, unit * double(i + 1) * other.steps[i].loss)
        << norm << " " << precision << " " << where << " " << i;
}

// BatchNorm beside a layer under test is fused, also with a whitening layer's output as its residual.
TEST_F(FusedStepTest, TrainsAsTheStepOfTorchsOperatorsDoes) {
  for (const char* precision : {"float32", "bfloat16"}) {
    expect_same_training("batch", precision, "first");
    for (const char* norm : {"zca", "pca"})
      for (const char* where :
           {"first", "all", "layer1.0.bn2,layer2.0.bn1", "layer2.0.downsample.1"})
        expect_same_training(norm, precision, where);
  }
}

TEST_F(FusedStepTest, TrainsToTheSameBitsEachTime) {
  const TrainOptions options = options_of("batch", "bfloat16");
  Recorder one, other;
  train(options, test::small_data(), one);
  train(options, test::small_data(), other);
  test::expect_same_steps(one, other, "again");
  EXPECT_EQ(one.epochs.back().test_loss, other.epochs.back().test_loss);
}

TEST_F(FusedStepTest, ACapturedStepIsThePlainOne) {
  const torch::Device device(torch::kCUDA);
  const DeviceScope scope(device);
  const DataSet data = test::small_data();
  for (const char* precision : {"float32", "bfloat16"}) {
    TrainOptions options = options_of("zca", precision);
    const Precision settings(options, device);
    const Images images = data.train.to(device);
    const auto parameters_after = [&](int steps, bool graph, bool looks) {
      options.graph = graph;
      torch::manual_seed(options.seed);
      ResNet model(options.model);
      model->to(device);
      TrainingStep training(model, images, augment_options(data, 1), options, device);
      training.start_epoch(0);
      for (int step = 0; step < steps; ++step) {
        training.run(step % training.batches(), 0.1 / (1 + step));
        if (looks) training.read();
      }
      return training.parameters().values.clone();
    };
    const Tensor before = parameters_after(0, false, false);
    for (const int steps : {1, 3, 9}) {
      const Tensor expected = parameters_after(steps, false, true);
      EXPECT_FALSE(expected.equal(before));
      for (const bool looks : {false, true})
        EXPECT_TRUE(parameters_after(steps, true, looks).equal(expected))
            << precision << " " << steps << " " << looks;
    }
  }
}

TEST_F(FusedStepTest, ACapturedStepSeesParametersThatWereChangedOutside) {
  const torch::Device device(torch::kCUDA);
  const DeviceScope scope(device);
  const DataSet data = test::small_data();
  const TrainOptions options = options_of("batch", "bfloat16");
  const Precision settings(options, device);
  ResNet model(options.model);
  model->to(device);
  TrainingStep training(model, data.train.to(device), augment_options(data, 1), options, device);
  training.start_epoch(0);
  for (int step = 0; step < 6; ++step) training.run(step % training.batches(), 0.1);
  EXPECT_EQ(training.read().good_steps, 6);
  training.parameters().values.fill_(kNaN);
  training.run(0, 0.1);
  EXPECT_EQ(training.read().good_steps, 6);
}

TEST_F(FusedStepTest, ACheckpointOfEitherKindIsResumedByTheOther) {
  for (const bool first : {true, false}) {
    const test::TemporaryFolder folder;
    TrainOptions options = options_of("batch", "bfloat16");
    options.run = folder.path();
    options.fused = first;
    test::Interrupter interrupter(5);
    EXPECT_EQ(train(options, test::small_data(), interrupter).status, "interrupted");
    options.resume = true;
    options.fused = !first;
    Recorder told;
    EXPECT_EQ(train(options, test::small_data(), told).status, "finished");
    EXPECT_EQ(told.info.first_step, 5);
  }
}

}  // namespace
}  // namespace keel::lab
