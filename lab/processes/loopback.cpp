#include "lab/processes/loopback.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>

namespace keel::lab {

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

std::string in_numbers(const std::string& address) {
  return address == "localhost" ? "127.0.0.1" : address;
}

int bound_socket(const std::string& address, std::uint16_t port) {
  const std::string where = "cannot bind to " + address + ":" + std::to_string(port);
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(in_numbers(address).c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw std::system_error(EINVAL, std::generic_category(), where);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> name(found, freeaddrinfo);
  const int socket = ::socket(name->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
  if (socket < 0) throw std::system_error(errno, std::generic_category(), where);
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket, name->ai_addr, name->ai_addrlen) == 0) return socket;
  const int error = errno;
  ::close(socket);
  throw std::system_error(error, std::generic_category(), where);
}

std::uint16_t port_of(int socket) {
  sockaddr_in6 name{};  // the port has the same position in both families
  socklen_t size = sizeof name;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(name.sin6_port);
}

std::uint16_t free_port() {
  const int socket = bound_socket("127.0.0.1", 0);
  const std::uint16_t port = port_of(socket);
  ::close(socket);
  return port;
}

}  // namespace keel::lab
