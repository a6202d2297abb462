#include "lab/reproduce/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>

#include "lab/report/groups.h"
#include "lab/report/wording.h"
#include "lab/reproduce/run.h"
#include "lab/require.h"

namespace keel::lab::reproduce {
namespace {

using Words = std::vector<std::string>;

Words split(const std::string& text, char separator) {
  Words words;
  std::stringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);)
    if (!word.empty()) words.push_back(word);
  return words;
}

double mean_of(const std::vector<double>& x) { return report::spread(x).mean; }
double squares_of(const std::vector<double>& x) {
  return x.size() > 1 ? std::pow(report::spread(x).deviation, 2) * double(x.size() - 1) : 0;
}
/// The variance of the mean.
double variance_of_mean(const std::vector<double>& x) {
  return squares_of(x) / double(x.size() - 1) / double(x.size());
}

Difference with_interval(double mean, double error, double freedom) {
  const double side = student_t95(freedom) * error;
  return {mean, mean - side, mean + side, student_p(mean / error, freedom)};
}

/// The continued fraction of the incomplete beta function, by Lentz's method.
double beta_fraction(double a, double b, double x) {
  const auto safe = [](double y) { return std::abs(y) < 1e-300 ? 1e-300 : y; };
  double c = 1, d = 1 / safe(1 - (a + b) * x / (a + 1)), value = d;
  for (int m = 1; m < 1000; ++m) {
    const double two = a + 2 * m;
    for (const double term :
         {m * (b - m) * x / ((two - 1) * two), -(a + m) * (a + b + m) * x / (two * (two + 1))}) {
      d = 1 / safe(1 + term * d);
      c = safe(1 + term / c);
      value *= c * d;
    }
    if (std::abs(c * d - 1) < 1e-15) break;
  }
  return value;
}

std::string thousands(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (auto at = std::ptrdiff_t(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(std::size_t(at), ",");
  return digits;
}

struct Chosen {
  const Experiment* from;
  const Trial* trial;
  const Cell* cell;
  std::string open;  ///< which pattern it fits, and what the pattern's star stands for
};

/// Which of the patterns fits, by its number, and what its star stands for.
std::string place_of(const std::string& patterns, const std::string& name) {
  const Words all = split(patterns, ',');
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!matches(all[i], name)) continue;
    const auto star = all[i].find('*');
    const std::string open =
        star == std::string::npos ? "" : name.substr(star, name.size() - all[i].size() + 1);
    return fmt::format("{} {}", i, open);
  }
  return "";
}

class Figures {
 public:
  explicit Figures(const std::vector<Experiment>& experiments) : experiments_(experiments) {}

  std::string value(const Words& words) {
    const std::string& name = words.at(0);
    const Words rest(words.begin() + 1, words.end());
    if (name == "error") return error(rest.at(0));
    if (name == "error-of") return error_of(rest.at(0), std::stoull(rest.at(1)));
    if (name == "paper" || name == "paper-success") return paper(rest.at(0), name != "paper");
    if (name == "paper-ahead") return paper_ahead(rest.at(0), rest.at(1));
    if (name == "success" || name == "failed") return count(rest.at(0), name == "failed");
    if (name == "steps") return steps(rest.at(0));
    if (name == "runs") return runs(rest.at(0));
    if (name == "gradient") return gradient(rest.at(0));
    if (name == "rise") return rise(rest.at(0));
    if (name == "noise") return noise(rest);
    if (name == "trials") return std::to_string(trials(std::stoll(rest.at(0))));
    if (name == "paper-cells") return std::to_string(paper_cells(std::stoll(rest.at(0))));
    if (name == "row") return row(rest);
    if (name == "verdict") return verdict(rest);
    if (const auto found = comparison(words))
      return name == "slope" ? fmt::format("{:.3f} points each (95 %: {:.3f} to {:.3f})",
                                           -found->mean, -found->high, -found->low)
             : std::isnan(found->low)
                 ? fmt::format("{:.2f} (no interval)", found->mean)
                 : fmt::format("{:.2f} ({:.2f} to {:.2f})", found->mean, found->low, found->high);
    throw Error("no such figure");
  }

