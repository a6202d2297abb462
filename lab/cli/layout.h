#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace keel::cli {

/// How help is laid out: name and type to the left; to the right what the option means, its valid
/// values in parentheses and its default in brackets, wrapped.
class Layout : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace keel::cli
