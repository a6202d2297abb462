#pragma once

#include <fmt/format.h>

#include <utility>

#include "keel/error.h"

namespace keel {

/// require() with a message in fmt's format, which is put together only if the check fails.
template <typename First, typename... Rest>
void require(bool holds, fmt::format_string<First, Rest...> message, First&& first,
             Rest&&... rest) {
  if (!holds)
    throw Error(fmt::format(message, std::forward<First>(first), std::forward<Rest>(rest)...));
}

}  // namespace keel
