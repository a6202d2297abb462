#include "lab/processes/bind_to.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "lab/processes/loopback.h"

namespace keel::lab {
namespace {

/// The address for sockets of both families. An IPv4 address has an IPv6 form, but not the reverse.
struct Loopback {
  bool wanted = false, has_ipv4 = false;
  in_addr ipv4{};
  in6_addr ipv6{};
};
thread_local Loopback loopback;

}  // namespace

BindTo::BindTo(const std::string& address) {
  const std::string numbers = in_numbers(address);
  loopback.wanted = true;
  loopback.has_ipv4 = inet_pton(AF_INET, numbers.c_str(), &loopback.ipv4) == 1;
  inet_pton(AF_INET6, ((loopback.has_ipv4 ? "::ffff:" : "") + numbers).c_str(), &loopback.ipv6);
}

BindTo::~BindTo() { loopback = {}; }

}  // namespace keel::lab

/// Overrides the C library's bind() in this program, for LibTorch too.
extern "C" int bind(int socket, const sockaddr* address, socklen_t size) noexcept {
  const auto& loopback = keel::lab::loopback;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (loopback.has_ipv4 && address->sa_family == AF_INET && size >= sizeof v4) {
    std::memcpy(&v4, address, sizeof v4);
    if (v4.sin_addr.s_addr == INADDR_ANY) {
      v4.sin_addr = loopback.ipv4;
      address = reinterpret_cast<const sockaddr*>(&v4);
    }
  } else if (loopback.wanted && address->sa_family == AF_INET6 && size >= sizeof v6) {
    std::memcpy(&v6, address, sizeof v6);
    if (IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) {
      v6.sin6_addr = loopback.ipv6;
      address = reinterpret_cast<const sockaddr*>(&v6);
    }
  }
  return int(::syscall(SYS_bind, socket, address, size));
}
