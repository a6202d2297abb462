#pragma once

#include <regex>
#include <string>

namespace keel::lab {

/// An error's message for users: without the C++ names in it, such as "keel::lab::TrainOptions: ", which mean nothing to
/// someone who typed an option or opened a file.
inline std::string plain_words(const std::string& message) {
  static const std::regex name("\\bkeel(::\\w+)+: ");
  return std::regex_replace(message, name, "");
}

}  // namespace keel::lab
