#include "lab/train/operator_time.h"

#include <chrono>

namespace keel::lab {
namespace {

using Clock = std::chrono::steady_clock;

// LibTorch's callbacks are plain functions without state, so the counters are thread-local.
thread_local int depth = 0;
thread_local Clock::time_point entered;
thread_local double total = 0;

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction&) {
  if (depth++ == 0) entered = Clock::now();
  return nullptr;
}

void leave(const at::RecordFunction&, at::ObserverContext*) {
  if (--depth == 0) total += std::chrono::duration<double>(Clock::now() - entered).count();
}

}  // namespace

OperatorTime::OperatorTime()
    : handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(enter, leave).scopes({at::RecordScope::FUNCTION}))) {
  depth = 0;
  total = 0;
}

OperatorTime::~OperatorTime() { at::removeCallback(handle_); }

double OperatorTime::seconds() const { return total; }

}  // namespace keel::lab
