#include "lab/report/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>
#include <vector>

#include "keel/error.h"
#include "lab/require.h"
#include "lab/storage/files.h"

namespace keel::lab::report {
namespace {

const std::map<std::string, torch::Dtype> kTypes = {{"<f2", torch::kHalf},
                                                    {"<f4", torch::kFloat},
                                                    {"<f8", torch::kDouble},
                                                    {"<i4", torch::kInt},
                                                    {"<i8", torch::kLong}};

constexpr std::size_t kMostAxes = 32;  // NumPy's limit
constexpr double kMostBytes = 0x1p62;

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw Error(fmt::format("{}: {}", file.string(), what));
}

/// The text after 'name': in the header, which is a Python dictionary literal.
std::string entry(const std::filesystem::path& file, const std::string& header,
                  const std::string& name) {
  auto begin = header.find("'" + name + "'");
  if (begin == std::string::npos) fail(file, "the header has no " + name);
  begin = header.find(':', begin);
  if (begin == std::string::npos) fail(file, "the header breaks off");
  begin = header.find_first_not_of(" :", begin);
  if (begin == std::string::npos) fail(file, "the header breaks off");
  const char close = header[begin] == '(' ? ')' : header[begin] == '\'' ? '\'' : ',';
  const auto end = header.find(close, begin + 1);
  if (end == std::string::npos) fail(file, "the header breaks off");
  const bool enclosed = close != ',';
  return header.substr(begin + enclosed, end - begin - enclosed);
}

std::vector<std::int64_t> shape_of(const std::filesystem::path& file, const std::string& text) {
  std::vector<std::int64_t> shape;
  std::stringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) {
    word.erase(0, word.find_first_not_of(' '));
    if (word.empty()) continue;
    const auto size = number_in<std::int64_t>(word);
    if (!size || *size < 0 || *size > (1 << 24))
      fail(file, fmt::format("expected sizes from 0 to 2^24, got {}", word));
    shape.push_back(*size);
  }
  return shape;
}

}  // namespace

torch::Tensor read_npy(const std::filesystem::path& file) {
  const std::string bytes = read_file(file);
  if (bytes.size() < 10 || bytes.compare(0, 6, "\x93NUMPY") != 0) fail(file, "is no .npy file");
  const auto byte = [&](std::size_t i) {
    return std::size_t(static_cast<unsigned char>(bytes[i]));
  };
  const std::size_t counted = byte(6) == 1 ? 2 : 4;  // bytes of the header length
  if (byte(6) < 1 || byte(6) > 3) fail(file, fmt::format("has unknown version {}", byte(6)));
  if (bytes.size() < 8 + counted) fail(file, "the header breaks off");
  std::size_t length = 0;
  for (std::size_t i = 0; i < counted; ++i) length |= byte(8 + i) << (8 * i);
  const std::size_t start = 8 + counted;
  if (length > bytes.size() - start) fail(file, "the header breaks off");
  const std::string header = bytes.substr(start, length);

  const auto kind = entry(file, header, "descr");
  const auto type = kTypes.find(kind);
  if (type == kTypes.end())
    fail(file, fmt::format("expected type <f2, <f4, <f8, <i4 or <i8, got {}", kind));
  auto shape = shape_of(file, entry(file, header, "shape"));
  if (shape.size() > kMostAxes)
    fail(file, fmt::format("expected at most {} axes, got {}", kMostAxes, shape.size()));
  const auto order = entry(file, header, "fortran_order");
  if (order != "True" && order != "False")
    fail(file, fmt::format("expected fortran_order True or False, got {}", order));
  const bool fortran = order == "True";
  if (fortran) std::ranges::reverse(shape);
  // In floating point, so that a product of absurd sizes does not wrap around. The other sizes count even if one is
  // 0, because LibTorch multiplies them for its strides.
  double expected = double(torch::elementSize(type->second));
  for (const auto size : shape) expected *= double(std::max<std::int64_t>(size, 1));
  if (expected > kMostBytes) fail(file, fmt::format("has {:.3g} bytes of numbers", expected));
  if (std::ranges::find(shape, 0) != shape.end()) expected = 0;
  const std::size_t rest = bytes.size() - start - length;
  if (expected != double(rest))
    fail(file, fmt::format("expected {:.0f} bytes of numbers, got {}", expected, rest));
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
