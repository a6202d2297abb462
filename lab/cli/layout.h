#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace keel::cli {

/// The help layout: name and type on the left; on the right the description, valid values in parentheses and the default
/// in brackets, wrapped.
class Layout : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace keel::cli
