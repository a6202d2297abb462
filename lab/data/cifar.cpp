// The binary files of CIFAR-10 and CIFAR-100: records of one or two label bytes and 3 x 32 x 32
// pixel bytes.

#include <fmt/format.h>

#include <cstring>
#include <sstream>

#include "lab/data/load_error.h"
#include "lab/data/sources.h"
#include "lab/storage/json.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = 32, kPixels = 3 * kSide * kSide;

struct Format {
  const char *name, *folder, *names;
  std::vector<std::string> train, test;
  /// How many values each label byte has. The last one is the class.
  std::vector<std::int64_t> labels;

  std::int64_t label_bytes() const { return std::int64_t(labels.size()); }
  std::int64_t record() const { return label_bytes() + kPixels; }
};

Format format_of(const std::string& source) {
  if (source == "cifar10")
    return {"CIFAR-10",
            "cifar-10-batches-bin",
            "batches.meta.txt",
            {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
             "data_batch_5.bin"},
            {"test_batch.bin"},
            {10}};
  return {"CIFAR-100",   "cifar-100-binary", "fine_label_names.txt",
          {"train.bin"}, {"test.bin"},       {20, 100}};
}

Images parse_records(const std::string& bytes, const Format& format, const fs::path& file) {
  const std::int64_t size = std::int64_t(bytes.size()), record = format.record();
  require_of(file, size > 0,
             fmt::format("expected records of {} bytes, got an empty file", record));
  require_of(file, size % record == 0,
             fmt::format("expected whole records of {} bytes, got {} bytes: record {} is cut short "
                         "after {} bytes",
                         record, size, size / record, size % record));
  const std::int64_t count = size / record;
  Images images{torch::empty({count, 3, kSide, kSide}, torch::kUInt8),
                torch::empty({count}, torch::kLong)};
  for (std::int64_t r = 0; r < count; ++r) {
    const char* at = bytes.data() + r * record;
    for (std::int64_t k = 0; k < format.label_bytes(); ++k) {
      const std::int64_t label = static_cast<unsigned char>(at[k]);
      const std::int64_t most = format.labels[std::size_t(k)] - 1;
      require_of(file, label <= most,
                 fmt::format("record {} (byte {}): expected a label from 0 to {}, got {}", r,
                             r * record + k, most, label));
      images.labels.data_ptr<std::int64_t>()[r] = label;
    }
    std::memcpy(images.pixels.data_ptr<std::uint8_t>() + r * kPixels, at + format.label_bytes(),
                std::size_t(kPixels));
  }
  return images;
}

Images read_images(const fs::path& folder, const std::vector<std::string>& files,
                   const Format& format, const Progress& progress) {
  std::vector<torch::Tensor> pixels, labels;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const Images images = parse_records(content_of(folder / files[i]), format, folder / files[i]);
    pixels.push_back(images.pixels);
    labels.push_back(images.labels);
    if (progress) progress("reading " + files[i], std::int64_t(i) + 1, std::int64_t(files.size()));
  }
  return {torch::cat(pixels), torch::cat(labels)};
}

/// The names' file goes with the data but nothing depends on it: without it classes have numbers.
std::vector<std::string> class_names(const fs::path& file, std::int64_t count) {
  std::vector<std::string> names;
  std::stringstream stream(fs::exists(file) ? content_of(file) : "");
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  for (const std::string& name : names) require_of(file, is_utf8(name), "expected names in UTF-8");
  if (names.empty())
    for (std::int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  require_of(file, std::int64_t(names.size()) == count,
             fmt::format("expected the names of {} classes, got {}", count, names.size()));
  return names;
}

}  // namespace

Images parse_cifar(const std::string& bytes, const std::string& source, const fs::path& file) {
  return parse_records(bytes, format_of(source), file);
}

DataSet load_cifar(const DataOptions& options, const Progress& progress) {
  const Format format = format_of(options.source);
  fs::path folder = options.path;
  require_of(folder, fs::is_directory(folder),
             fmt::format("expected the folder with {}'s binary files", format.name));
  if (fs::is_directory(folder / format.folder)) folder /= format.folder;

  DataSet data;
  data.name = format.name;
  data.classes = class_names(folder / format.names, format.labels.back());
  const auto read = [&](const std::vector<std::string>& files, std::int64_t limit) {
    const Images all = read_images(folder, files, format, progress);
    return resized(limited(all, limit, options.seed), options.size, progress);
  };
  data.train = read(format.train, options.train_limit);
  data.test = read(format.test, options.test_limit);
  measure(data);
  if (options.source == "cifar10") {  // the constants everyone normalises CIFAR-10 by
    data.mean = {0.4914, 0.4822, 0.4465};
    data.deviation = {0.2023, 0.1994, 0.2010};
  }
  return data;
}

}  // namespace keel::lab
