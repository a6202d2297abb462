#include <ATen/cuda/Sleep.h>
#include <c10/core/AutogradState.h>
#include <fmt/format.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <limits>

#include "cases.h"
#include "cusolver_peer.h"
#include "keel/eigh.h"
#include "keel/torch/keel.h"

namespace keel::bench {
namespace {

/// Covariances of 2n samples, as a whitening layer meets them.
torch::Tensor covariances(std::int64_t batch, std::int64_t n) {
  torch::manual_seed(n * 100003 + batch);
  const torch::Tensor samples = torch::randn({batch, n, 2 * n}, at::kCUDA);
  const torch::Tensor m = samples.matmul(samples.mT()) / double(2 * n);
  return ((m + m.mT()) / 2).contiguous();
}

struct Cell {
  std::int64_t n, batch;
  std::string name(const std::string& pass) const {
    return fmt::format("eigh/{}/n={}/batch={}", pass, n, batch);
  }
};

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const std::int64_t n : {4, 8, 16, 32, 64, 128, 256})
    for (const std::int64_t batch : {1, 16, 256, 4096})
      if (n <= 64 || batch <= 256) all.push_back({n, batch});
  return all;
}

void measure_forward(Record& record, const Cell& cell) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor m = covariances(cell.batch, cell.n);
  const torch::Tensor values = torch::empty({cell.batch, cell.n}, m.options());
  const torch::Tensor vectors = torch::empty_like(m);
  std::vector<Peer> peers = cusolver_peers(m);
  // cuSOLVER overwrites its input: all solvers stand behind a copy, whose own time is taken off below. That is
  // right on the device alone: with the host's time in it, a solver would hide in the host's share of the copy.
  const auto copy_input = peers.front().call;
  peers.push_back({"keel", [&] {
                     copy_input();
                     cuda::eigh<float>(
                         contiguous<const float>(m.data_ptr<float>(), cell.batch, cell.n),
                         values.data_ptr<float>(),
                         contiguous(vectors.data_ptr<float>(), cell.batch, cell.n), nullptr,
                         current_stream());
                   }});
  peers.push_back({"a launch", [&] {
                     copy_input();
                     at::cuda::sleep(0);
                   }});
  Microseconds times = in_turns(peers, Host::is_ahead);
  times.merge(in_turns(
      {{"keel operator", [&] { keel::eigh(m); }}, {"torch", [&] { torch::linalg_eigh(m, "L"); }}}));
  const double copy = times["copy"];
  times.erase("copy");
  double best = std::numeric_limits<double>::infinity();
  times["keel"] -= copy;
  times["a launch"] -= copy;
  for (auto& [peer, time] : times)
    if (peer.find("syev") != std::string::npos) best = std::min(best, time -= copy);
  const std::string name = cell.name("forward");
  record.add(name, times);
  const double over_cusolver = cell.n <= 32 ? 2 : cell.n == 64 ? 1.5 : 1;
  record.at_least(name + ", times cuSOLVER's best", best / times["keel"], over_cusolver);
  const double over_torch = times["torch"] / times["keel operator"];
  if (cell.n <= 32) record.at_least(name + ", times torch.linalg.eigh", over_torch, 4);
  if (cell.n >= 128 && cell.batch >= 16)
    record.at_least(name + ", times torch.linalg.eigh", over_torch, 10);
  if (cell.n == 64 && cell.batch == 1) record.at_most(name + ", us (a goal)", times["keel"], 200);
}

template <typename Decompose>
std::function<void()> step(const torch::Tensor& matrices, const Decompose& decompose) {
  const torch::Tensor m = matrices.detach().requires_grad_(true);
  const torch::Tensor along_values = torch::randn({m.size(0), m.size(1)}, m.options()),
                      along_vectors = torch::randn_like(matrices);
  return [=] {
    const auto [values, vectors] = decompose(m);
    torch::autograd::grad({values, vectors}, {m}, {along_values, along_vectors});
  };
}

