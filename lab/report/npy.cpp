#include "lab/report/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <regex>
#include <sstream>
#include <vector>

#include "lab/require.h"
#include "lab/storage/files.h"

namespace keel::lab::report {
namespace {

const std::map<std::string, torch::Dtype> kTypes = {{"<f2", torch::kHalf},
                                                    {"<f4", torch::kFloat},
                                                    {"<f8", torch::kDouble},
                                                    {"<i4", torch::kInt},
                                                    {"<i8", torch::kLong}};

constexpr std::size_t kLongestHeader = 1000;  // NumPy writes about a hundred bytes
constexpr double kMostBytes = 0x1p62;

std::vector<std::int64_t> shape_of(const std::filesystem::path& file, const std::string& text) {
  std::vector<std::int64_t> shape;
  std::stringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) {
    word.erase(0, word.find_first_not_of(' '));
    if (word.empty()) continue;
    const auto size = number_in<std::int64_t>(word);
    require_of(file, size && *size <= (1 << 24), "expected sizes from 0 to 2^24, got {}", word);
    shape.push_back(*size);
  }
  require_of(file, shape.size() <= 32, "expected at most 32 axes, got {}", shape.size());
  return shape;
}

}  // namespace

torch::Tensor read_npy(const std::filesystem::path& file) {
  const std::string bytes = read_file(file);
  require_of(file, bytes.size() >= 12 && bytes.starts_with("\x93NUMPY"), "is no .npy file");
  const auto byte = [&](std::size_t i) {
    return std::size_t(static_cast<unsigned char>(bytes[i]));
  };
  require_of(file, byte(6) >= 1 && byte(6) <= 3, "has unknown version {}", byte(6));
  const std::size_t counted = byte(6) == 1 ? 2 : 4;  // bytes of the header's length
  std::size_t length = 0;
  for (std::size_t i = 0; i < counted; ++i) length |= byte(8 + i) << (8 * i);
  const std::size_t start = 8 + counted;
  require_of(file, length <= std::min(kLongestHeader, bytes.size() - start),
             "its header should be {} bytes long", length);
  // A Python dictionary, always written in this way.
  static const std::regex pattern(
      R"(\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\), *\}\s*)");
  const std::string header = bytes.substr(start, length);
  std::smatch found;
  require_of(file, std::regex_match(header, found, pattern), "expected an array's header, got {}",
             header.substr(0, 80));
  const auto type = kTypes.find(found[1]);
  require_of(file, type != kTypes.end(), "expected type <f2, <f4, <f8, <i4 or <i8, got {}",
             found[1].str());
  const bool fortran = found[2] == "True";
  auto shape = shape_of(file, found[3]);
  if (fortran) std::ranges::reverse(shape);
  // In floating point, so that a product of absurd sizes does not wrap around. The other sizes count even if one is
  // 0, because LibTorch multiplies them for its strides.
  double expected = double(torch::elementSize(type->second));
  for (const auto size : shape) expected *= double(std::max<std::int64_t>(size, 1));
  require_of(file, expected <= kMostBytes, "has {:.3g} bytes of numbers", expected);
  if (std::ranges::find(shape, 0) != shape.end()) expected = 0;
  const std::size_t rest = bytes.size() - start - length;
  require_of(file, expected == double(rest), "expected {:.0f} bytes of numbers, got {}", expected,
             rest);
  auto tensor = torch::empty(shape, type->second);
  if (rest > 0) std::memcpy(tensor.data_ptr(), bytes.data() + start + length, rest);
  if (fortran && tensor.dim() > 1) {
    std::vector<std::int64_t> backward(shape.size());
    for (std::size_t i = 0; i < shape.size(); ++i) backward[i] = std::int64_t(shape.size() - 1 - i);
    tensor = tensor.permute(backward);
  }
  return tensor.to(torch::kDouble).contiguous();
}

}  // namespace keel::lab::report
