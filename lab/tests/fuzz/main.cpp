// libFuzzer's two functions. KEEL_FUZZ_READER names the reader to attack. If KEEL_FUZZ_SEEDS names a folder, the
// reader's seeds are written there first, before libFuzzer reads its folders.

#include <torch/types.h>
#include <unistd.h>

#include "keel/error.h"
#include "lab/tests/fuzz/fuzz.h"
#include "support/files.h"

namespace keel::fuzz {

const std::filesystem::path& folder() {
  static const testing::TemporaryFolder own;
  return own.path();
}

namespace {

const Reader& chosen() {
  const char* name = std::getenv("KEEL_FUZZ_READER");
  std::string names;
  for (const Reader& reader : readers()) {
    if (name != nullptr && reader.name == name) return reader;
    names += " " + reader.name;
  }
  std::fprintf(stderr, "keel_fuzz: expected KEEL_FUZZ_READER to be one of%s, got %s\n",
               names.c_str(), name == nullptr ? "nothing" : name);
  std::exit(2);
}

void write_seeds(const Reader& reader, const std::filesystem::path& where) {
  if (!reader.seeds) return;
  int number = 0;
  for (const std::string& seed : reader.seeds())
    testing::write_bytes(where / ("seed-" + std::to_string(number++)), seed);
}

}  // namespace
}  // namespace keel::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  torch::set_num_threads(1);
  const auto& reader = keel::fuzz::chosen();
  if (const char* where = std::getenv("KEEL_FUZZ_SEEDS")) keel::fuzz::write_seeds(reader, where);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace keel::fuzz;
  static const Reader& reader = chosen();
  try {
    reader.attack(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const keel::Error& error) {
    const std::string message = error.what();
    expect(message.find(kHostile) != std::string::npos, "the file's name in: " + message);
  }
  return 0;
}