  /// Of an expression that compares. Positive: as claimed.
  std::optional<Difference> comparison(const Words& words) {
    if (words.at(0) == "ahead") return welch(errors(words.at(1)), errors(words.at(2)));
    if (words.at(0) == "paired") return paired(differences(words.at(1), words.at(2)));
    if (words.at(0) == "slope") return slope(words.at(1));
    return {};
  }

  /// Adds a comparison to those that are corrected for each other.
  void count_in(const Words& words) {
    const std::string key = fmt::format("{}", fmt::join(words, " "));
    if (const auto found = comparison(words); found && !std::isnan(found->low))
      uncorrected_.emplace(key, found->p);
  }
  void correct() {
    std::vector<double> all;
    for (const auto& [key, p] : uncorrected_) all.push_back(p);
    const std::vector<double> found = holm(all);
    std::size_t i = 0;
    for (const auto& [key, p] : uncorrected_) corrected_[key] = found[i++];
  }

 private:
  const Experiment& experiment(const std::string& name) const {
    for (const Experiment& one : experiments_)
      if (one.recipe.name == name) return one;
    throw Error("no experiment " + name);
  }

  std::vector<Chosen> chosen(const std::string& set) const {
    std::vector<Chosen> found;
    for (const std::string& part : split(set, '+')) {
      const auto colon = part.find(':');
      require(colon != std::string::npos, "expected EXPERIMENT:CELL, got {}", part);
      const Experiment& from = experiment(part.substr(0, colon));
      const std::string patterns = part.substr(colon + 1);
      const std::size_t before = found.size();
      for (const Cell& cell : from.recipe.cells)
        if (matches(patterns, cell.name))
          for (const Trial* trial : from.results.of(cell))
            found.push_back({&from, trial, &cell, place_of(patterns, cell.name)});
      require(found.size() > before, "{} has no trials", part);
    }
    return found;
  }

  std::vector<double> errors(const std::string& set) const {
    std::vector<double> found;
    for (const Chosen& one : chosen(set))
      if (!one.trial->result.failure) found.push_back(100 * one.trial->result.test_error);
    return found;
  }

  std::vector<double> differences(const std::string& a, const std::string& b) const {
    std::vector<double> found;
    const auto others = chosen(b);
    for (const Chosen& one : chosen(a))
      for (const Chosen& other : others)
        if (one.open == other.open && one.trial->seed == other.trial->seed &&
            !one.trial->result.failure && !other.trial->result.failure)
          found.push_back(100 * (other.trial->result.test_error - one.trial->result.test_error));
    require(found.size() > 1, "expected two pairs or more");
    return found;
  }

  /// Negative of the slope: positive where the error falls.
  Difference slope(const std::string& set) const {
    std::vector<double> x, y;
    for (const Chosen& one : chosen(set)) {
      require(one.cell->x.has_value(), "{} has no x", one.cell->name);
      if (one.trial->result.failure) continue;
      x.push_back(*one.cell->x);
      y.push_back(100 * one.trial->result.test_error);
    }
    require(x.size() > 2, "expected three trials or more");
    const double mx = mean_of(x), my = mean_of(y), sxx = squares_of(x);
    double sxy = 0, rest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sxy += (x[i] - mx) * (y[i] - my);
    const double found = sxy / sxx, freedom = double(x.size()) - 2;
    for (std::size_t i = 0; i < x.size(); ++i) rest += std::pow(y[i] - my - found * (x[i] - mx), 2);
    return with_interval(-found, std::sqrt(rest / freedom / sxx), freedom);
  }

  std::string error(const std::string& set) const {
    const auto found = errors(set);
    require(!found.empty(), "every trial failed");
    const report::Spread spread = report::spread(found);
    return report::mean_text(spread.mean, spread.deviation);
  }

  std::string error_of(const std::string& set, std::uint64_t seed) const {
    for (const Chosen& one : chosen(set))
      if (one.trial->seed == seed && !one.trial->result.failure)
        return fmt::format("{:.2f}", 100 * one.trial->result.test_error);
    throw Error("no such trial");
  }

