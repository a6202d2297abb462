#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "keel/error.h"

namespace keel::testing {

/// Passes if `call` throws a keel::Error whose message contains all `parts`.
template <typename Call>
::testing::AssertionResult refuses(std::initializer_list<std::string> parts, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const std::string& part : parts)
      if (message.find(part) == std::string::npos)
        return ::testing::AssertionFailure() << "expected '" << part << "' in: " << message;
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "no error; expected '" << *parts.begin() << "'";
}

}  // namespace keel::testing
