#include "lab/data/data_set.h"

#include <map>

#include "lab/data/sources.h"
#include "lab/one_of.h"

namespace keel::lab {

const std::vector<std::string>& data_sources() {
  static const std::vector<std::string> names{"synthetic", "cifar10", "cifar100", "folder",
                                              "packed"};
  return names;
}

const std::vector<std::string>& data_labels() {
  static const std::vector<std::string> names{"fine", "coarse"};
  return names;
}

void validate(const DataOptions& options) {
  const auto expect = [](bool holds, const char* what, auto got) {
    require(holds, "expected {}, got {}", what, got);
  };
  require_one_of("source", options.source, data_sources());
  require_one_of("labels", options.labels, data_labels());
  expect(options.size == 0 || (options.size >= 4 && options.size <= 1024),
         "size from 4 to 1024, or 0", options.size);
  expect(options.train_limit >= 0, "train_limit >= 0", options.train_limit);
  expect(options.test_limit >= 0, "test_limit >= 0", options.test_limit);
  if (options.source == "synthetic")
    expect(options.size > 0, "size >= 4 of synthetic images", options.size);
  else
    require(!options.path.empty(), "expected path, which source {} needs, got none",
            options.source);
}

namespace {

DataSet loaded(const DataOptions& options, const Progress& progress) {
  if (options.source == "synthetic") return load_synthetic(options, progress);
  if (options.source == "folder") return load_folder(options, progress);
  if (options.source == "packed") return load_packed(options, progress);
  return load_cifar(options, progress);
}

/// Classes must have different names, because other data's classes are matched by name.
void require_different(const DataOptions& options, const std::vector<std::string>& classes) {
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const auto [first, is_new] = places.emplace(classes[i], i);
    require(is_new,
            "{}: expected classes of different names, got "
            "'{}' for classes {} and {}",
            options.path.string(), classes[i], first->second, i);
  }
}

}  // namespace

DataSet load(const DataOptions& options, const Progress& progress) {
  validate(options);
  try {
    DataSet data = loaded(options, progress);
    require_different(options, data.classes);
    return data;
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error("" + error.path1().string() + ": " + error.code().message());
  }
}

}  // namespace keel::lab