  std::string paper(const std::string& place, bool success) const {
    const auto colon = place.find(':');
    require(colon != std::string::npos, "expected EXPERIMENT:CELL, got {}", place);
    const Cell* cell = experiment(place.substr(0, colon)).recipe.find(place.substr(colon + 1));
    require(cell != nullptr && (success ? cell->paper.success : cell->paper.mean).has_value(),
            "the paper has no such figure");
    return success ? fmt::format("{:g} %", *cell->paper.success)
                   : report::mean_text(*cell->paper.mean, cell->paper.deviation.value_or(kNotDone));
  }

  std::string paper_ahead(const std::string& a, const std::string& b) const {
    const auto mean = [&](const std::string& place) {
      const auto colon = place.find(':');
      require(colon != std::string::npos, "expected EXPERIMENT:CELL, got {}", place);
      std::vector<double> means;
      for (const Cell& cell : experiment(place.substr(0, colon)).recipe.cells)
        if (matches(place.substr(colon + 1), cell.name) && cell.paper.mean)
          means.push_back(*cell.paper.mean);
      require(!means.empty(), "the paper has no such figure");
      return mean_of(means);
    };
    return fmt::format("{:.2f}", mean(b) - mean(a));
  }

  std::string count(const std::string& set, bool failed) const {
    const auto all = chosen(set);
    const auto found = std::ranges::count_if(
        all, [&](const Chosen& one) { return one.trial->result.failure.has_value() == failed; });
    return fmt::format("{} of {}", found, all.size());
  }

  std::string steps(const std::string& set) const {
    std::vector<std::int64_t> found;
    for (const Chosen& one : chosen(set))
      if (one.trial->result.failure) found.push_back(one.trial->result.failure->step);
    require(!found.empty(), "no trial failed");
    const auto [least, most] = std::ranges::minmax(found);
    return least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
  }

  std::string runs(const std::string& set) const {
    std::map<double, std::int64_t> by_epochs;
    for (const Chosen& one : chosen(set))
      ++by_epochs[one.from->results.options.value("epochs", 0.0)];
    std::string text;
    for (const auto& [epochs, trials] : by_epochs)
      text += fmt::format("{}{:g} x {}", text.empty() ? "" : ", ", epochs, trials);
    return text;
  }

  std::string gradient(const std::string& set) const {
    double most = 0;
    for (const Chosen& one : chosen(set))
      for (const double norm : one.trial->gradient)
        if (std::isfinite(norm)) most = std::max(most, norm);
    return most < 100 ? fmt::format("{:.1f}", most) : thousands(most);
  }

  std::string rise(const std::string& set) const {
    double most = 0;
    for (const Chosen& one : chosen(set)) {
      const auto& loss = one.trial->loss;
      for (std::size_t i = loss.size() / 10; i + 1 < loss.size(); ++i)
        most = std::max(most, loss[i + 1] - loss[i]);
    }
    return fmt::format("{:.2f}", most);
  }

  std::string noise(const Words& sets) const {
    double squares = 0, freedom = 0;
    for (const std::string& set : sets) {
      std::map<std::uint64_t, std::vector<double>> by_seed;
      for (const Chosen& one : chosen(set))
        if (!one.trial->result.failure)
          by_seed[one.trial->seed].push_back(100 * one.trial->result.test_error);
      for (const auto& [seed, found] : by_seed)
        squares += squares_of(found), freedom += double(found.size() - 1);
    }
    require(freedom > 0, "no seed was run twice");
    return fmt::format("{:.2f}", std::sqrt(squares / freedom));
  }

  static bool has_epochs(const Experiment& one, std::int64_t epochs) {
    return one.recipe.results_of.empty() &&
           one.results.options.value("epochs", 0.0) == double(epochs);
  }
  std::int64_t trials(std::int64_t epochs) const {
    std::int64_t found = 0;
    for (const Experiment& one : experiments_)
      if (has_epochs(one, epochs)) found += std::int64_t(one.results.trials.size());
    return found;
  }
  std::int64_t paper_cells(std::int64_t epochs) const {
    std::int64_t found = 0;
    for (const Experiment& one : experiments_)
      if (has_epochs(one, epochs))
        for (const Cell& cell : one.recipe.cells)
          found += cell.same_as.empty() && cell.paper.any() && !one.results.of(cell).empty();
    return found;
  }

