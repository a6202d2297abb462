#include "lab/train/bfloat16_cpu.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <vector>

#include "bench/machine.h"

namespace keel::lab {
namespace {

// oneDNN's variable, and its name before release 2.5.
constexpr const char *kCap = "ONEDNN_MAX_CPU_ISA", *kOldCap = "DNNL_MAX_CPU_ISA";

[[noreturn]] void child(const std::function<void()>& work, int answer) {
  for (const int number : {SIGILL, SIGALRM}) std::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const rlimit nothing{0, 0};
  setrlimit(RLIMIT_CORE, &nothing);  // dying by a signal is expected, so write no core file
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(60);
  std::string words;
  try {
    work();
    _exit(0);
  } catch (const c10::Error& error) {
    words = error.what_without_backtrace();
  } catch (const std::exception& error) {
    words = error.what();
  }
  // At most what a pipe holds, so that the write cannot block.
  if (write(answer, words.data(), std::min<std::size_t>(words.size(), 4096)) < 0) _exit(2);
  _exit(1);
}

}  // namespace

Ending in_child(const std::function<void()>& work) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t process = fork();
  if (process == 0) child(work, ends[1]);
  close(ends[1]);
  Ending ending;
  int status = 0;
  pid_t ended = process;
  while (process > 0 && (ended = waitpid(process, &status, 0)) < 0 && errno == EINTR) continue;
  if (ended <= 0) status = 0;
  if (WIFSIGNALED(status)) ending.signal = WTERMSIG(status);
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    ending.words.resize(4096);
    const ssize_t count = read(ends[0], ending.words.data(), ending.words.size());
    ending.words.resize(std::size_t(std::max<ssize_t>(count, 0)));
    if (ending.words.empty()) ending.words = "an error without words";
  }
  close(ends[0]);
  return ending;
}

Bfloat16Cpu find_out_bfloat16(const std::function<Ending()>& trial) {
  const auto does_not = [](const std::string& why) {
    return fmt::format(
        "keel::lab: expected a CPU that computes in bfloat16, got {}: {}; use float32, or a GPU",
        machine::processor(), why);
  };
  Bfloat16Cpu found;
  Ending ending = trial();
  const bool told = std::getenv(kCap) != nullptr || std::getenv(kOldCap) != nullptr;
  for (const char* cap : {"AVX512_CORE_BF16", "AVX512_CORE"}) {
    if (ending.signal != SIGILL || told) break;
    for (const char* name : {kCap, kOldCap}) setenv(name, cap, 1);
    ending = trial();
    found.note =
        fmt::format("bfloat16: {} shows instructions that do not run here; {}={} does without them",
                    machine::processor(), kCap, cap);
  }
  if (ending.signal == SIGILL)
    found.fault = does_not(fmt::format(
        "a convolution dies of an illegal instruction; {}=AVX512_CORE in the environment may help",
        kCap));
  else if (!ending.words.empty())
    found.fault =
        does_not("LibTorch, whose convolutions take AVX-512 for it, says: " + ending.words);
  if (!found.fault.empty() && !found.note.empty()) {
    for (const char* name : {kCap, kOldCap}) unsetenv(name);
    found.note.clear();
  }
  return found;
}

void convolve_in_bfloat16() {
  at::set_num_threads(1);  // after fork() a child has one thread, whatever its parent had
  const torch::NoGradGuard no_grad;
  struct Shape {
    std::int64_t in, out, kernel, stride;
  };
  for (const auto order : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
    for (const auto& [in, out, kernel, stride] :
         {Shape{3, 4, 3, 1}, Shape{3, 64, 3, 1}, Shape{64, 64, 3, 1}, Shape{64, 128, 1, 2}}) {
      const std::vector<std::int64_t> steps(2, stride), edge(2, kernel / 2), one(2, 1), none(2, 0);
      const auto x = torch::ones({4, in, 8, 8}, torch::kBFloat16).contiguous(order);
      const auto weight = torch::ones({out, in, kernel, kernel}, torch::kBFloat16);
      const auto y = at::convolution(x, weight, {}, steps, edge, one, false, none, 1);
      at::convolution_backward(y, x, weight, at::OptionalIntArrayRef(), steps, edge, one, false,
                               none, 1, {true, true, false});
    }
  const auto square = torch::ones({64, 64}, torch::kBFloat16);
  at::mm(square, square);
}

const Bfloat16Cpu& bfloat16_cpu() {
  static const Bfloat16Cpu found = find_out_bfloat16([] { return in_child(convolve_in_bfloat16); });
  return found;
}

}  // namespace keel::lab
