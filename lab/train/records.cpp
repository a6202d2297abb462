#include "lab/train/records.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "lab/storage/json.h"

namespace keel::lab {
namespace {

using Json = nlohmann::ordered_json;

/// Calls visit(name, field) for each field of a record, except the failure of a result.
template <typename Given, typename Visit>
void visit_record(Given& r, Visit&& visit) {
  using Record = std::remove_const_t<Given>;
  if constexpr (std::is_same_v<Record, StepRecord>) {
    visit("step", r.step);
    visit("epoch", r.epoch);
    visit("loss", r.loss);
    visit("error", r.error);
    visit("learning_rate", r.learning_rate);
    visit("gradient_norm_layer", r.gradient_norm_layer);
    visit("rank", r.rank);
    visit("smallest_gap", r.smallest_gap);
    visit("images_per_second", r.images_per_second);
  } else if constexpr (std::is_same_v<Record, EpochRecord>) {
    visit("step", r.step);
    visit("epoch", r.epoch);
    visit("train_loss", r.train_loss);
    visit("train_error", r.train_error);
    visit("test_loss", r.test_loss);
    visit("test_error", r.test_error);
    visit("seconds", r.seconds);
    visit("recalibrated_test_loss", r.recalibrated_test_loss);
    visit("recalibrated_test_error", r.recalibrated_test_error);
    visit("recalibration_seconds", r.recalibration_seconds);
    visit("followed_test_loss", r.followed_test_loss);
    visit("followed_test_error", r.followed_test_error);
  } else if constexpr (std::is_same_v<Record, Failure>) {
    visit("step", r.step);
    visit("where", r.where);
    visit("layer", r.layer);
    visit("smallest_gap", r.smallest_gap);
    visit("gradients", r.gradients);
    visit("what", r.what);
  } else {
    visit("status", r.status);
    visit("steps", r.steps);
    visit("epochs", r.epochs);
    visit("train_loss", r.train_loss);
    visit("train_error", r.train_error);
    visit("test_loss", r.test_loss);
    visit("test_error", r.test_error);
    visit("best_test_error", r.best_test_error);
    visit("recalibrated_test_error", r.recalibrated_test_error);
    visit("followed_test_error", r.followed_test_error);
    visit("images_per_second", r.images_per_second);
    visit("peak_mib", r.peak_mib);
    visit("seconds", r.seconds);
    visit("recalibration_seconds", r.recalibration_seconds);
    visit("unsaved", r.unsaved);
  }
}

Json json_of(double number) { return finite_or_null(number); }

template <typename Record>
Json json_of(const Record& record) {
  Json json = Json::object();
  visit_record(record, [&](const char* name, const auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, std::vector<double>>) {
      json[name] = Json::array();
      for (const double number : field) json[name].push_back(json_of(number));
    } else if constexpr (std::is_same_v<Field, double>) {
      json[name] = json_of(field);
    } else {
      json[name] = field;
    }
  });
  return json;
}

template <typename Record>
Record record_of(const Json& json) {
  Record record;
  visit_record(record, [&](const char* name, auto& field) {
    using Field = std::decay_t<decltype(field)>;
    const Json value = json.value(name, Json());
    if constexpr (std::is_same_v<Field, double>)
      field = number_or_nan(value);
    else if constexpr (std::is_same_v<Field, std::vector<double>>)
      for (const Json& one : value) field.push_back(number_or_nan(one));
    else if constexpr (std::is_same_v<Field, std::string>)
      field = value.is_string() ? value.template get<std::string>() : "";
    else
      field = value.is_number_integer() ? value.template get<Field>() : 0;
  });
  return record;
}

}  // namespace

Json to_json(const StepRecord& record) {
  Json json = json_of(record);
  if (std::isfinite(record.rank)) json["rank"] = std::int64_t(record.rank);
  return json;
}

Json to_json(const EpochRecord& record) { return json_of(record); }

Json to_json(const Failure& failure) { return json_of(failure); }

Json to_json(const Result& result) {
  Json json = json_of(result);
  if (!(result.peak_mib > 0)) json["peak_mib"] = nullptr;
  if (result.unsaved.empty()) json.erase("unsaved");
  json["failure"] = result.failure ? to_json(*result.failure) : Json();
  return json;
}

StepRecord step_record(const Json& json) { return record_of<StepRecord>(json); }
EpochRecord epoch_record(const Json& json) { return record_of<EpochRecord>(json); }
Failure failure_record(const Json& json) { return record_of<Failure>(json); }

Result result_record(const Json& json) {
  Result result = record_of<Result>(json);
  if (json.contains("failure") && json.at("failure").is_object())
    result.failure = failure_record(json.at("failure"));
  return result;
}

}  // namespace keel::lab
