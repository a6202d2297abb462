#pragma once

#include <cstdint>
#include <string>

namespace keel::lab {

/// Whether an address is a loopback address: 127.0.0.0/8, ::1 or localhost.
bool is_loopback(const std::string& address);

/// The numeric address: localhost becomes 127.0.0.1.
std::string in_numbers(const std::string& address);

/// A socket bound to a loopback address and a port (0: any). Throws std::system_error.
int bound_socket(const std::string& address, std::uint16_t port);
std::uint16_t port_of(int socket);

/// A port of 127.0.0.1 that is free now.
std::uint16_t free_port();

}  // namespace keel::lab
