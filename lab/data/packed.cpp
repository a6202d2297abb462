// The packed form is a safetensors file, so Python can read it directly: four tensors, and in the metadata the
// format's name, the data set's name, classes and statistics (as JSON) and a checksum.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "lab/data/data_set.h"
#include "lab/require.h"
#include "lab/storage/files.h"
#include "lab/storage/json.h"
#include "lab/storage/safetensors.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Metadata = std::map<std::string, std::string>;

const std::string kPackFormat = "keel data set 1";

std::vector<std::pair<std::string, torch::Tensor*>> parts_of(DataSet& data) {
  return {{"train.pixels", &data.train.pixels},
          {"train.labels", &data.train.labels},
          {"test.pixels", &data.test.pixels},
          {"test.labels", &data.test.labels}};
}

/// Covers everything: the other fields of the metadata and the tensors.
std::string checksum_of(const Metadata& metadata, DataSet& data) {
  std::string summary;
  for (const auto& [name, value] : metadata)
    if (name != "crc32") summary += name + "=" + value + "\n";
  for (const auto& [name, tensor] : parts_of(data)) {
    const std::string_view bytes(static_cast<const char*>(tensor->data_ptr()), tensor->nbytes());
    summary += fmt::format("{}={:08x}\n", name, crc32(bytes));
  }
  return fmt::format("{:08x}", crc32(summary));
}

void take_tensors(const fs::path& file, const SafeTensors& from, DataSet& data) {
  for (const auto& [name, tensor] : parts_of(data)) {
    const auto found = from.tensors.find(name);
    require_of(file, found != from.tensors.end(), "expected a packed data set, it has no {}", name);
    *tensor = found->second;
  }
  for (const auto& [which, images] : {std::pair("train", &data.train), {"test", &data.test}}) {
    const torch::Tensor &pixels = images->pixels, &labels = images->labels;
    require_of(file,
               pixels.scalar_type() == torch::kUInt8 && pixels.dim() == 4 && pixels.numel() > 0 &&
                   pixels.size(1) == 3,
               "{}.pixels: expected uint8 (N, 3, H, W), got {} ({})", which,
               c10::toString(pixels.scalar_type()), fmt::join(pixels.sizes(), ", "));
    require_of(file,
               labels.scalar_type() == torch::kLong && labels.dim() == 1 &&
                   labels.size(0) == pixels.size(0),
               "{}.labels: expected int64 ({}), a label for each image, got {} ({})", which,
               pixels.size(0), c10::toString(labels.scalar_type()),
               fmt::join(labels.sizes(), ", "));
    const auto* label = labels.data_ptr<std::int64_t>();
    const auto classes = std::int64_t(data.classes.size());
    for (std::int64_t i = 0; i < images->count(); ++i)
      require_of(file, label[i] >= 0 && label[i] < classes,
                 "{}.labels: entry {}: expected a label from 0 to {}, got {}", which, i,
                 classes - 1, label[i]);
  }
  require_of(file, data.train.pixels.sizes().slice(1) == data.test.pixels.sizes().slice(1),
             "expected test images of the training images' size");
}

void take_metadata(const fs::path& file, const Metadata& metadata, DataSet& data) {
  const auto field = [&](const std::string& name) {
    const auto found = metadata.find(name);
    require_of(file, found != metadata.end(), "expected a packed data set, its metadata have no {}",
               name);
    return found->second;
  };
  const auto take = [&](const char* name, auto& into) {
    const auto where = fmt::format("{}: its metadata's {}", file.string(), name);
    const json value = parse_json(field(name), where);
    try {
      value.get_to(into);
    } catch (const json::exception& error) {
      throw Error(fmt::format("{}: {}", where, words_of(error)));
    }
  };
  const std::string format = field("format");
  require_of(file, format == kPackFormat, "expected format '{}', got '{}'", kPackFormat, format);
  data.name = field("name");
  take("classes", data.classes);
  take("mean", data.mean);
  take("deviation", data.deviation);
  for (double deviation : data.deviation)
    require_of(file, deviation > 0, "expected deviations > 0, got {}", deviation);
}

}  // namespace

void pack(const DataSet& given, const fs::path& file) {
  DataSet data = given;
  NamedTensors tensors;
  for (const auto& [name, tensor] : parts_of(data)) {
    require(tensor->defined() && tensor->numel() > 0,
            "{}: expected training and test images, got no {}", file.string(), name);
    *tensor = tensor->cpu().contiguous();
    tensors.emplace_back(name, *tensor);
  }
  require(is_utf8(data.name), "{}: expected the set's name in UTF-8", file.string());
  Metadata metadata{{"format", kPackFormat},
                    {"name", data.name},
                    {"classes", json(data.classes).dump()},
                    {"mean", json(data.mean).dump()},
                    {"deviation", json(data.deviation).dump()}};
  metadata["crc32"] = checksum_of(metadata, data);
  write_file_atomically(file, safetensors_bytes(tensors, metadata));
}

DataSet load_packed(const DataOptions& options) {
  const fs::path& file = options.path;
  SafeTensors content;
  try {
    content = parse_safetensors(read_file(file), file.string());
  } catch (const Error& error) {
    throw Error(fmt::format("{}: expected a packed data set: {}", file.string(), error.what()));
  }
  DataSet data;
  take_metadata(file, content.metadata, data);
  take_tensors(file, content, data);
  const std::string expected = content.metadata["crc32"];
  const std::string got = checksum_of(content.metadata, data);
  require_of(file, got == expected, "damaged: expected checksum {}, got {}", expected, got);
  const auto fitted = [&](const Images& images, std::int64_t limit) {
    return resized(limited(images, limit, options.seed), options.size);
  };
  data.train = fitted(data.train, options.train_limit);
  data.test = fitted(data.test, options.test_limit);
  return data;
}

}  // namespace keel::lab
