#pragma once

// Figures for a page that people write, from the results of several experiments. The page's source has {{expressions}} in
// place of figures; `keel reproduce --page` fills them in.

#include <string>
#include <vector>

#include "lab/reproduce/results.h"

namespace keel::lab::reproduce {

/// A recipe and its results.
struct Experiment {
  Recipe recipe;
  Results results;
};

/// A difference, its interval of 95 %, and how unlikely it would be if there were none.
struct Difference {
  double mean = 0, low = 0, high = 0, p = 1;
};
/// The probability that Student's t with that many degrees of freedom is at least |t| from 0.
double student_p(double t, double freedom);
/// The t that student_p says 0.05 of.
double student_t95(double freedom);
/// mean(b) - mean(a), by Welch's test. With fewer than two values on a side there is no interval: NaN, and p = 1.
Difference welch(const std::vector<double>& a, const std::vector<double>& b);
/// The mean of the differences, by Student's test.
Difference paired(const std::vector<double>& differences);
/// Holm's correction: how unlikely each is among all of them.
std::vector<double> holm(const std::vector<double>& p);

/// The text with each {{expression}} replaced. SET is EXPERIMENT:CELL, with patterns and commas in CELL and + between
/// several; trials that failed have no error. Errors are in percent and differences in points; `ahead` is positive where the
/// first SET has the smaller error.
///
///     error SET                 mean and standard deviation of the last epoch's test error
///     error-of SET SEED         the error of one trial
///     paper EXPERIMENT:CELL     the same of the paper; paper-success: its share of trials that succeeded
///     paper-ahead CELLS CELLS   `ahead` of the paper's means
///     success SET, failed SET   "3 of 15"
///     steps SET                 at which steps trials failed: "1 to 74"
///     runs SET                  epochs x trials: "6 x 15"
///     ahead SET SET             difference of the means, with its interval
///     paired SET SET            the same, paired by the seed and by pattern: what the first leaves open, or lists first,
///                               with what the second does
///     slope SET                 of the error over the cells' x, with t
///     verdict OPERATION ...     of ahead, paired or slope: "holds" or "the reverse", if so after Holm's correction over all
///                               differences and slopes of the text; "points that way" or "points the other way", if only
///                               without it; otherwise "inconclusive"
///     gradient SET              the largest finite gradient norm that was recorded
///     rise SET                  the largest rise of the training loss from one record to the next, after the first tenth
///     noise SET...              standard deviation of trials of one seed, pooled over the seeds of each SET
///     trials EPOCHS             how many trials have so many epochs; paper-cells EPOCHS: of how many of the paper's cells
///     row EXPERIMENT LIST FIELD FORMAT NAME=VALUE...   of the rows of a measurement, the one field of those that fit; the
///                               smallest and the largest if there are several
///
/// Throws keel::Error, with the expression, for one that cannot be read or has no trials.
std::string with_figures(const std::string& text, const std::vector<Experiment>& experiments);

}  // namespace keel::lab::reproduce
