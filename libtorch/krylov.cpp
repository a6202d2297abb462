#include "krylov.h"

#include <cmath>
#include <optional>

#include "autograd.h"
#include "device.h"
#include "gradient_rule_formula.h"
#include "keel/thin_product.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

constexpr std::int64_t kOwnSvd =
    512;  ///< the largest singular value problem that the GPU solves without cuSOLVER
constexpr std::int64_t kShifts = 499;  ///< of the noise
constexpr std::int64_t kWhole = 256;   ///< matrices up to this size are decomposed as a whole

/// Numbers in [-1, 1) by a hash of their place: the same on all devices, without a generator's state, so that a CUDA graph
/// can hold it.
Tensor random_rows(std::int64_t rows, std::int64_t columns, std::int64_t seed,
                   const at::TensorOptions& options) {
  const std::int64_t low = 0xFFFFFFFF;
  Tensor place =
      at::arange(rows * columns, options.dtype(at::kLong)).add_(1 + (seed << 20)).bitwise_and_(low);
  for (const std::int64_t factor : {0x45D9F3B, 0x119DE1F3})
    place =
        place.bitwise_xor(place.bitwise_right_shift(at::Scalar(16))).mul_(factor).bitwise_and_(low);
  place = place.bitwise_xor(place.bitwise_right_shift(at::Scalar(16)));
  return place.to(options.dtype()).div_(2147483648.0).sub_(1).view({rows, columns});
}

/// beta x + alpha a b, in one launch on CUDA.
Tensor with_product(const Tensor& x, const Tensor& a, const Tensor& b, double beta, double alpha) {
  if (!x.is_cuda()) return at::add(beta == 1 ? x : beta * x, thin_product(a, b, true), alpha);
  if (x.dim() == 2) return at::addmm(x, a, b, beta, alpha);
  const auto flat = [](const Tensor& y) { return y.flatten(0, -3); };
  return at::baddbmm(flat(x), flat(a), flat(b), beta, alpha).view(x.sizes());
}

/// Nearly orthonormal rows made orthonormal by a step of Newton's method.
Tensor polished(const Tensor& rows) {
  return with_product(rows, thin_product(rows, rows, false), rows, 1.5, -0.5);
}

/// Independent rows, not far from orthogonal, made orthonormal.
Tensor straightened(Tensor rows) {
  if (rows.is_cuda()) {  // where four steps take less time than eigenvectors
    rows = rows / at::linalg_vector_norm(rows, 2, {-1}, true);
    for (int i = 0; i < 4; ++i) rows = polished(rows);
    return rows;
  }
  const auto [values, vectors] =
      eigh(thin_product(rows, rows, false).to(at::kDouble), "masked", false);
  const Tensor root = at::matmul(vectors * values.rsqrt().unsqueeze(-2), vectors.mT());
  return thin_product(root.to(rows.scalar_type()), rows, /*left=*/true);
}

/// Orthonormal rows that span `rows` outside `basis`, and rows basis^T. Directions that are empty up to rounding become
/// random: the space has become invariant, and needs new ones. `noise` sees to that, a machine epsilon of it.
///
/// A pass divides by lengths after a rotation by eigenvectors of the Gram matrix, in float64, not by roots of its values.
/// It resolves what is above 1e-8 of the largest: in float32 everything, in float64 what is below has size 1 in the next
/// pass. What rounding then leaves of the basis, in directions that were nearly empty, is removed at the end.
std::pair<Tensor, Tensor> orthonormal(Tensor rows, const Tensor& basis, const Tensor& noise) {
  const auto outside = [&](const Tensor& x, const Tensor& inside) {
    return basis.size(-2) ? with_product(x, inside, basis, 1, -1) : x;
  };
  const auto product = [&](const Tensor& x) { return thin_product(x, basis, /*left=*/false); };
  const Tensor inside = product(rows);
  const double eps = epsilon_of(rows) / std::sqrt(double(rows.size(-1)));
  const Tensor size = at::linalg_vector_norm(rows, 2, {-1}).amax(-1).clamp_min(1e-20);
  rows = at::addcmul(outside(rows, inside), noise, size.unsqueeze(-1).unsqueeze(-1), eps);
  const auto type = rows.scalar_type();
  for (int pass = 0; pass < (type == at::kFloat ? 1 : 2); ++pass) {
    rows = outside(rows, product(rows));
    const Tensor wide = rows.to(at::kDouble);
    const Tensor gram = thin_product(wide, wide, false);
    const Tensor scale = gram.diagonal(0, -2, -1).rsqrt();
    const Tensor vectors =
        std::get<1>(eigh(gram * scale.unsqueeze(-1) * scale.unsqueeze(-2), "masked", false));
    Tensor turned = thin_product(vectors.mT() * scale.unsqueeze(-2), wide, /*left=*/true);
    rows = turned.div_(at::linalg_vector_norm(turned, 2, {-1}, true)).to(type);
  }
  return {straightened(outside(rows, product(rows))), inside};
}

