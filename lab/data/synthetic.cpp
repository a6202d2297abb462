// Ten shapes with what makes small photographs hard: position, size, rotation, stretch, colour, contrast, texture,
// clutter, occlusion, noise. An image depends only on the seed and its index.

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "lab/data/data_set.h"
#include "lab/random.h"

namespace keel::lab {
namespace {

constexpr std::int64_t kTrain = 5000, kTest = 1000;
constexpr double kTurn = 6.283185307179586;

// The ten classes: shapes in a unit disc, as signed distances of (x, y) from the outline (negative inside), in units of
// their radius. They are accurate near the outline; elsewhere only the sign is.

double disc(double x, double y) { return std::hypot(x, y) - 0.85; }
double ring(double x, double y) { return std::abs(std::hypot(x, y) - 0.7) - 0.2; }
double box(double x, double y, double half_width, double half_height) {
  return std::max(std::abs(x) - half_width, std::abs(y) - half_height);
}
double square(double x, double y) { return box(x, y, 0.75, 0.75); }
double triangle(double x, double y) {
  return std::max({y, 0.866 * x - 0.5 * y, -0.866 * x - 0.5 * y}) - 0.48;
}
double cross(double x, double y) { return std::min(box(x, y, 0.92, 0.27), box(x, y, 0.27, 0.92)); }
double star(double x, double y) {
  return 0.75 * (std::hypot(x, y) - 0.62 - 0.3 * std::cos(5 * std::atan2(y, x)));
}
double crescent(double x, double y) {
  return std::max(std::hypot(x, y) - 0.9, 0.75 - std::hypot(x - 0.45, y));
}
double bars(double x, double y) {
  return std::max(std::abs(x) - 0.85, std::min(std::abs(y), std::abs(std::abs(y) - 0.66)) - 0.19);
}
double checker(double x, double y) {
  const double nearest = std::min(std::abs(x), std::abs(y));
  return std::max(box(x, y, 0.82, 0.82), x * y > 0 ? -nearest : nearest);
}
double dots(double x, double y) {
  return std::hypot(std::abs(x) - 0.52, std::abs(y) - 0.52) - 0.32;
}

struct Shape {
  const char* name;
  double (*distance)(double x, double y);
};
constexpr Shape kShapes[] = {{"disc", disc},         {"ring", ring},   {"square", square},
                             {"triangle", triangle}, {"cross", cross}, {"star", star},
                             {"crescent", crescent}, {"bars", bars},   {"checker", checker},
                             {"dots", dots}};
constexpr int kClasses = int(std::size(kShapes));

struct Colour {
  double channel[3];
};

Colour random_colour(Random& random) {
  return {{random.uniform(), random.uniform(), random.uniform()}};
}

Colour blend(const Colour& from, const Colour& to, double share) {
  Colour result;
  for (int c = 0; c < 3; ++c)
    result.channel[c] = from.channel[c] + share * (to.channel[c] - from.channel[c]);
  return result;
}

/// A dark background and a lighter figure colour, so that it is clear which is which at this size.
std::pair<Colour, Colour> contrasting(Random& random, double contrast) {
  const Colour ground = blend({{0, 0, 0}}, random_colour(random), 0.6);
  const Colour light = blend({{1, 1, 1}}, random_colour(random), 0.6);
  return {ground, blend(ground, light, contrast)};
}

/// A slow wave over the image, with a different height for each channel.
struct Wave {
  double x, y, phase, height[3];

  explicit Wave(Random& random)
      : x(random.uniform(-9, 9)), y(random.uniform(-9, 9)), phase(random.uniform(0, kTurn)) {
    for (double& h : height) h = random.uniform(-0.07, 0.07);
  }
};

/// A shape placed in the unit square, with an opacity.
struct Figure {
  int shape;
  double x, y, radius, cosine, sine, stretch, opacity;
  Colour colour;

  Figure(Random& random, int number, double tilt, double spread, double smallest, double largest)
      : shape(number),
        x(0.5 + random.uniform(-spread, spread)),
        y(0.5 + random.uniform(-spread, spread)),
        radius(random.uniform(smallest, largest)),
        stretch(random.uniform(0.8, 1.25)),
        opacity(1) {
    const double angle = random.uniform(-tilt, tilt);
    cosine = std::cos(angle), sine = std::sin(angle);
  }

