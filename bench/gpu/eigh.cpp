#include <ATen/cuda/Sleep.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>

#include "cases.h"
#include "cusolver_peer.h"
#include "keel/eigh.h"
#include "keel/torch/keel.h"
#include "one_core.h"

namespace keel::bench {
namespace {

/// Covariances of 2n samples, as a whitening layer meets them.
torch::Tensor covariances(std::int64_t batch, std::int64_t n, at::ScalarType type = at::kFloat) {
  torch::manual_seed(n * 100003 + batch);
  const torch::Tensor samples = torch::randn({batch, n, 2 * n}, at::device(at::kCUDA).dtype(type));
  const torch::Tensor m = samples.matmul(samples.mT()) / double(2 * n);
  return ((m + m.mT()) / 2).contiguous();
}

struct Cell {
  std::int64_t n, batch;
  std::string name(const std::string& pass) const {
    return fmt::format("eigh/{}/n={}/batch={}", pass, n, batch);
  }
};

/// The sizes and batches of forward alone: up to what takes seconds.
std::vector<Cell> forward_cells() {
  std::vector<Cell> all;
  for (const std::int64_t n : {3, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048})
    for (const std::int64_t batch : {1, 4, 16, 256, 4096})
      if (batch * n * n * n <= std::int64_t(5) << 30 && batch * n * n <= std::int64_t(1) << 25 &&
          (batch != 4 || n >= 192))
        all.push_back({n, batch});
  return all;
}

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const std::int64_t n : {4, 8, 16, 32, 64, 128, 256})
    for (const std::int64_t batch : {1, 16, 256, 4096})
      if (n <= 64 || batch <= 256) all.push_back({n, batch});
  return all;
}

/// What keel has to be over the best of all peers.
double target(std::int64_t n) { return n <= 256 ? 2 : n <= 512 ? 1.5 : 1; }

