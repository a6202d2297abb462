#include "lab/processes/loopback.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <system_error>

#include "lab/processes/bind_to.h"

namespace keel::lab {
namespace {

/// The address that a socket of the family gets when bound to all addresses.
std::string bound_to_all(int family) {
  const int socket = ::socket(family, SOCK_STREAM, 0);
  sockaddr_storage name{};
  name.ss_family = sa_family_t(family);
  socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&name), size), 0);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &size), 0);
  ::close(socket);
  char text[INET6_ADDRSTRLEN] = {};
  const void* address = &reinterpret_cast<sockaddr_in6&>(name).sin6_addr;
  if (family == AF_INET) address = &reinterpret_cast<sockaddr_in&>(name).sin_addr;
  return inet_ntop(family, address, text, sizeof text);
}

TEST(LoopbackTest, KnowsItsAddresses) {
  for (const char* address : {"127.0.0.1", "127.0.1.1", "::1", "localhost"})
    EXPECT_TRUE(is_loopback(address)) << address;
  for (const char* address : {"0.0.0.0", "::", "192.168.0.127", "master", ""})
    EXPECT_FALSE(is_loopback(address)) << address;
}

TEST(LoopbackTest, ASocketIsBoundToTheAddressAndAPort) {
  for (const char* address : {"127.0.0.1", "localhost", "127.0.0.2"}) {
    const int socket = bound_socket(address, 0);
    EXPECT_GT(port_of(socket), 0);
    EXPECT_EQ(::listen(socket, 1), 0);
    EXPECT_THROW(bound_socket(address, port_of(socket)), std::system_error);
    ::close(socket);
  }
  EXPECT_THROW(bound_socket("master", 0), std::system_error);
}

TEST(LoopbackTest, WhatIsBoundToAllAddressesIsBoundToOneMeanwhile) {
  EXPECT_EQ(bound_to_all(AF_INET), "0.0.0.0");
  {
    const BindTo one("127.0.0.1");
    EXPECT_EQ(bound_to_all(AF_INET), "127.0.0.1");
  }
  EXPECT_EQ(bound_to_all(AF_INET), "0.0.0.0");
  const int probe = ::socket(AF_INET6, SOCK_STREAM, 0);
  if (probe < 0) GTEST_SKIP() << "this machine has no IPv6";
  ::close(probe);
  const BindTo one("localhost");
  EXPECT_EQ(bound_to_all(AF_INET6), "::ffff:127.0.0.1");
}

}  // namespace
}  // namespace keel::lab
