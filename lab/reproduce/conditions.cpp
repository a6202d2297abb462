// Compares a ZCA layer in float32 under every rule with the same layer in float64 under the exact rule. Each kind of
// activations is hard in one way.

#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "lab/models/norm.h"
#include "lab/report/table.h"
#include "lab/report/wording.h"
#include "lab/reproduce/measure.h"

namespace keel::lab::reproduce {
namespace {

using report::number;
using torch::Tensor;

struct Condition {
  std::string name;
  std::function<Tensor(at::Generator&)> draw;  ///< (N, C, H, W) float64
};

/// Channels that are mixtures of each other, like a convolution's. Neighbouring eigenvalues have ratios of about
/// 0.85.
Tensor mixed(std::int64_t samples, std::int64_t channels, at::Generator& generator) {
  const Tensor white = torch::randn({samples, channels, 4, 4}, generator, torch::kDouble);
  const Tensor scales = torch::pow(0.85, torch::arange(channels, torch::kDouble) / 2);
  const Tensor rotation =
      std::get<0>(torch::linalg_qr(torch::randn({channels, channels}, generator, torch::kDouble)));
  return torch::einsum("ij,njhw->nihw", {rotation * scales, white});
}

std::vector<Condition> conditions(std::int64_t channels, std::int64_t dead) {
  const std::int64_t many = 8 * channels;
  const auto mixture = [=](at::Generator& g) { return mixed(many, channels, g); };
  return {
      {"as a convolution gives them", mixture},
      {"white noise (eigenvalues crowd)",
       [=](at::Generator& g) {
         return torch::randn({many, channels, 4, 4}, g, torch::kDouble);
       }},
      {fmt::format("{} dead channels", dead),
       [=](at::Generator& g) {
         Tensor x = mixture(g);
         x.narrow(1, 0, dead).zero_();
         return x;
       }},
      {fmt::format("{} duplicated channels", dead),
       [=](at::Generator& g) {
         Tensor x = mixture(g);
         x.narrow(1, 0, dead).copy_(x.narrow(1, dead, dead).clone());
         return x;
       }},
      {fmt::format("{} samples, fewer than channels", 16 * (channels / 32)),
       [=](at::Generator& g) { return mixed(channels / 32, channels, g); }},
      {"mean 100 times the deviation", [=](at::Generator& g) { return mixture(g) + 100; }},
      {"mean 10000 times the deviation", [=](at::Generator& g) { return mixture(g) + 1e4; }},
      {"deviation 1e-3 (variance below eps)", [=](at::Generator& g) { return 1e-3 * mixture(g); }},
      {"constant activations",
       [=](at::Generator&) {
         return torch::ones({many, channels, 4, 4}, torch::kDouble);
       }},
  };
}

struct Pass {
  Tensor output, gradient;
  std::int64_t rank = 0;
};

Pass pass(const NormOptions& norm, const Tensor& input, const Tensor& dL_doutput,
          torch::Dtype type) {
  const auto layer = make_norm(norm, input.size(1));
  layer->to(type);
  layer->train();
  const Tensor x = input.to(type).detach().clone().requires_grad_();
  const Tensor y = apply_norm(*layer, x);
  const Tensor g = torch::autograd::grad({y}, {x}, {dL_doutput.to(type)})[0];
  const auto* whitening = layer->as<keel::nn::WhiteningImpl>();
  return {y.detach().to(torch::kDouble), g.to(torch::kDouble),
          whitening->kept().min().item<std::int64_t>()};
}

double relative(const Tensor& got, const Tensor& truth) {
  const double size = truth.norm().item<double>(), off = (got - truth).norm().item<double>();
  return size > 0 ? off / size : off > 0 ? INFINITY : 0;
}

double cosine(const Tensor& a, const Tensor& b) {
  const double size = (a.norm() * b.norm()).item<double>();
  return size > 0 ? (a * b).sum().item<double>() / size : kNotDone;
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return kNotDone;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

Json row_of(const Condition& condition, const std::string& rule, const Json& settings) {
  const auto draws = settings.at("draws").get<std::int64_t>();
  NormOptions norm{.kind = "zca", .rule = rule}, exact{.kind = "zca", .rule = "exact"};
  std::vector<double> output, gradient, cosines, growth;
  std::int64_t not_finite = 0;
  Json ranks = Json::array(), true_ranks = Json::array();
  for (std::int64_t draw = 0; draw < draws; ++draw) {
    auto generator = at::detail::createCPUGenerator(std::uint64_t(draw) + 1);
    // Rounds the input first, so that only the layer's error is measured.
    const Tensor x = condition.draw(generator).to(torch::kFloat).to(torch::kDouble);
    const Tensor g = torch::randn(x.sizes(), generator, torch::kDouble);
    const Pass truth = pass(exact, x, g, torch::kDouble), got = pass(norm, x, g, torch::kFloat);
    ranks.push_back(got.rank);
    true_ranks.push_back(truth.rank);
    if (!got.gradient.isfinite().all().item<bool>() || !got.output.isfinite().all().item<bool>()) {
      ++not_finite;
      continue;
    }
    output.push_back(relative(got.output, truth.output));
    gradient.push_back(relative(got.gradient, truth.gradient));
    cosines.push_back(cosine(got.gradient, truth.gradient));
    growth.push_back((got.gradient.norm() / g.norm()).item<double>());
  }
  const double most = growth.empty() ? kNotDone : *std::ranges::max_element(growth);
  return {{"condition", condition.name},
          {"rule", rule},
          {"draws", draws},
          {"not_finite", not_finite},
          {"rank", ranks},
          {"rank_in_float64", true_ranks},
          {"output_error", rounded(median(output), 3)},
          {"gradient_error", rounded(median(gradient), 3)},
          {"cosine", rounded(median(cosines), 4)},
          {"growth", rounded(most, 3)}};
}

std::string joined(const Json& numbers) {
  std::string text;
  for (const Json& number : numbers) text += (text.empty() ? "" : ", ") + number.dump();
  return text;
}

std::string size_text(const Json& value) {
  return value.is_null() ? "not finite" : fmt::format("{:.1e}", value.get<double>());
}

/// A table of one figure, with all rules.
std::string table_text(const Json& rows, const std::function<std::string(const Json&)>& text) {
  report::Table table({"activations"});
  for (const Json& row : rows)
    table.set({row.at("condition").get<std::string>()},
              "`" + row.at("rule").get<std::string>() + "`", text(row));
  return table.markdown();
}

/// The forward pass is the same under all rules except power_method.
std::string forward_text(const Json& rows) {
  report::Table table(
      {"activations", "float64: rank", "float32: rank", "error", "`power_method`: rank", "error"});
  std::vector<std::string> line;
  for (const Json& row : rows) {
    const bool first = row.at("rule") == "exact", last = row.at("rule") == "power_method";
    if (first) line = {row.at("condition").get<std::string>(), joined(row.at("rank_in_float64"))};
    if (first || last) line.push_back(joined(row.at("rank")));
    if (first || last) line.push_back(size_text(row.at("output_error")));
    if (last) table.add(line);
  }
  return table.markdown();
}

std::string cell_text(const Json& row) {
  const auto bad = row.at("not_finite").get<std::int64_t>(),
             draws = row.at("draws").get<std::int64_t>();
  if (bad == draws) return "**not finite**";
  const double error = number_or_nan(row.at("gradient_error"));
  std::string text = std::isfinite(error) ? fmt::format("{:.1e}", error) : "-";
  const double angle = number_or_nan(row.at("cosine"));
  if (std::isfinite(angle)) text += fmt::format(" ({:.2f})", angle);
  return bad ? fmt::format("{}; {} of {} not finite", text, bad, draws) : text;
}

Measured measure_conditions(const Measuring& what) {
  const Json& settings = what.recipe.settings;
  Json rows = Json::array();
  for (const auto& condition : conditions(settings.at("channels").get<std::int64_t>(),
                                          settings.at("dead").get<std::int64_t>())) {
    what.say(condition.name);
    for (const Json& rule : settings.at("rules"))
      rows.push_back(row_of(condition, rule.get<std::string>(), settings));
  }
  return {.figures = {{"rows", rows}}};
}

Page conditions_body(const Recipe&, const Results& results) {
  Page page;
  const Json& rows = results.measured.at("rows");
  page.markdown +=
      "Relative error of dL/dX (and its cosine with the truth), medians over the draws:\n\n" +
      table_text(rows, cell_text) + "\nThe largest norm of dL/dX over that of dL/dY:\n\n" +
      table_text(rows, [](const Json& row) { return size_text(row.at("growth")); }) +
      "\nThe forward pass: directions that Algorithm 1 keeps, draw by draw, and the relative error "
      "of the output:\n\n" +
      forward_text(rows) + "\n";
  return page;
}

}  // namespace

const Kind kConditions{measure_conditions, conditions_body};

}  // namespace keel::lab::reproduce