  std::string row(const Words& words) const {
    const Json& rows = experiment(words.at(0)).results.measured.at(words.at(1));
    std::vector<double> found;
    for (const Json& one : rows) {
      bool fits = true;
      for (std::size_t i = 4; i < words.size(); ++i) {
        const auto equals = words[i].find('=');
        require(equals != std::string::npos, "expected NAME=VALUE, got {}", words[i]);
        const Json& value = one.at(words[i].substr(0, equals));
        std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        std::ranges::replace(text, ' ', '_');  // expressions have no spaces within a word
        fits = fits && text == words[i].substr(equals + 1);
      }
      if (fits) found.push_back(number_or_nan(one.at(words.at(2))));
    }
    require(!found.empty(), "no such row");
    const auto [least, most] = std::ranges::minmax(found);
    const auto text = [&](double x) { return fmt::format(fmt::runtime(words.at(3)), x); };
    return text(least) == text(most) ? text(least) : text(least) + " to " + text(most);
  }

  std::string verdict(const Words& words) {
    const auto found = comparison(words);
    require(found.has_value(), "expected ahead, paired or slope");
    if (std::isnan(found->low)) return "inconclusive";
    const double p = corrected_.at(fmt::format("{}", fmt::join(words, " ")));
    if (p < 0.05) return found->mean > 0 ? "holds" : "the reverse";
    if (found->p < 0.05) return found->mean > 0 ? "points that way" : "points the other way";
    return "inconclusive";
  }

  const std::vector<Experiment>& experiments_;
  std::map<std::string, double> uncorrected_, corrected_;
};

}  // namespace

double student_p(double t, double freedom) {
  if (!std::isfinite(t)) return std::isnan(t) ? 1 : 0;
  const double a = freedom / 2, b = 0.5, x = freedom / (freedom + t * t);
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                   : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double student_t95(double freedom) {
  double low = 0, high = 1e6;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (student_p(middle, freedom) > 0.05 ? low : high) = middle;
  }
  return (low + high) / 2;
}

Difference welch(const std::vector<double>& a, const std::vector<double>& b) {
  require(!a.empty() && !b.empty(), "every trial failed");
  const double difference = mean_of(b) - mean_of(a);
  if (a.size() < 2 || b.size() < 2) return {difference, kNotDone, kNotDone, 1};
  const double va = variance_of_mean(a), vb = variance_of_mean(b);
  const double freedom =
      (va + vb) * (va + vb) / (va * va / double(a.size() - 1) + vb * vb / double(b.size() - 1));
  return with_interval(difference, std::sqrt(va + vb), freedom);
}

Difference paired(const std::vector<double>& differences) {
  return with_interval(mean_of(differences), std::sqrt(variance_of_mean(differences)),
                       double(differences.size()) - 1);
}

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) { return p[i]; });
  std::vector<double> corrected(p.size());
  double before = 0;
  for (std::size_t i = 0; i < order.size(); ++i)
    corrected[order[i]] = before =
        std::max(before, std::min(1.0, double(p.size() - i) * p[order[i]]));
  return corrected;
}

std::string with_figures(const std::string& text, const std::vector<Experiment>& experiments) {
  struct Piece {
    std::string before;
    Words words;
  };
  std::vector<Piece> pieces;
  std::size_t at = 0;
  for (std::size_t open; (open = text.find("{{", at)) != std::string::npos;) {
    const std::size_t close = text.find("}}", open);
    require(close != std::string::npos, "expected }}}} after {}", text.substr(open, 40));
    pieces.push_back(
        {text.substr(at, open - at), split(text.substr(open + 2, close - open - 2), ' ')});
    at = close + 2;
  }
  Figures figures(experiments);
  const auto explained = [](const Words& words, const auto& work) {
    try {
      return work();
    } catch (const std::exception& error) {
      throw Error(fmt::format("{{{{{}}}}}: {}", fmt::join(words, " "), error.what()));
    }
  };
  for (const auto& [before, words] : pieces)
    explained(words, [&] {
      figures.count_in(words.at(0) == "verdict" ? Words(words.begin() + 1, words.end()) : words);
    });
  figures.correct();
  std::string out;
  for (const auto& [before, words] : pieces)
    out += before + explained(words, [&] { return figures.value(words); });
  return out + text.substr(at);
}

}  // namespace keel::lab::reproduce
