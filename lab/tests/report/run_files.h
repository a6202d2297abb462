#pragma once

// Run folders written by hand, for tests of their readers.

#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "support/files.h"

namespace keel::lab::report::testing {

namespace fs = std::filesystem;

using keel::testing::TemporaryFolder;

inline void write(const fs::path& file, const std::string& text) {
  keel::testing::write_bytes(file, text);
}

inline std::string read(const fs::path& file) { return keel::testing::read_bytes(file); }

/// Writes two epochs of ten steps each, with a record at steps 10 and 20. The last test error is as given, and so is
/// the recalibrated one, if given.
inline void write_run(const fs::path& folder, const std::string& settings,
                      const std::string& test_error, const std::string& recalibrated = "") {
  const std::string again =
      recalibrated.empty() ? "" : R"(,"recalibrated_test_error":)" + recalibrated;
  write(folder / "config.toml", settings);
  std::string lines = R"({"kind":"start","step":0})"
                      "\n";
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto step = std::to_string(10 * (epoch + 1)), e = std::to_string(epoch);
    lines += R"({"kind":"step","step":)" + step + R"(,"epoch":)" + e +
             R"(,"loss":1.5,"error":0.5,"learning_rate":0.1,"gradient_norm_layer":2.0,)" +
             R"("rank":3,"smallest_gap":0.0,"images_per_second":1000})" + "\n";
    lines += R"({"kind":"epoch","step":)" + step + R"(,"epoch":)" + e +
             R"(,"train_loss":1.5,"train_error":0.5,"test_loss":1.4,"test_error":)" + test_error +
             again + R"(,"seconds":2.5})" + "\n";
  }
  write(folder / "metrics.jsonl", lines);
  write(folder / "result.json", R"({"status":"finished","test_error":)" + test_error + again +
                                    R"(,"images_per_second":1000,"device":"cpu"})");
}

inline void write_failed_run(const fs::path& folder, const std::string& settings, int step) {
  write(folder / "config.toml", settings);
  const auto s = std::to_string(step);
  write(folder / "metrics.jsonl",
        R"({"kind":"failure","step":)" + s +
            R"(,"where":"gradient of conv1.weight","layer":"bn1","smallest_gap":0.0,)" +
            R"("what":"The gradient is <not finite>."})" + "\n");
  write(folder / "result.json",
        R"({"status":"failed","test_error":null,"images_per_second":null})");
}

inline std::string settings(const std::string& norm, const std::string& rule, int seed) {
  return "# a comment\nmodel = \"resnet_small\"\nnorm = \"" + norm + "\"\nrule = \"" + rule +
         "\"\ngroup_size = 0\nenergy = 0.99\ncomponents = 0\nepochs = 2\nseed = " +
         std::to_string(seed) + "\n";
}

/// The first element of HTML or SVG that is not closed in order, or an empty text.
inline std::string first_unbalanced(const std::string& html) {
  static const std::set<std::string> empty = {"meta", "br", "!doctype"};
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-zA-Z!][a-zA-Z0-9]*)((?:[^>'\"]|'[^']*'|\"[^\"]*\")*)>");
  for (std::sregex_iterator i(html.begin(), html.end(), tag), end; i != end; ++i) {
    const std::string name = (*i)[2], rest = (*i)[3];
    if (empty.count(name) || rest.ends_with('/')) continue;
    if ((*i)[1].length() == 0) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return "</" + name + "> closes " + (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back() + " stays open";
}

}  // namespace keel::lab::report::testing