template <typename T>
void measure_forward(Record& record, const Cell& cell) {
  const torch::NoGradGuard no_grad;
  const auto type = c10::CppTypeToScalarType<T>::value;
  const torch::Tensor m = covariances(cell.batch, cell.n, type);
  const torch::Tensor values = torch::empty({cell.batch, cell.n}, m.options());
  const torch::Tensor vectors = torch::empty_like(m);
  std::vector<Peer> peers = cusolver_peers(m);
  // cuSOLVER overwrites its input: all solvers stand behind a copy, whose own time is taken off below. That is
  // right on the device alone: with the host's time in it, a solver would hide in the host's share of the copy.
  const auto copy_input = peers.front().call;
  peers.push_back({"keel", [&] {
                     copy_input();
                     cuda::eigh<T>(contiguous<const T>(m.data_ptr<T>(), cell.batch, cell.n),
                                   values.data_ptr<T>(),
                                   contiguous(vectors.data_ptr<T>(), cell.batch, cell.n),
                                   EighOrder::ascending, nullptr, current_stream());
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
  const std::string name = cell.name(sizeof(T) == 4 ? "forward" : "forward, float64");
  record.add(name, times);
  record.at_least(name + ", times cuSOLVER's best", best / times["keel"], target(cell.n));
  const double over_torch = times["torch"] / times["keel operator"];
  record.at_least(name + ", times torch.linalg.eigh", over_torch,
                  sizeof(T) == 8                                       ? target(cell.n)
                  : cell.n <= 32                                       ? 4
                  : cell.n >= 128 && cell.n <= 256 && cell.batch >= 16 ? 10
                                                                       : target(cell.n));
  if (sizeof(T) == 4 && cell.n == 64 && cell.batch == 1)
    record.at_most(name + ", us (a goal)", times["keel"], 200);
}

/// Forward and backward of `copies` calls that one backward pass goes through, as through a network's layers.
template <typename Decompose>
std::function<void()> step(const torch::Tensor& matrices, int copies, const Decompose& decompose) {
  std::vector<torch::Tensor> inputs, along;
  for (int k = 0; k < copies; ++k) {
    inputs.push_back(matrices.detach().clone().requires_grad_(true));
    along.push_back(torch::randn({matrices.size(0), matrices.size(1)}, matrices.options()));
    along.push_back(torch::randn_like(matrices));
  }
  return [=] {
    std::vector<torch::Tensor> outputs;
    for (const torch::Tensor& input : inputs) {
      const auto [values, vectors] = decompose(input);
      outputs.push_back(values);
      outputs.push_back(vectors);
    }
    torch::autograd::grad(outputs, inputs, along);
  };
}

/// One launch and the outputs' memory in each direction, and nothing else: what LibTorch takes for any operator
/// of this shape.
struct Nothing : torch::autograd::Function<Nothing> {
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  static Tensors forward(Context* ctx, const torch::Tensor& m) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const torch::Tensor values = torch::empty({m.size(0), m.size(1)}, m.options());
    const torch::Tensor vectors = torch::empty_like(m);
    at::cuda::sleep(0);
    ctx->save_for_backward({values, vectors});
    return {values, vectors};
  }

  static Tensors backward(Context* ctx, const Tensors&) {
    const torch::Tensor gradient = torch::empty_like(ctx->get_saved_variables()[1]);
    at::cuda::sleep(0);
    return {gradient};
  }
};

Peer peer_torch(const torch::Tensor& m, int copies = 1) {
  return {"torch",
          step(m, copies, [](const torch::Tensor& x) { return torch::linalg_eigh(x, "L"); })};
}

Peer peer_nothing(const torch::Tensor& m, int copies = 1) {
  return {"nothing", step(m, copies, [](const torch::Tensor& x) {
            const auto outputs = Nothing::apply(x);
            return std::pair(outputs[0], outputs[1]);
          })};
}

Peer peer_keel(const torch::Tensor& m, const GradientRule& rule, int copies = 1) {
  return {to_string(rule),
          step(m, copies, [=](const torch::Tensor& x) { return keel::eigh(x, rule); })};
}

void measure_backward(Record& record, const Cell& cell, const std::string& pass) {
  const torch::Tensor m = covariances(cell.batch, cell.n);
  std::vector<Peer> peers{peer_torch(m), peer_nothing(m)};
  for (const GradientRule& rule : std::initializer_list<GradientRule>{
           Analytic{}, PowerIteration{}, Taylor{}, Lorentzian{}, Masked{}})
    peers.push_back(peer_keel(m, rule));
  const Microseconds times = in_turns(peers);
  const std::string name = cell.name(pass);
  record.add(name, times);
  double slowest = 0;
  for (const auto& [peer, time] : times)
    if (peer != "torch" && peer != "nothing") slowest = std::max(slowest, time);
  record.at_least(name + ", every rule, times torch's", times.at("torch") / slowest, 4);
}

/// The same where it is part of something: with one backward pass through eight, and behind other work, where
/// the host is ahead.
void measure_as_a_part(Record& record, const Cell& cell) {
  const torch::Tensor m = covariances(cell.batch, cell.n);
  const auto peers = [&](int copies) -> std::vector<Peer> {
    return {peer_torch(m, copies), peer_nothing(m, copies), peer_keel(m, Masked{}, copies)};
  };
  constexpr int kLayers = 8;
  Microseconds each = in_turns(peers(kLayers));
  for (auto& [peer, time] : each) time /= kLayers;
  record.add(cell.name("forward+backward, one of eight in a graph"), each);
  record.add(cell.name("forward+backward, behind other work"), in_turns(peers(1), Host::is_ahead));
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
  const Errors e = errors(own.eigenvalues, own.eigenvectors),
               peer = errors(theirs.first, theirs.second);
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
  for (const std::int64_t n : {4, 8, 16, 32, 64, 128, 256, 512, 1024}) measure_accuracy(record, n);
  record.section(
      "eigh forward, float32, us (ratio to keel's core call); operators with the host's time");
  for (const Cell& cell : forward_cells()) measure_forward<float>(record, cell);
  record.write();
  record.section("the same in float64");
  for (const Cell& cell : forward_cells()) measure_forward<double>(record, cell);
  record.write();
}

void measure_eigh_backward(Record& record) {
  record.section("eigh forward + backward, float32, us");
  for (const Cell& cell : cells()) measure_backward(record, cell, "forward+backward");
  record.section("the same, all threads on one core");
  {
    const OnOneCore one_core;
    for (const Cell& cell : cells())
      measure_backward(record, cell, "forward+backward, on one core");
  }
  record.section("the same as a part of something, threads anywhere");
  for (const Cell& cell : cells())
    if (cell.n <= 32) measure_as_a_part(record, cell);
  record.write();
}

}  // namespace keel::bench
