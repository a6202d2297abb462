// Reads the binary files of CIFAR-10 and CIFAR-100: records of one or two label bytes and 3 x 32 x 32 pixel bytes.

#include <cstring>
#include <sstream>

#include "lab/data/data_set.h"
#include "lab/require.h"
#include "lab/storage/files.h"
#include "lab/storage/json.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = 32, kPixels = 3 * kSide * kSide;

struct CifarFormat {
  const char *name, *folder;
  std::vector<std::string> train, test;
  const char* names;                  ///< the file with the class names
  std::vector<std::int64_t> classes;  ///< of each byte before the pixels. The last one is the label

  std::int64_t record() const { return std::int64_t(classes.size()) + kPixels; }
};

/// `source` is cifar10 or cifar100.
CifarFormat cifar_format(const std::string& source) {
  if (source == "cifar10")
    return {"CIFAR-10",
            "cifar-10-batches-bin",
            {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
             "data_batch_5.bin"},
            {"test_batch.bin"},
            "batches.meta.txt",
            {10}};
  return {"CIFAR-100",  "cifar-100-binary",     {"train.bin"},
          {"test.bin"}, "fine_label_names.txt", {20, 100}};
}

Images parse_records(const std::string& bytes, const CifarFormat& format, const fs::path& file) {
  const std::int64_t size = std::int64_t(bytes.size()), record = format.record();
  require_of(file, size > 0, "expected records of {} bytes, got an empty file", record);
  require_of(
      file, size % record == 0,
      "expected whole records of {} bytes, got {} bytes: record {} is cut short after {} bytes",
      record, size, size / record, size % record);
  const std::int64_t count = size / record;
  Images images{torch::empty({count, 3, kSide, kSide}, torch::kUInt8),
                torch::empty({count}, torch::kLong)};
  for (std::int64_t r = 0; r < count; ++r) {
    const char* at = bytes.data() + r * record;
    for (std::size_t k = 0; k < format.classes.size(); ++k) {
      const std::int64_t label = static_cast<unsigned char>(at[k]), most = format.classes[k] - 1;
      require_of(file, label <= most, "record {} (byte {}): expected a label from 0 to {}, got {}",
                 r, r * record + std::int64_t(k), most, label);
      images.labels.data_ptr<std::int64_t>()[r] = label;
    }
    std::memcpy(images.pixels.data_ptr<std::uint8_t>() + r * kPixels, at + format.classes.size(),
                std::size_t(kPixels));
  }
  return images;
}

Images read_images(const fs::path& folder, const std::vector<std::string>& files,
                   const CifarFormat& format) {
  std::vector<torch::Tensor> pixels, labels;
  for (const std::string& name : files) {
    const Images images = parse_records(read_file(folder / name), format, folder / name);
    pixels.push_back(images.pixels);
    labels.push_back(images.labels);
  }
  return {torch::cat(pixels), torch::cat(labels)};
}

/// The file with names is optional. Without it, classes are named by number.
std::vector<std::string> class_names(const fs::path& file, std::int64_t count) {
  std::vector<std::string> names;
  std::stringstream stream(fs::exists(file) ? read_file(file) : "");
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  for (const std::string& name : names) require_of(file, is_utf8(name), "expected names in UTF-8");
  if (names.empty())
    for (std::int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  require_of(file, std::int64_t(names.size()) == count, "expected the names of {} classes, got {}",
             count, names.size());
  return names;
}

}  // namespace

DataSet load_cifar(const DataOptions& options) {
  const CifarFormat format = cifar_format(options.source);
  fs::path folder = options.path;
  require_of(folder, fs::is_directory(folder), "expected the folder with {}'s binary files",
             format.name);
  if (fs::is_directory(folder / format.folder)) folder /= format.folder;

  DataSet data;
  data.name = format.name;
  data.classes = class_names(folder / format.names, format.classes.back());
  const auto read = [&](const std::vector<std::string>& files, std::int64_t limit) {
    const Images all = read_images(folder, files, format);
    return resized(limited(all, limit, options.seed), options.size);
  };
  data.train = read(format.train, options.train_limit);
  data.test = read(format.test, options.test_limit);
  measure(data);
  if (options.source == "cifar10") {  // the usual constants for CIFAR-10
    data.mean = {0.4914, 0.4822, 0.4465};
    data.deviation = {0.2023, 0.1994, 0.2010};
  }
  return data;
}

}  // namespace keel::lab