/// Rows of U and V, and the values between them, of `count` leading singular values or more.
Tensors<3> small_svd(const Tensor& matrix, std::int64_t count) {
  // cuSOLVER, which has the Cholesky factor below, may not be captured in a graph.
  if (!matrix.is_cuda() || matrix.scalar_type() == at::kDouble ||
      (matrix.size(-1) <= kOwnSvd && capturing_on_cuda(matrix))) {
    const auto [left, values, right] = svd(matrix, "masked");
    return {left.mT(), values, right};
  }
  // In float64 a square keeps what float32 has. A V has orthogonal columns, but for those of values near rounding. They are
  // made so one after the other, the largest first, and a little noise sees that there are enough.
  const Tensor wide = matrix.to(at::kDouble);
  const Tensor right = std::get<1>(eigh(at::matmul(wide.mT(), wide), "masked", true))
                           .narrow(-1, 0, std::min(count, wide.size(-1)))
                           .mT();
  Tensor left = at::matmul(right, wide.mT());
  const Tensor largest = at::linalg_vector_norm(left, 2, {-1}, true).amax(-2, true);
  left = at::addcmul(left, random_rows(left.size(-2), wide.size(-1), 1, wide.options()),
                     largest.clamp_min(1e-20), 1e-9);
  const Tensor values = at::linalg_vector_norm(left, 2, {-1}, true);
  left = left / values;
  const Tensor factor = std::get<0>(at::linalg_cholesky_ex(at::matmul(left, left.mT())));
  left = at::linalg_solve_triangular(factor, left, /*upper=*/false);
  const auto type = matrix.scalar_type();
  return {left.to(type), (values * (largest > 0)).squeeze(-1).to(type), right.to(type)};
}

/// Values in the order of `which`, leading first, and their vectors as rows, from those of eigh.
std::pair<Tensor, Tensor> leading_first(const Tensor& values, const Tensor& vectors,
                                        const std::string& which) {
  if (which == "SA") return {values, vectors.mT()};
  if (which == "LA") return {values.flip(-1), vectors.mT().flip(-2)};
  const Tensor order = std::get<1>(values.abs().sort(-1, /*descending=*/true));
  const Tensor rows = vectors.mT();
  return {values.gather(-1, order), rows.gather(-2, order.unsqueeze(-1).expand_as(rows))};
}

/// Rows whose squares are in range. Those of a matrix that had NaN tell nothing, and count as zeros.
Tensor fit_to_start(const Tensor& rows) {
  const Tensor sound = at::where(rows.isfinite(), rows, at::zeros_like(rows));
  const Tensor largest = sound.abs().amax(-1, true);
  return sound / at::where(largest > 0, largest, at::ones_like(largest));
}

/// How many vectors a block has, the whole basis, what a restart keeps and a result has.
struct Sizes {
  std::int64_t width, most, kept, told;
};

/// A block has more vectors than are wanted: an eigenvalue as often repeated as that is found as often, and the values
/// beyond decide how fast it goes. A narrow one has fewer: the CPU multiplies four vectors in the time of one, but not
/// sixteen, and narrow blocks need fewer products in all. The basis is limited by the small problem and by memory.
Sizes sizes_of(const Map& map, std::int64_t count, bool narrow) {
  const std::int64_t wide = (count + std::max<std::int64_t>(4, count / 4) + 7) / 8 * 8;
  const std::int64_t width = narrow ? std::max<std::int64_t>(4, wide / 16 * 4) : wide;
  const std::int64_t longest = std::max(map.m, map.n);
  const std::int64_t fit = std::min({10 * wide, kOwnSvd, (std::int64_t(1) << 26) / longest});
  const std::int64_t most = std::max(fit, 4 * wide) / width * width;
  return {width, most, std::max(wide, std::min(std::max(2 * wide, most * 2 / 5), kOwnSvd)),
          2 * wide};
}

/// A growing basis. `step` multiplies its newest block; `ritz` finds what it holds; `restart` shrinks it.
class Krylov {
 public:
  /// What the basis holds: rows left and right in it, values, all leading first, and the residual over the largest.
  struct Ritz {
    Tensor left, right, values, residual;
  };