  /// 0 outside, 1 inside, with an edge about a pixel wide.
  double cover(double at_x, double at_y, double pixel) const {
    const double u = (at_x - x) / radius, v = (at_y - y) / radius;
    if (u * u + v * v > 2.6) return 0;
    const double along = (cosine * u + sine * v) * stretch,
                 across = (cosine * v - sine * u) / stretch;
    const double outside = kShapes[shape].distance(along, across) * radius / pixel;
    return opacity * std::clamp(0.5 - outside, 0.0, 1.0);
  }
};

void draw(std::uint64_t seed, int label, std::int64_t size, std::uint8_t* planes) {
  Random random(seed);
  const auto [ground, ink] = contrasting(random, random.uniform(0.45, 1));
  const Colour far_ground = blend(ground, random_colour(random), random.uniform(0, 0.3));
  const double lean = random.uniform(0, kTurn), lean_x = std::cos(lean), lean_y = std::sin(lean);
  const Wave waves[] = {Wave(random), Wave(random), Wave(random)};

  std::vector<Figure> figures;  // from back to front
  for (int i = 0, clutter = int(random.uniform(0, 4)); i < clutter; ++i) {
    figures.emplace_back(random, int(random.uniform(0, kClasses)), kTurn, 0.5, 0.03, 0.08);
    figures.back().colour = random_colour(random);
  }
  figures.emplace_back(random, label, 0.4, 0.12, 0.24, 0.38);
  figures.back().colour = ink;
  figures.back().opacity = random.uniform(0.7, 1);
  if (random.uniform() < 0.4) {
    figures.emplace_back(random, int(random.uniform(0, kClasses)), kTurn, 0.35, 0.05, 0.12);
    figures.back().colour = random_colour(random);
  }
  const double noise = random.uniform(0.02, 0.1), pixel = 1 / double(size);

  const std::int64_t area = size * size;
  for (std::int64_t row = 0; row < size; ++row) {
    for (std::int64_t column = 0; column < size; ++column) {
      const double x = (double(column) + 0.5) * pixel, y = (double(row) + 0.5) * pixel;
      const double share = 0.5 + (x - 0.5) * lean_x + (y - 0.5) * lean_y;
      Colour colour = blend(ground, far_ground, std::clamp(share, 0.0, 1.0));
      for (const Wave& wave : waves) {
        const double swing = std::sin(wave.x * x + wave.y * y + wave.phase);
        for (int c = 0; c < 3; ++c) colour.channel[c] += swing * wave.height[c];
      }
      for (const Figure& figure : figures)
        if (const double cover = figure.cover(x, y, pixel); cover > 0)
          colour = blend(colour, figure.colour, cover);
      for (int c = 0; c < 3; ++c) {
        const double value = 255 * (colour.channel[c] + noise * random.noise());
        planes[c * area + row * size + column] =
            std::uint8_t(std::clamp(std::nearbyint(value), 0.0, 255.0));
      }
    }
  }
}

Images drawn(std::int64_t count, std::uint64_t seed, std::int64_t size) {
  Images images{torch::empty({count, 3, size, size}, torch::kUInt8),
                torch::arange(count, torch::kLong).remainder(kClasses)};
  auto* pixels = images.pixels.data_ptr<std::uint8_t>();
  at::parallel_for(0, count, /*grain_size=*/16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      draw(hashed(seed, std::uint64_t(i)), int(i % kClasses), size, pixels + i * 3 * size * size);
  });
  return images;
}

}  // namespace

DataSet load_synthetic(const DataOptions& options) {
  const auto count = [](std::int64_t limit, std::int64_t usual) {
    return limit > 0 ? limit : usual;
  };
  DataSet data;
  data.name = "synthetic shapes";
  for (const Shape& shape : kShapes) data.classes.emplace_back(shape.name);
  data.train = drawn(count(options.train_limit, kTrain), hashed(options.seed, 1), options.size);
  data.test = drawn(count(options.test_limit, kTest), hashed(options.seed, 2), options.size);
  measure(data);
  return data;
}

}  // namespace keel::lab
