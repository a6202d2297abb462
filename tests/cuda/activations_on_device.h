#pragma once

// Activations on the device, and shapes that are difficult for its kernels.

#include "on_device.h"
#include "support/backend.h"

namespace keel::testing {

template <typename T>
using ActivationsOnDevice = ActivationsIn<OnDevice, T>;

/// The shapes of the CPU's tests; also full and half-full slabs (with groups of any size that fits), padded groups,
/// groups of several parts, tiles of many images and images of many tiles, several chunks.
inline std::vector<ActivationShape> device_shapes() {
  std::vector<ActivationShape> shapes = activation_shapes();
  for (const ActivationShape& shape : std::vector<ActivationShape>{
           {4, 64, 256, 1},  {4, 64, 256, 4},   {4, 64, 256, 16}, {9, 64, 49, 1},
           {9, 64, 49, 16},  {2, 128, 196, 2},  {3, 128, 64, 1},  {2, 256, 72, 1},
           {2, 136, 40, 34}, {3, 40, 129, 5},   {2, 60, 127, 5},  {5, 72, 56, 3},
           {2, 66, 64, 66},  {2, 130, 32, 65},  {4, 48, 144, 16}, {1, 64, 4099, 2},
           {70, 64, 8, 1},   {33, 192, 12, 16}, {2, 320, 20, 2},  {6, 32, 100, 1},
           {3, 64, 40, 8},   {5, 128, 24, 16},  {2, 128, 72, 64}, {2, 64, 36, 64},
           {5, 64, 20, 2},   {2, 192, 44, 12},  {3, 64, 1000, 1}})
    shapes.push_back(shape);
  return shapes;
}

}  // namespace keel::testing