  Krylov(const Map& map, const Wanted& wanted, const Sizes& sizes)
      : map_(map),
        wanted_(wanted),
        width_(sizes.width),
        most_(sizes.most),
        kept_(sizes.kept),
        told_(sizes.told) {
    noise_ = random_rows(width_, std::max(map.m, map.n) + kShifts, wanted.seed, map.options);
    right_ = at::zeros(map.sizes({most_ + width_, map.n}), map.options);
    if (!map.symmetric) left_ = at::zeros(map.sizes({most_, map.m}), map.options);
    small_ = at::zeros(map.sizes({most_, most_}), map.options);
    Tensor rows = noise(map.n).expand(map.sizes({width_, map.n}));
    if (wanted.start.defined()) {
      const Tensor start = fit_to_start(wanted.start);
      rows = at::cat({start.expand(map.sizes({start.size(-2), map.n})), rows}, -2)
                 .narrow(-2, 0, width_);
    }
    put(right_, 0, orthonormal(rows, right_.narrow(-2, 0, 0), noise(map.n)).first);
  }

  bool full() const { return filled_ + width_ > most_; }

  void step() {
    const std::int64_t begin = filled_, end = filled_ + width_;
    const Tensor newest = right_.narrow(-2, begin, width_);
    Tensor image = map_.times(newest);
    if (!scale_.defined()) {
      const Tensor largest = image.abs().amax({-2, -1}, true);
      scale_ = at::where(largest > 0, largest.log2().floor().exp2(), at::ones_like(largest));
      scale_ = at::where(largest.isnan(), largest, scale_);
    }
    image = image / scale_;
    if (!map_.symmetric) {
      auto [rows, inside] = orthonormal(image, left_.narrow(-2, 0, begin), noise(map_.m));
      put(left_, begin, rows);
      block(0, begin, begin, width_).copy_(inside.mT());
      block(begin, begin, width_, width_).copy_(thin_product(rows, image, false));
      image = map_.adjoint(rows) / scale_;
    }
    auto [rows, inside] = orthonormal(image, right_.narrow(-2, 0, end), noise(map_.n));
    if (map_.symmetric)
      block(begin, 0, width_, end).copy_(inside);  // eigh reads the lower triangle
    put(right_, end, rows);
    rest_ = thin_product(rows, image, false);
    filled_ = end;
  }

  Ritz ritz() const {
    const Tensor small = small_.narrow(-2, 0, filled_).narrow(-1, 0, filled_);
    Ritz found;
    if (map_.symmetric) {
      const auto [values, vectors] = eigh(small, "masked", false);
      std::tie(found.values, found.right) = leading_first(values, vectors, wanted_.which);
      found.left = found.right;
    } else {
      std::tie(found.left, found.values, found.right) = small_svd(small, kept_);
    }
    const Tensor last =
        found.left.narrow(-1, filled_ - width_, width_).narrow(-2, 0, wanted_.count);
    const Tensor errors = at::linalg_vector_norm(at::matmul(last, rest_.mT()), 2, {-1}).amax(-1);
    found.residual = at::where(errors > 0, errors / found.values.abs().amax(-1), errors);
    return found;
  }

  void restart(const Ritz& found) {
    const Tensor newest = right_.narrow(-2, filled_, width_).clone();
    const Tensor right = combined(right_, found.right.narrow(-2, 0, kept_));
    if (!map_.symmetric) put(left_, 0, combined(left_, found.left.narrow(-2, 0, kept_)));
    put(right_, 0, right);
    put(right_, kept_, newest);
    small_.zero_();
    small_.diagonal(0, -2, -1).narrow(-1, 0, kept_).copy_(found.values.narrow(-1, 0, kept_));
    filled_ = kept_;
  }

  Found vectors(const Ritz& found) const {
    const std::int64_t k = wanted_.count;
    const std::int64_t most = std::min({told_, kept_, filled_});
    const Tensor rights = combined(right_, found.right.narrow(-2, 0, most));
    const Tensor lefts = map_.symmetric ? rights : combined(left_, found.left.narrow(-2, 0, most));
    const Tensor values = found.values * scale_.squeeze(-1);
    const Tensor right = polished(rights.narrow(-2, 0, k));
    const Tensor left = map_.symmetric ? right : polished(lefts.narrow(-2, 0, k));
    return {values.narrow(-1, 0, k),
            left,
            right,
            values.narrow(-1, k, most - k),
            lefts.narrow(-2, k, most - k),
            rights.narrow(-2, k, most - k),
            found.residual,
            values.abs().amax(-1)};
  }

