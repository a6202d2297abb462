#include "lab/report/metrics.h"

#include <fmt/format.h>

#include <string>

#include "keel/error.h"

namespace keel::lab::report {

std::vector<Json> read_metrics(const std::filesystem::path& path) {
  std::ifstream file(path);
  require(bool(file), fmt::format("keel::read_metrics: cannot open {}", path.string()));
  std::vector<Json> records;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object()) {
      // getline reached the end of the file without a newline: the writer was killed here.
      if (file.eof()) break;
      throw Error(fmt::format("keel::read_metrics: expected a JSON object in {}, line {}, got {}",
                              path.string(), number, line.substr(0, 40)));
    }
    records.push_back(std::move(record));
  }
  return records;
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::int64_t last_step) {
  if (last_step >= 0 && std::filesystem::exists(path)) {
    const auto records = read_metrics(path);
    auto fresh = path;
    fresh += ".new";  // renamed over the old one: a kill in between loses nothing
    std::ofstream out(fresh);
    for (const Json& record : records)
      if (record.value("step", std::int64_t(0)) <= last_step) out << record.dump() << '\n';
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
