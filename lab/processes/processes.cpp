#include "lab/processes/processes.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lab/require.h"
#include "lab/storage/json.h"

namespace keel::lab {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == 0) return std::nullopt;
  return value;
}

std::string needed(const char* name) {
  const auto text = variable(name);
  require(text.has_value(), "expected the variable {} beside RANK and WORLD_SIZE, got none", name);
  return *text;
}

std::int64_t number(const char* name, std::int64_t least, std::int64_t most) {
  const std::string text = needed(name);
  const auto value = number_in<std::int64_t>(text);
  require(value && *value >= least && *value <= most, "expected {} from {} to {}, got '{}'", name,
          least, most, text);
  return *value;
}

std::string first_line_of(const std::exception& error) {
  const auto* torchs = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torchs != nullptr ? torchs->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::optional<Place> place_from_environment() {
  if (!variable("RANK") && !variable("WORLD_SIZE")) return std::nullopt;
  Place place;
  place.size = number("WORLD_SIZE", 1, 1 << 20);
  place.process = number("RANK", 0, place.size - 1);
  if (variable("LOCAL_RANK")) place.local_rank = number("LOCAL_RANK", 0, place.process);
  place.port = int(number("MASTER_PORT", 1, 65535));
  place.address = needed("MASTER_ADDR");
  place.store_is_kept = variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  place.attempt = variable("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return place;
}

Processes::Processes(const Place& place, torch::Device device, std::chrono::milliseconds timeout)
    : place_(place), device_(device) {
  try {
    group_ = connect(place_, device_, timeout);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw ProcessError(
        fmt::format("process {} of {} found not all others at {}:{} (MASTER_ADDR, MASTER_PORT) "
                    "within {:g} s: {}",
                    process(), size(), place_.address, place_.port, double(timeout.count()) / 1e3,
                    first_line_of(error)));
  }
}

std::pair<std::int64_t, std::int64_t> Processes::part_of(std::int64_t count) const {
  return {count * process() / size(), count * (process() + 1) / size()};
}

void Processes::run(void (Group::*collective)(torch::Tensor&), torch::Tensor& tensor) {
  try {
    (*group_.*collective)(tensor);
  } catch (const std::exception& error) {
    broken_ =
        fmt::format("process {} of {} stops, because another one has ended or does not answer: {}",
                    process(), size(), first_line_of(error));
    throw ProcessError(broken_);
  }
}

void Processes::sum(torch::Tensor& tensor) { run(&Group::sum, tensor); }

void Processes::broadcast(torch::Tensor& tensor) { run(&Group::broadcast, tensor); }

keel::nn::ProcessGroup Processes::group() {
  return {process(), size(), [this](torch::Tensor& tensor) { sum(tensor); }};
}

std::vector<bool> Processes::any(const std::vector<bool>& here) {
  torch::Tensor flags = torch::tensor(std::vector<float>(here.begin(), here.end())).to(device_);
  sum(flags);
  flags = flags.cpu();
  const float* const first = flags.data_ptr<float>();
  return std::vector<bool>(first, first + here.size());  // not zero: true
}

void Processes::require_same(const nlohmann::json& settings) {
  const std::string mine = settings.dump();
  torch::Tensor size = torch::tensor({std::int64_t(mine.size())}).to(device_);
  broadcast(size);
  torch::Tensor text = torch::zeros({size.item<std::int64_t>()}, torch::kByte);
  if (is_first()) std::memcpy(text.data_ptr(), mine.data(), mine.size());
  text = text.to(device_);
  broadcast(text);
  text = text.cpu();
  const auto firsts =
      parse_json(std::string(static_cast<const char*>(text.data_ptr()), std::size_t(text.numel())),
                 "the settings of process 0");
  std::string difference;
  for (const auto& [name, value] : settings.items())
    if (difference.empty() && (!firsts.contains(name) || firsts[name] != value))
      difference = fmt::format("{} {}, process 0 {}", name, value.dump(),
                               firsts.value(name, nlohmann::json()).dump());
  std::vector<bool> differs(std::size_t(this->size()));
  differs[std::size_t(process())] = !difference.empty();
  differs = any(differs);
  for (std::size_t i = 0; i < differs.size(); ++i)
    if (differs[i])
      throw ProcessError(fmt::format("process {} was given {}", i,
                                     std::int64_t(i) == process() ? difference : "other options"));
}

}  // namespace keel::lab
