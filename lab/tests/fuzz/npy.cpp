#include "lab/report/npy.h"

#include <torch/types.h>

#include "lab/tests/fuzz/fuzz.h"
#include "support/files.h"

namespace keel::fuzz::npy {

void attack(const std::string& bytes) {
  const auto file = folder() / "hostile.npy";
  testing::write_bytes(file, bytes);
  const torch::Tensor read = lab::report::read_npy(file);
  expect(read.scalar_type() == torch::kDouble && read.is_contiguous(), "contiguous float64");
  expect(std::size_t(read.numel()) <= bytes.size(), "no more numbers than bytes");
}

std::string file_of(char version, const std::string& header, std::size_t data_bytes) {
  std::string bytes = std::string("\x93NUMPY") + version + '\0';
  bytes += char(header.size());
  bytes += version == 1 ? std::string(1, '\0') : std::string(3, '\0');
  return bytes + header + std::string(data_bytes, '\1');
}

std::vector<std::string> seeds() {
  return {file_of(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }\n", 48),
          file_of(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 1), }\n", 24),
          file_of(2, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }\n", 24),
          file_of(3, "{'descr': '<f2', 'fortran_order': False, 'shape': (), }\n", 2),
          file_of(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (0, 7), }\n", 0)};
}

const Registration registration({"npy", attack, seeds});

}  // namespace keel::fuzz::npy