 private:
  Tensor noise(std::int64_t columns) {  // none twice in a while
    return noise_.narrow(-1, 37 * ++turn_ % kShifts, columns);
  }
  void put(Tensor& basis, std::int64_t first, const Tensor& rows) {
    basis.narrow(-2, first, rows.size(-2)).copy_(rows);
  }
  Tensor block(std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
    return small_.narrow(-2, row, rows).narrow(-1, column, columns);
  }
  Tensor combined(const Tensor& basis, const Tensor& weights) const {
    return at::matmul(weights, basis.narrow(-2, 0, filled_));
  }

  const Map& map_;
  const Wanted& wanted_;
  const std::int64_t width_, most_, kept_, told_;
  std::int64_t turn_ = 0, filled_ = 0;  ///< vectors that have been multiplied
  Tensor noise_, right_, left_, small_;
  Tensor scale_;  ///< a power of two near the matrix's norm, (..., 1, 1)
  Tensor rest_;   ///< R
};

/// For matrices that are not large: the products with the identity are the matrix.
Found whole_decomposition(const Map& map, const Wanted& wanted) {
  const Tensor dense =
      map.times(at::eye(map.n, map.options).expand(map.sizes({map.n, map.n}))).mT();
  Tensor values, left, right;
  if (map.symmetric) {
    const auto [all, vectors] = eigh(dense, "masked", false);
    std::tie(values, right) = leading_first(all, vectors, wanted.which);
    left = right;
  } else {
    std::tie(left, values, right) = svd(dense, "masked");
    left = left.mT();
  }
  const std::int64_t k = wanted.count, more = values.size(-1) - k;
  const Tensor largest = values.abs().amax(-1);
  const Tensor first = right.narrow(-2, 0, k);
  return {values.narrow(-1, 0, k),
          map.symmetric ? first : left.narrow(-2, 0, k),
          first,
          values.narrow(-1, k, more),
          left.narrow(-2, k, more),
          right.narrow(-2, k, more),
          largest * 0,
          largest};
}

Tensor chosen(const Tensor& ready, const Tensor& now, const Tensor& before) {
  auto sizes = ready.sizes().vec();
  sizes.resize(std::size_t(now.dim()), 1);
  return at::where(ready.view(sizes), now, before);
}

}  // namespace

Tensor thin_product(const Tensor& x, const Tensor& a, bool left) {
  const std::int64_t m = a.size(-2), n = a.size(-1);
  const bool one_batch =
      x.sizes().slice(0, std::size_t(x.dim() - 2)) == a.sizes().slice(0, std::size_t(a.dim() - 2));
  // Inside torch.func's transforms tensors have no memory of their own.
  const bool transformed =
      c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
  if (!x.is_cpu() || transformed || !one_batch || n < 64 || m == 0 || x.numel() == 0 ||
      !is_one_batch(a) || (left && m < 4))
    return at::matmul(x, left ? a : a.mT());
  const bool worth_threads = a.numel() * x.size(-2) > (1 << 22);  // some 60 microseconds
  const Tensor rows = readable(x), y = empty_beside(rows, {x.size(-2), left ? n : m});
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "keel::thin_product", [&] {
    cpu::thin_product<scalar_t>(rectangles<const scalar_t>(a), left ? Side::left : Side::right,
                                rectangles<const scalar_t>(rows), rectangles<scalar_t>(y),
                                worth_threads ? libtorch_threads() : serial());
  });
  return y;
}

