#include "lab/report/metrics.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "lab/require.h"
#include "lab/storage/files.h"
#include "lab/storage/json.h"

namespace keel::lab::report {
namespace {

std::int64_t step_of(const Json& record) {
  const auto found = record.find("step");
  return found != record.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

}  // namespace

std::vector<Json> parse_metrics(const std::string& text, const std::filesystem::path& path,
                                const Say& say) {
  std::vector<Json> records;
  std::size_t begin = 0;
  for (std::int64_t number = 1; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    const bool whole = end != std::string::npos;  // if not, the writer was killed here
    const std::string line = text.substr(begin, whole ? end - begin : end);
    begin = whole ? end + 1 : text.size();
    if (line.empty()) continue;
    try {
      Json record = parse_ordered_json(line, fmt::format("{}, line {}", path.string(), number));
      require(record.is_object(), "{}, line {} is no JSON object", path.string(), number);
      records.push_back(std::move(record));
    } catch (const Error& error) {
      if (whole && say) say(fmt::format("{}; it is left out", error.what()));
    }
  }
  return records;
}

std::vector<Json> read_metrics(const std::filesystem::path& path, const Say& say) {
  return parse_metrics(read_file(path), path, say);
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::int64_t last_step,
                             const Say& say) {
  std::string kept;
  if (last_step >= 0 && std::filesystem::exists(path))
    for (const Json& record : read_metrics(path, say))
      if (step_of(record) <= last_step) kept += record.dump() + '\n';
  try {
    replace_file(path, kept);
  } catch (const std::system_error& error) {
    // Records appended after a partial line would make the file unreadable.
    error_ = error.code().value();
    return;
  }
  file_.emplace(path, LogFile::Open::append);
}

void MetricsWriter::write(const Json& record) {
  if (error_ != 0) return;
  file_->write(record.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
}

}  // namespace keel::lab::report
