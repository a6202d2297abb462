#include "lab/reproduce/results.h"

#include "lab/tests/fuzz/fuzz.h"
#include "support/files.h"

namespace keel::fuzz::results {

void attack(const std::string& bytes) {
  namespace reproduce = lab::reproduce;
  const auto file = folder() / "hostile.json";
  testing::write_bytes(file, bytes);
  const reproduce::Results read = reproduce::read_results(file);
  // Writing rounds, so only the second write must change nothing.
  const auto rewritten = [&](const reproduce::Results& results) {
    reproduce::write_results(file, results);
    return testing::read_bytes(file);
  };
  must("to write what was read", [&] {
    const std::string once = rewritten(read);
    expect(rewritten(reproduce::read_results(file)) == once, "the same file when written again");
  });
}

const Registration registration({"results", attack, {}});

}  // namespace keel::fuzz::results
