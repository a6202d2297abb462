#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace keel::cpu {

/// Uninitialised memory aligned for the widest vectors, freed at the end of the scope.
template <typename T>
class Scratch {
 public:
  explicit Scratch(std::int64_t count)
      : data_(static_cast<T*>(::operator new (sizeof(T) * std::size_t(count > 0 ? count : 1),
                                              std::align_val_t{64}))) {}
  ~Scratch() { ::operator delete (data_, std::align_val_t{64}); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }
  operator T*() const { return data_; }

 private:
  T* data_;
};

}  // namespace keel::cpu
