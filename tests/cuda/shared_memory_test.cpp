// The shared memory of a GPU's blocks decides which kernels a stage uses. All tests here also run with the limits of
// smaller GPUs (KEEL_SHARED_MEMORY_KB). A stage that takes too much memory then throws.

#include "cuda/launch/card.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "support/errors.h"

namespace keel::cuda {
namespace {

TEST(CudaSharedMemory, IsTheCardsOrTheLimitOfTheEnvironment) {
  const int bytes = shared_memory_of_a_block();
  EXPECT_GE(bytes, 48 << 10);
  int device = 0, most = 0;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
            cudaSuccess);
  const char* const limit = std::getenv("KEEL_SHARED_MEMORY_KB");
  EXPECT_EQ(bytes, limit == nullptr ? most : std::min(most, std::atoi(limit) << 10));
}

TEST(CudaSharedMemory, MoreThanTheCardHasIsAnErrorThatSaysHowMuch) {
  EXPECT_TRUE(testing::refuses({"keel::cuda::some_stage: expected a GPU whose blocks can have",
                                "have " + std::to_string(shared_memory_of_a_block() >> 10)},
                               [&] {
                                 allow_shared_memory("keel::cuda::some_stage",
                                                     static_cast<const void*>(nullptr),
                                                     shared_memory_of_a_block() + 1024);
                               }));
}

}  // namespace
}  // namespace keel::cuda
