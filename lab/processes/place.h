#pragma once

// This process's rank in a run, from the environment variables of torchrun and similar launchers.

#include <cstdint>
#include <optional>
#include <string>

namespace keel::lab {

struct Place {
  std::int64_t process = 0, size = 1;  ///< RANK, WORLD_SIZE
  std::int64_t local_rank = 0;         ///< LOCAL_RANK; on this machine, selects the GPU
  std::string address = "127.0.0.1";   ///< MASTER_ADDR
  int port = 0;                        ///< MASTER_PORT; 0 (one process): any
  /// torchrun's agent keeps the store (TORCHELASTIC_USE_AGENT_STORE); otherwise process 0 does.
  bool store_is_kept = false;
  std::string attempt;  ///< TORCHELASTIC_RESTART_COUNT; separates the keys of restarts

  std::string store() const { return address + ":" + std::to_string(port); }
};

/// Returns nothing if neither RANK nor WORLD_SIZE is set. Throws keel::Error that names a missing or invalid variable.
std::optional<Place> place_from_environment();

}  // namespace keel::lab
