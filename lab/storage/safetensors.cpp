#include "lab/storage/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lab/require.h"
#include "lab/storage/files.h"
#include "lab/storage/json.h"

namespace keel::lab {
namespace {

using nlohmann::json;
using torch::Tensor;

static_assert(std::endian::native == std::endian::little, "the format's numbers are little-endian");

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the limit of the format's own reader

struct TypeName {
  const char* name;
  torch::Dtype type;
};
constexpr std::array<TypeName, 10> kTypes{{{"BOOL", torch::kBool},
                                           {"U8", torch::kUInt8},
                                           {"I8", torch::kInt8},
                                           {"I16", torch::kInt16},
                                           {"I32", torch::kInt32},
                                           {"I64", torch::kInt64},
                                           {"F16", torch::kFloat16},
                                           {"BF16", torch::kBFloat16},
                                           {"F32", torch::kFloat32},
                                           {"F64", torch::kFloat64}}};

const char* name_of(const std::string& tensor, torch::Dtype type) {
  for (const auto& known : kTypes)
    if (known.type == type) return known.name;
  throw Error(
      fmt::format("tensor '{}' has type {}, which the format lacks", tensor, c10::toString(type)));
}

/// One tensor of the header, checked.
struct Entry {
  std::string name;
  torch::Dtype type{};
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

class Parser {
 public:
  /// `bytes` may be the beginning of a file of that size, with its header.
  Parser(const std::string& bytes, std::uint64_t size, const std::string& file)
      : bytes_(bytes), size_(size), file_(file) {}

  std::vector<Entry> entries(std::map<std::string, std::string>* about = nullptr) {
    require_that(size_ >= kLengthBytes, "it is {} bytes long, too short for a header", size_);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), kLengthBytes);
    require_that(length <= kLongestHeader && length <= bytes_.size() - kLengthBytes,
                 "its header should be {} bytes long, the file is {}", length, size_);
    const json header = parse_header(std::string_view(bytes_).substr(kLengthBytes, length));
    data_ = kLengthBytes + length;

    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name != "__metadata__")
        entries.push_back(entry(name, value));
      else if (auto read = metadata(value); about != nullptr)
        *about = std::move(read);
    }
    check_cover(entries);
    return entries;
  }

  SafeTensors parse() {
    SafeTensors result;
    for (const Entry& e : entries(&result.metadata)) result.tensors.emplace(e.name, tensor(e));
    return result;
  }

 private:
  template <typename... Args>
  void require_that(bool holds, fmt::format_string<Args...> text, Args&&... args) const {
    if (!holds)
      throw Error(
          fmt::format("{} is damaged: {}", file_, fmt::format(text, std::forward<Args>(args)...)));
  }

  json parse_header(std::string_view text) const {
    json header;
    try {
      header = parse_json(text, "its header");
    } catch (const Error& error) {
      require_that(false, "{}", error.what());
    }
    require_that(header.is_object(), "its header is no JSON object");
    return header;
  }

  std::map<std::string, std::string> metadata(const json& value) const {
    require_that(value.is_object(), "its metadata is no object");
    std::map<std::string, std::string> result;
    for (const auto& [key, text] : value.items()) {
      require_that(text.is_string(), "its metadata '{}' is no text", key);
      result.emplace(key, text.get<std::string>());
    }
    return result;
  }

  Entry entry(const std::string& name, const json& value) const {
    require_that(value.is_object() && value.size() == 3 && value.contains("dtype") &&
                     value.contains("shape") && value.contains("data_offsets"),
                 "tensor '{}' is not described by dtype, shape and data_offsets", name);
    const json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
    const auto unsigned_numbers = [](const json& list) {
      return list.is_array() && std::all_of(list.begin(), list.end(), [](const json& number) {
               return number.is_number_unsigned();
             });
    };
    Entry result;
    result.name = name;
    const auto known = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& type) {
      return dtype.is_string() && dtype.get<std::string>() == type.name;
    });
    require_that(known != kTypes.end(), "tensor '{}' has the unknown type {}", name, dtype.dump());
    result.type = known->type;
    require_that(unsigned_numbers(shape) && shape.size() <= 16, "tensor '{}' has no valid shape",
                 name);
    require_that(unsigned_numbers(offsets) && offsets.size() == 2,
                 "tensor '{}' has no valid data_offsets", name);
    result.begin = offsets[0].get<std::uint64_t>();
    result.end = offsets[1].get<std::uint64_t>();
    const std::uint64_t held = size_ - data_;
    require_that(result.begin <= result.end && result.end <= held,
                 "tensor '{}' lies at bytes {} to {} of {}", name, result.begin, result.end, held);

    // In 128 bits with a bound after each factor, because sizes from a file may be anything. The other extents count
    // even if one is 0, because LibTorch multiplies them for its strides.
    unsigned __int128 size = c10::elementSize(result.type);
    bool empty = false;
    for (const json& extent : shape) {
      const auto n = extent.get<std::uint64_t>();
      result.shape.push_back(std::int64_t(n));
      empty = empty || n == 0;
      size = std::min<unsigned __int128>(size * std::max<std::uint64_t>(n, 1),
                                         std::numeric_limits<std::uint64_t>::max());
    }
    require_that(size <= std::uint64_t(std::numeric_limits<std::int64_t>::max()),
                 "tensor '{}' has shape {}, too large for any memory", name, shape.dump());
    if (empty) size = 0;
    require_that(size == result.end - result.begin,
                 "tensor '{}' of type {} and shape {} has {} bytes", name, dtype.dump(),
                 shape.dump(), result.end - result.begin);
    return result;
  }

  /// Checks that the tensors fill the file without gaps or overlaps.
  void check_cover(std::vector<Entry>& entries) const {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t reached = 0;
    for (const Entry& e : entries) {
      require_that(e.begin == reached, "tensor '{}' begins at byte {}, expected {}", e.name,
                   e.begin, reached);
      reached = e.end;
    }
    require_that(reached == size_ - data_, "it has {} bytes of tensors, expected {}", size_ - data_,
                 reached);
  }

  Tensor tensor(const Entry& entry) const {
    Tensor result = torch::empty(entry.shape, entry.type);
    if (entry.end > entry.begin)
      std::memcpy(result.data_ptr(), bytes_.data() + data_ + entry.begin, entry.end - entry.begin);
    return result;
  }

  const std::string& bytes_;
  const std::uint64_t size_;
  const std::string& file_;
  std::size_t data_ = 0;  ///< the end of the header
};

}  // namespace