void measure_backward(Record& record, const Cell& cell) {
  const torch::Tensor m = covariances(cell.batch, cell.n);
  std::vector<Peer> peers{
      {"torch", step(m, [](const torch::Tensor& x) { return torch::linalg_eigh(x, "L"); })}};
  for (const GradientRule& rule : std::initializer_list<GradientRule>{
           Analytic{}, PowerIteration{}, Taylor{}, Lorentzian{}, Masked{}})
    peers.push_back(
        {to_string(rule), step(m, [=](const torch::Tensor& x) { return keel::eigh(x, rule); })});
  const Microseconds times = in_turns(peers);
  const std::string name = cell.name("forward+backward");
  record.add(name, times);
  double slowest = 0;
  for (const auto& [peer, time] : times)
    if (peer != "torch") slowest = std::max(slowest, time);
  record.at_least(name + ", every rule, times torch's", times.at("torch") / slowest, 4);
}

/// How much of a short call is LibTorch's handing of the backward to the device's thread, and back.
void measure_hand_over([[maybe_unused]] Record& record, [[maybe_unused]] const Cell& cell) {
#if TORCH_VERSION_MAJOR >= 2  // before, a backward on CUDA always had a thread of its own
  auto& state = c10::AutogradState::get_tls_state();
  const bool before = state.get_multithreading_enabled();
  const torch::Tensor m = covariances(cell.batch, cell.n);
  state.set_multithreading_enabled(false);
  record.add(cell.name("forward+backward, all on the calling thread"),
             in_turns({{"torch",
                        step(m, [](const torch::Tensor& x) { return torch::linalg_eigh(x, "L"); })},
                       {"masked", step(m, [](const torch::Tensor& x) { return keel::eigh(x); })}}));
  state.set_multithreading_enabled(before);
#endif
}

void measure_accuracy(Record& record, std::int64_t n) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor m = covariances(16, n), exact = m.to(at::kDouble);
  struct Errors {
    double residual, orthogonality;
  };
  const auto errors = [&](const torch::Tensor& values, const torch::Tensor& vectors) -> Errors {
    const torch::Tensor v = vectors.to(at::kDouble), l = values.to(at::kDouble);
    const auto norm = [](const torch::Tensor& x) { return x.flatten(1).norm(2, 1); };
    const torch::Tensor residual = norm(exact.matmul(v) - v * l.unsqueeze(1)) / norm(exact);
    const torch::Tensor off = v.mT().matmul(v) - torch::eye(n, exact.options());
    return {residual.max().item<double>(), norm(off).max().item<double>()};
  };
  const auto own = keel::eigh(m);
  const auto theirs = by_syevd(m);
  const Errors e = errors(own.values, own.vectors), peer = errors(theirs.first, theirs.second);
  fmt::print("  n={:<4} residual {:.2e} (syevd {:.2e})   orthogonality {:.2e} (syevd {:.2e})\n", n,
             e.residual, peer.residual, e.orthogonality, peer.orthogonality);
  record.accuracy({{"n", std::to_string(n)},
                   {"residual", fmt::format("{:.3e}", e.residual)},
                   {"syevd_residual", fmt::format("{:.3e}", peer.residual)},
                   {"orthogonality", fmt::format("{:.3e}", e.orthogonality)},
                   {"syevd_orthogonality", fmt::format("{:.3e}", peer.orthogonality)}});
  const std::string name = fmt::format("eigh/accuracy/n={}", n);
  record.at_most(name + ", residual over syevd's", e.residual / peer.residual, 4);
  record.at_most(name + ", orthogonality over syevd's", e.orthogonality / peer.orthogonality, 4);
}

}  // namespace

void measure_eigh(Record& record) {
  record.section("eigh accuracy, float32, worst of 16 covariances of 2n samples");
  for (const std::int64_t n : {4, 8, 16, 32, 64, 128, 256}) measure_accuracy(record, n);
  record.section(
      "eigh forward, float32, us (ratio to keel's core call); operators with the host's time");
  for (const Cell& cell : cells()) measure_forward(record, cell);
  record.write();
  record.section("eigh forward + backward, float32, us");
  for (const Cell& cell : cells()) measure_backward(record, cell);
  for (const Cell& cell : cells())
    if (cell.n <= 16 && cell.batch <= 256) measure_hand_over(record, cell);
  record.write();
}

}  // namespace keel::bench
