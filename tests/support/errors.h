#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "keel/error.h"

namespace keel::testing {

/// The message of the keel::Error that `call` throws, or "no error".
std::string error_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Passes if `call` throws a keel::Error whose message contains all `parts`.
::testing::AssertionResult refuses(std::initializer_list<std::string> parts, const auto& call) {
  const std::string message = error_of(call);
  if (message == "no error") return ::testing::AssertionFailure() << message;
  for (const std::string& part : parts)
    if (message.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << "expected '" << part << "' in: " << message;
  return ::testing::AssertionSuccess();
}

}  // namespace keel::testing