namespace {

/// Roughly the seconds of a step, and of a decomposition of the whole matrix, by one thread or on a large GPU.
double seconds_of_step(const Map& map, const Sizes& sizes) {
  const double products =
      double(map.m) * double(map.n) * double(sizes.width) * (map.symmetric ? 1 : 2);
  if (map.options.device().is_cuda()) return 5e-4 + products * 5e-14;
  const double longest = double(map.symmetric ? map.n : map.m + map.n);
  const double seconds =
      2e-4 + products * 14e-12 + longest * double(sizes.width * sizes.most) * 40e-12;
  return map.options.dtype().toScalarType() == at::kDouble ? 4 * seconds : seconds;
}
double seconds_of_whole(const Map& map) {
  const double m = double(map.m), n = double(map.n), least = std::min(m, n);
  const double wider = map.options.dtype().toScalarType() == at::kDouble ? 2.4 : 1;
  if (!map.options.device().is_cuda())
    return wider * m * n * least * (map.symmetric ? 37e-12 : 120e-12);
  if (map.symmetric) return wider * 0.01 * std::pow(n / 2048, 2.2);
  return std::max(m, n) <= double(kOwnSvd) ? 0.0015 : 1;
}

/// Whether a value may have more copies than a block has vectors, of which some would be missed: block Krylov spaces
/// contain as many, and the others come from rounding alone.
bool may_miss_copies(const Tensor& values, const Tensor& largest, std::int64_t width,
                     double tolerance) {
  const std::int64_t more = values.size(-1) - width + 1;
  if (more <= 0) return false;
  const Tensor sorted = std::get<0>(values.sort(-1));
  const Tensor spread = sorted.narrow(-1, width - 1, more) - sorted.narrow(-1, 0, more);
  return !(spread > largest.unsqueeze(-1) * std::max(1e-3, 100 * tolerance)).all().item<bool>();
}

/// Steps until each matrix has reached the tolerance, or a fixed number of them. Nothing if the whole decomposition of a
/// single matrix would be quicker.
std::optional<Found> iterate(const Map& map, const Wanted& wanted, const Sizes& sizes) {
  // An operator may need autograd for its adjoint.
  std::optional<at::AutoDispatchBelowADInplaceOrView> briefly;
  if (map.dense) briefly.emplace();
  Krylov krylov(map, wanted, sizes);
  Found found;
  Tensor done = at::zeros(map.batch, map.options.dtype(at::kBool));
  const bool fixed = wanted.steps > 0, single = !fixed && done.numel() == 1;
  const std::int64_t last = fixed ? wanted.steps : wanted.most_steps;
  // When to look, which waits for the device.
  std::int64_t next =
      wanted.start.defined() ? 2 : std::max<std::int64_t>(4, 3 * wanted.count / sizes.width);
  for (std::int64_t step = 1; step <= last; ++step) {
    krylov.step();
    const bool full = krylov.full(), look = !fixed && step == next;
    if (!(full || look || step == last)) continue;
    const Krylov::Ritz ritz = krylov.ritz();
    if (look || step == last) {
      const Tensor now = (ritz.residual > wanted.tolerance).logical_not();  // NaN is done
      const Tensor ready =
          !fixed && step < last ? now.logical_and(done.logical_not()) : done.logical_not();
      if (fixed || step == last || ready.any().item<bool>()) {
        const Found newest = krylov.vectors(ritz);
        if (!found.values.defined())
          found = newest;
        else
          for (const auto part :
               {&Found::values, &Found::left, &Found::right, &Found::more_values, &Found::more_left,
                &Found::more_right, &Found::residual, &Found::largest})
            found.*part = chosen(ready, newest.*part, found.*part);
      }
      done = done.logical_or(now);
      if (!fixed && done.all().item<bool>()) break;
      next = step + 2;
      if (single) {  // how often its residual must fall as it has fallen
        const double reached = ritz.residual.item<double>();
        const double times = reached < 0.5 ? std::log(wanted.tolerance) / std::log(reached) - 1 : 1;
        const double more = std::max(1.0, double(step) * times);
        // Predictions are too high at first, so not before a quarter of its time has passed.
        const double one = seconds_of_step(map, sizes), whole = seconds_of_whole(map);
        if (map.dense && more * one > whole && 4 * double(step) * one > whole) return std::nullopt;
        next = step + std::max<std::int64_t>(1, std::int64_t(0.9 * std::min(more, double(step))));
      }
    }
    if (full) krylov.restart(ritz);
  }
  return found;
}

}  // namespace

double least_tolerance(const Map& map, std::int64_t count) {
  const double basis = double(sizes_of(map, count, false).most);
  const double terms = map.dense ? double(std::max(map.m, map.n)) : 0;
  return std::max({20.0, 2 * std::sqrt(basis), std::sqrt(terms) / 2}) *
         epsilon_of(at::empty({0}, map.options));
}

Found leading(const Map& map, const Wanted& wanted) {
  const bool free = wanted.steps == 0 && wanted.most_steps >= 100 && !wanted.start.defined();
  const std::int64_t count = c10::multiply_integers(map.batch);
  const bool one = count == 1;
  const Sizes wide = sizes_of(map, wanted.count, false);
  const Sizes narrow =
      sizes_of(map, wanted.count, free && one && map.dense && !map.options.device().is_cuda());
  if (count == 0 || std::max(map.m, map.n) <= kWhole ||
      std::min(map.m, map.n) <= wide.width + wide.most ||
      (free && map.dense && 8 * seconds_of_step(map, narrow) > seconds_of_whole(map)))
    return whole_decomposition(map, wanted);
  auto found = iterate(map, wanted, narrow);
  if (found && narrow.width < wide.width &&
      may_miss_copies(found->values, found->largest, narrow.width, wanted.tolerance))
    found = iterate(map, wanted, wide);
  return found ? *found : whole_decomposition(map, wanted);
}

}  // namespace keel::ops
