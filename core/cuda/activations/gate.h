#pragma once

// ReLU's gate (activations.h), taken out of a gradient before the passes that read it. Reading it in
// these passes was slower: each of the two took as long for it as this one does for both.

#include "cuda/launch/launch.h"
#include "keel/activations.h"

namespace keel::cuda {

/// Activations that may have a gate, as activations without one: a copy with zeros where the gate is
/// closed, or the activations themselves.
template <typename T>
class WithoutGate {
 public:
  WithoutGate(const char* operation, const Activations<const T>& x, const Stream& stream);
  operator const Activations<const T>&() const { return view_; }

 private:
  Scratch<T> copy_;
  Activations<const T> view_;
};

}  // namespace keel::cuda
