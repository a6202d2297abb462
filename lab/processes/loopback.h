#pragma once

#include <cstdint>
#include <string>

namespace keel::lab {

/// Whether an address is this machine's for itself alone: 127.0.0.1 and its like, ::1, localhost.
bool is_loopback(const std::string& address);

/// The address in numbers: localhost is 127.0.0.1.
std::string in_numbers(const std::string& address);

/// A socket bound to a loopback address and a port (0: any). Throws std::system_error.
int bound_socket(const std::string& address, std::uint16_t port);
std::uint16_t port_of(int socket);

}  // namespace keel::lab
