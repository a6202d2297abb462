// Rules, rank policies, maps and functions as text (keel/term.h). Every reader gets each text.

#include "keel/error.h"
#include "keel/layer_matrix.h"
#include "lab/tests/fuzz/fuzz.h"

namespace keel::fuzz::term {

template <typename Value>
void attack_by(Value (*reader)(std::string_view, std::string_view), const std::string& bytes) {
  Value value;
  try {
    value = reader(bytes, kHostile);
  } catch (const Error& error) {
    expect(std::string(error.what()).rfind(kHostile, 0) == 0, "the operation's name in front");
    expect(std::string(error.what()).size() < 1000, "a short message");
    return;
  }
  const std::string text = must("to write what was read", [&] { return to_string(value); });
  const auto again = must("to read " + text, [&] { return to_string(reader(text, kHostile)); });
  expect(again == text, "what was written to be what was read: " + text);
}

void attack(const std::string& bytes) {
  attack_by(gradient_rule, bytes);
  attack_by(spectral_rule, bytes);
  attack_by(spectral_function, bytes);
  attack_by(rank_policy, bytes);
  attack_by(layer_map, bytes);
}

std::vector<std::string> seeds() {
  return {"lorentzian(width=1e-04)", "masked(tolerance=off)", "power(exponent=-0.5)",
          "leading_count(count=8)",
          "zca(eps=0.01, rank=algorithm1(energy=off, keep_reaching=false, literal=true))"};
}

const Registration registration({"term", attack, seeds});

}  // namespace keel::fuzz::term
