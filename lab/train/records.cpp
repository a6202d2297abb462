#include <nlohmann/json.hpp>

#include "lab/storage/json.h"
#include "lab/train/trainer.h"

namespace keel::lab {

nlohmann::json to_json(const Failure& failure) {
  nlohmann::json gradients = nlohmann::json::array();
  for (const double norm : failure.gradients) gradients.push_back(finite_or_null(norm));
  return {{"step", failure.step},   {"where", failure.where},
          {"layer", failure.layer}, {"smallest_gap", finite_or_null(failure.smallest_gap)},
          {"gradients", gradients}, {"what", failure.what}};
}

nlohmann::json to_json(const Result& result) {
  nlohmann::json json = {
      {"status", result.status},
      {"steps", result.steps},
      {"epochs", result.epochs},
      {"train_loss", finite_or_null(result.train_loss)},
      {"train_error", finite_or_null(result.train_error)},
      {"test_loss", finite_or_null(result.test_loss)},
      {"test_error", finite_or_null(result.test_error)},
      {"best_test_error", finite_or_null(result.best_test_error)},
      {"recalibrated_test_error", finite_or_null(result.recalibrated_test_error)},
      {"images_per_second", result.images_per_second},
      {"peak_mib", result.peak_mib > 0 ? nlohmann::json(result.peak_mib) : nlohmann::json()},
      {"seconds", result.seconds},
      {"recalibration_seconds", result.recalibration_seconds}};
  json["failure"] = result.failure ? to_json(*result.failure) : nlohmann::json();
  if (!result.unsaved.empty()) json["unsaved"] = result.unsaved;
  return json;
}

}  // namespace keel::lab
