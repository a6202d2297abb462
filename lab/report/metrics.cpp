#include "lab/report/metrics.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "keel/error.h"
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
      require(record.is_object(),
              fmt::format("{}, line {} is no JSON object", path.string(), number));
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
  if (last_step >= 0 && std::filesystem::exists(path)) {
    const auto records = read_metrics(path, say);
    auto fresh = path;
    fresh += ".new";  // renamed over the old one: a kill in between loses nothing
    std::ofstream out(fresh);
    for (const Json& record : records)
      if (step_of(record) <= last_step) out << record.dump() << '\n';
    out.close();
    std::error_code failed;
    if (out) std::filesystem::rename(fresh, path, failed);
    if (!out || failed) {
      std::filesystem::remove(fresh, failed);
      // Behind a line that was cut off, appended records would make the file unreadable.
      file_.setstate(std::ios::failbit);
      return;
    }
    file_.open(path, std::ios::app);
  } else {
    file_.open(path, std::ios::trunc);
  }
}

void MetricsWriter::write(const Json& record) {
  file_ << record.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
}

}  // namespace keel::lab::report
