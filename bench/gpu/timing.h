#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "keel/stream.h"

namespace keel::bench {

struct Peer {
  std::string name;
  std::function<void()> call;  ///< queues its work on LibTorch's current stream
};

using Microseconds = std::map<std::string, double>;  ///< by peer

/// What a call's time holds: also what the host does meanwhile, as a user waits for it, or the device's work
/// alone, launches queued while the card is kept busy.
enum class Host { counts, is_ahead };

/// Median time of each peer's call between two events on the current stream, the peers taking turns, so that
/// a card that slows down slows all. A call of more than a second is made once.
Microseconds in_turns(const std::vector<Peer>& peers, Host host = Host::counts);

/// Time per call of `count` calls queued one after another: launches hide behind the work before them.
/// Median of several such runs.
double back_to_back(int count, const std::function<void(int call)>& call);

/// LibTorch's current stream and its caching allocator, for calls of the core.
Stream current_stream();

/// A call captured once in a graph; what it returns replays it.
std::function<void()> captured(const std::function<void()>& call);

/// Bytes that `call` has alive at most, beyond those alive before it.
std::int64_t peak_bytes(const std::function<void()>& call);

}  // namespace keel::bench
