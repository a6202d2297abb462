#include <fmt/format.h>
#include <torch/torch.h>

#include <limits>

#include "cases.h"
#include "cusolver_peer.h"
#include "keel/eigh.h"
#include "keel/gradient_rule.h"
#include "keel/polar.h"
#include "keel/spectral.h"
#include "keel/svd.h"
#include "keel/torch/procrustes.h"

namespace keel::bench {
namespace {

/// Inputs in turn, so that none is still in the cache when its turn comes again.
constexpr int kSets = 4, kCalls = 3 * kSets;
constexpr std::int64_t kHuge = 1'000'000;

template <typename T>
T* numbers(const torch::Tensor& t) {
  return t.data_ptr<T>();
}

/// Batches of n x n matrices, symmetric ones, and room for all that is made of them.
template <typename T>
struct Many {
  std::int64_t n, batch;
  std::vector<torch::Tensor> matrices, symmetric, along, out, vectors, others, values, margins;
  torch::Tensor rank;

  explicit Many(std::int64_t size, std::int64_t count = kHuge) : n(size), batch(count) {
    const auto options = at::TensorOptions(at::kCUDA).dtype(c10::CppTypeToScalarType<T>::value);
    for (int k = 0; k < kSets; ++k) {
      matrices.push_back(torch::randn({batch, n, n}, options));
      symmetric.push_back((matrices.back() + matrices.back().mT()).contiguous());
      along.push_back(torch::randn({batch, n, n}, options));
      values.push_back(torch::empty({batch, n}, options));
      margins.push_back(torch::empty({batch}, options));
      for (auto* each : {&out, &vectors, &others})
        each->push_back(torch::empty({batch, n, n}, options));
    }
    rank = torch::full({batch}, n, at::TensorOptions(at::kCUDA).dtype(at::kLong));
  }
  Rectangles<T> rectangles(const std::vector<torch::Tensor>& all, int call) const {
    return contiguous(numbers<T>(all[std::size_t(call % kSets)]), batch, n, n);
  }
  Matrices<T> squares(const std::vector<torch::Tensor>& all, int call) const {
    return contiguous(numbers<T>(all[std::size_t(call % kSets)]), batch, n);
  }
  T* list(const std::vector<torch::Tensor>& all, int call) const {
    return numbers<T>(all[std::size_t(call % kSets)]);
  }
};

/// Numbers of a matrix that a call reads and writes, and what it may take.
void add(Record& record, const std::string& name, double time, std::int64_t batch,
         std::int64_t bytes, double target) {
  const double floor = double(batch * bytes) / 4.3e6;  // us at 4.3 TB/s, a copy's rate
  record.add(name, {{"keel", time}}, fmt::format("{:.0f} us for its bytes", floor));
  if (target > 0) record.at_most(name + ", us", time, target);
}

template <typename T>
void measure_huge(Record& record, std::int64_t n) {
  const Many<T> m(n);
  const Stream stream = current_stream();
  const std::int64_t nn = n * n * std::int64_t(sizeof(T)), v = n * std::int64_t(sizeof(T));
  const std::string which =
      fmt::format("/n={}/batch={}/{}", n, m.batch, sizeof(T) == 4 ? "float32" : "float64");
  const double target = sizeof(T) == 4 && n >= 3 ? 1 : 0;  // none for the rest
  const auto measure = [&](const std::string& name, std::int64_t bytes, double most,
                           const std::function<void(int)>& call) {
    add(record, name + which, back_to_back(kCalls, call), m.batch, bytes, target * most);
  };
  measure("eigh", 2 * nn + v, 100, [&](int k) {
    cuda::eigh<T>(m.squares(m.symmetric, k), m.list(m.values, k), m.squares(m.vectors, k),
                  EighOrder::descending, nullptr, stream);
  });
  measure("eigh backward, masked", 3 * nn + 2 * v, 0, [&](int k) {
    cuda::eigh_backward<T>(Masked{}, m.list(m.values, k), m.squares(m.vectors, k),
                           m.list(m.values, k), m.squares(m.along, k), m.squares(m.out, k), stream);
  });
  const SpectralFunction function{SpectralFunction::Kind::exp};
  measure("exp of eigh", 2 * nn + v + 8, 0, [&](int k) {
    cuda::spectral<T>(function, m.list(m.values, k), m.squares(m.vectors, k),
                      numbers<std::int64_t>(m.rank), m.squares(m.out, k), stream);
  });
  measure("exp backward, exact", 3 * nn + v + 8, 0, [&](int k) {
    cuda::spectral_backward<T>(function, Exact{}, m.list(m.values, k), m.squares(m.vectors, k),
                               numbers<std::int64_t>(m.rank), m.squares(m.along, k),
                               m.squares(m.out, k), stream);
  });
  measure("svd", 3 * nn + v, n == 3 ? 200 : 0, [&](int k) {
    cuda::svd<T>(m.rectangles(m.matrices, k), m.list(m.values, k), m.rectangles(m.vectors, k),
                 m.rectangles(m.others, k), nullptr, stream);
  });
  for (const PolarKind kind : {PolarKind::orthogonal, PolarKind::rotation}) {
    const std::string name = kind == PolarKind::rotation ? "rotation" : "polar";
    measure(name, 2 * nn, n == 3 ? 100 : 0, [&](int k) {
      cuda::polar<T>(m.rectangles(m.matrices, k), kind, m.rectangles(m.out, k), nullptr, {},
                     stream);
    });
    measure(name + " with margin, backward after forward", 5 * nn, n == 3 ? 300 : 0, [&](int k) {
      cuda::polar<T>(m.rectangles(m.matrices, k), kind, m.rectangles(m.out, k),
                     m.list(m.margins, k), {}, stream);
      cuda::polar_backward<T>(m.rectangles(m.matrices, k), m.rectangles(m.along, k), kind,
                              m.rectangles(m.others, k), stream);
    });
    measure(name + " with factors, backward from them", 8 * nn + 2 * v, n == 3 ? 300 : 0,
            [&](int k) {
              cuda::polar<T>(m.rectangles(m.matrices, k), kind, m.rectangles(m.out, k), nullptr,
                             {m.list(m.values, k), m.rectangles(m.vectors, k)}, stream);
              cuda::polar_backward_from_factors<T>(
                  m.rectangles(m.out, k), {m.list(m.values, k), m.rectangles(m.vectors, k)},
                  m.rectangles(m.along, k), m.rectangles(m.others, k), stream);
            });
  }
}

/// Where a thread a matrix takes over from several.
void measure_border(Record& record) {
  for (const std::int64_t n : {3, 4})
    for (const std::int64_t batch : {4096, 8191, 8192, 16384, 65536}) {
      const Many<float> m(n, batch);
      const Stream stream = current_stream();
      add(record, fmt::format("eigh/n={}/batch={}/float32", n, batch),
          back_to_back(kCalls,
                       [&](int k) {
                         cuda::eigh<float>(m.squares(m.symmetric, k), m.list(m.values, k),
                                           m.squares(m.vectors, k), EighOrder::descending, nullptr,
                                           stream);
                       }),
          batch, (2 * n * n + n) * 4, 0);
    }
}

/// As a user calls it, with the host's time: a million nearest rotations, beside U V^T by torch.
void measure_rotations(Record& record) {
  const torch::Tensor a = torch::randn({kHuge, 3, 3}, at::TensorOptions(at::kCUDA)),
                      along = torch::randn_like(a), leaf = a.clone().requires_grad_(true);
  const auto by_torch = [](const torch::Tensor& x) {
    const auto [left, values, right] = torch::linalg_svd(x, false);
    return left.matmul(right);
  };
  const auto by_keel = [](const torch::Tensor& x) { return special_procrustes(x).rotation; };
  const auto forward = [&](const auto& nearest) {
    return [&, nearest] {
      const torch::NoGradGuard no_grad;
      nearest(a);
    };
  };
  const auto step = [&](const auto& nearest) {
    return [&, nearest] { torch::autograd::grad({nearest(leaf)}, {leaf}, {along}); };
  };
  const Microseconds one = in_turns({{"keel", forward(by_keel)}, {"torch", forward(by_torch)}}),
                     both = in_turns({{"keel", step(by_keel)}, {"torch", step(by_torch)}});
  const std::string name = "special_procrustes/3x3/batch=1000000/";
  record.add(name + "forward", one);
  record.at_most(name + "forward, us", one.at("keel"), 100);
  record.add(name + "forward+backward", both);
  record.at_most(name + "forward+backward, us", both.at("keel"), 300);
}

/// Those of the peers that can do it: a library may refuse a shape.
std::vector<Peer> working(const std::string& name, const std::function<std::vector<Peer>()>& all) {
  std::vector<Peer> able;
  const auto attempt = [&](const std::string& what, const std::function<void()>& call) {
    try {
      call();
    } catch (const std::exception& error) {
      fmt::print("  {}: {} refuse: {}\n", name, what, error.what());
    }
  };
  attempt("the peers", [&] {
    for (const Peer& peer : all())
      attempt(peer.name, [&] {
        peer.call();
        torch::cuda::synchronize();
        able.push_back(peer);
      });
  });
  return able;
}

struct SvdCell {
  std::int64_t m, n, batch;
};

std::vector<SvdCell> svd_cells() {
  std::vector<SvdCell> all{{3, 3, 4096}, {9, 9, 10000}, {60, 3, 1000}};
  for (const std::int64_t n : {4, 8, 16, 32})
    for (const std::int64_t batch : {1, 16, 256, 4096}) all.push_back({n, n, batch});
  for (const std::int64_t n : {33, 64, 96, 128})
    for (const std::int64_t batch : {1, 16, 256}) all.push_back({n, n, batch});
  for (const std::int64_t batch : {1, 16, 256}) all.push_back({512, 64, batch});
  for (const std::int64_t batch : {1, 8}) all.push_back({256, 256, batch});
  all.push_back({512, 512, 1});
  return all;
}

void measure_svd(Record& record, const SvdCell& cell) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor a = torch::randn({cell.batch, cell.m, cell.n}, at::TensorOptions(at::kCUDA));
  const torch::Tensor values = torch::empty({cell.batch, cell.n}, a.options()),
                      left = torch::empty_like(a),
                      right = torch::empty({cell.batch, cell.n, cell.n}, a.options());
  const std::string name = fmt::format("svd/{}x{}/batch={}", cell.m, cell.n, cell.batch);
  std::vector<Peer> peers = working(name, [&] { return cusolver_svd_peers(a); });
  peers.push_back({"keel", [&] {
                     cuda::svd<float>(
                         contiguous<const float>(numbers<float>(a), cell.batch, cell.m, cell.n),
                         numbers<float>(values),
                         contiguous(numbers<float>(left), cell.batch, cell.m, cell.n),
                         contiguous(numbers<float>(right), cell.batch, cell.n, cell.n), nullptr,
                         current_stream());
                   }});
  Microseconds times = in_turns(peers, Host::is_ahead);
  if (times.count("gesvdjBatched") > 0) times["gesvdjBatched"] -= times["copy"];
  times.erase("copy");
  // Beyond 32 every driver but gesvda takes one matrix after another.
  std::vector<Peer> drivers{{"torch, gesvda", [&] { torch::linalg_svd(a, false, "gesvda"); }}};
  if (cell.n <= 32 || cell.batch <= 16)
    drivers.push_back({"torch, gesvdj", [&] { torch::linalg_svd(a, false, "gesvdj"); }});
  if (cell.batch == 1)
    drivers.push_back({"torch, gesvd", [&] { torch::linalg_svd(a, false, "gesvd"); }});
  times.merge(in_turns(working(name, [&] { return drivers; })));
  double best = std::numeric_limits<double>::infinity();
  for (const auto& [peer, time] : times)
    if (peer != "keel") best = std::min(best, time);
  record.add(name, times);
  const double target = cell.n > 128 ? 1 : cell.n > 32 || cell.m > 2 * cell.n ? 2 : 3;
  record.at_least(name + ", times the best of cuSOLVER and torch", best / times["keel"], target);
}

}  // namespace

void measure_rectangles(Record& record) {
  record.section("n <= 4 in huge batches, us");
  for (const std::int64_t n : {2, 3, 4}) measure_huge<float>(record, n);
  measure_huge<double>(record, 3);
  record.section("rotations through the operator, us");
  measure_rotations(record);
  record.section("where a thread a matrix takes over, us");
  measure_border(record);
  record.write();
  record.section(
      "svd forward, float32, us (ratio to keel's core call); torch with the host's time");
  for (const SvdCell& cell : svd_cells()) measure_svd(record, cell);
  record.write();
}

}  // namespace keel::bench