std::string safetensors_bytes(const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata) {
  // Wide types first, so that every tensor is aligned to its own size.
  NamedTensors ordered = tensors;
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return a.second.element_size() > b.second.element_size();
  });
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : ordered) {
    require(name != "__metadata__" && !header.contains(name), "'{}' is taken", name);
    const std::uint64_t end = offset + tensor.numel() * tensor.element_size();
    header[name] = {{"dtype", name_of(name, tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(kLengthBytes, '\0');
  bytes.reserve(kLengthBytes + length + offset);
  std::memcpy(bytes.data(), &length, kLengthBytes);
  bytes += text;
  for (const auto& [name, tensor] : ordered) {
    const Tensor here = tensor.detach().to(torch::kCPU).contiguous();
    if (here.numel() > 0)
      bytes.append(static_cast<const char*>(here.data_ptr()), here.numel() * here.element_size());
  }
  return bytes;
}

SafeTensors parse_safetensors(const std::string& bytes, const std::string& file) {
  return Parser(bytes, bytes.size(), file).parse();
}

std::map<std::string, std::vector<std::int64_t>> read_shapes(const std::filesystem::path& file) {
  const Beginning start = read_beginning(file, kLengthBytes + (std::size_t{1} << 20));
  std::map<std::string, std::vector<std::int64_t>> shapes;
  const std::string name = file.string();
  for (Entry& e : Parser(start.bytes, start.size, name).entries())
    shapes.emplace(e.name, std::move(e.shape));
  return shapes;
}

}  // namespace keel::lab
