#include "intake/listener.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/address_group.h"
#include "base/background_thread.h"

namespace tuft::intake {
namespace {

constexpr int kBacklog = 128;
// After an error of accept() that lasts, such as too many open files.
constexpr auto kErrorPause = std::chrono::milliseconds(50);

std::optional<uint64_t> inode_of(int socket) {
  struct stat found = {};
  if (::fstat(socket, &found) != 0 || !S_ISSOCK(found.st_mode)) return std::nullopt;
  return found.st_ino;
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(const ListenerOptions& options) {
  std::unique_ptr<Listener> listener(new Listener(options));
  TUFT_TRY(listener->listen());
  return listener;
}

Listener::~Listener() {
  stop();
  if (stopping_ >= 0) ::close(stopping_);
}

Status Listener::listen() {
  const Error failed = unavailable("cannot listen on " + options_.host + ":" + std::to_string(options_.port) +
                                   " (telemetry.intake.grpc_port); choose another port, or stop what uses it");
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE;
  std::string host = options_.host;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(options_.port).c_str(), &wanted, &found) != 0) return failed;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
  stopping_ = ::eventfd(0, EFD_CLOEXEC);
  listening_ = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (stopping_ < 0 || listening_ < 0 || ::setsockopt(listening_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(listening_, found->ai_addr, found->ai_addrlen) != 0 || ::listen(listening_, kBacklog) != 0)
    return failed;
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  if (::getsockname(listening_, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return failed;
  port_ = ntohs(bound.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(bound).sin_port
                                           : reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
  return {};
}

void Listener::start(Take take) {
  take_ = std::move(take);
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "intake_listener");
}

void Listener::stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    while (::write(stopping_, &one, sizeof one) < 0) {
    }
    thread_.join();
  }
  if (listening_ >= 0) ::close(std::exchange(listening_, -1));
}

void Listener::run() {
  std::array<pollfd, 2> wanted{pollfd{listening_, POLLIN, 0}, pollfd{stopping_, POLLIN, 0}};
  while (true) {
    if (::poll(wanted.data(), wanted.size(), -1) < 0) continue;
    if (wanted[1].revents != 0) return;
    if (wanted[0].revents != 0) accept_one();
  }
}

void Listener::accept_one() {
  sockaddr_storage from = {};
  socklen_t size = sizeof from;
  const int socket = ::accept4(listening_, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) {
    pollfd stopping{stopping_, POLLIN, 0};
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
      ::poll(&stopping, 1, static_cast<int>(kErrorPause.count()));
    return;
  }
  const uint64_t group = address_group(reinterpret_cast<const sockaddr&>(from));
  const std::optional<uint64_t> inode = inode_of(socket);
  if (!inode || !has_room(group)) {
    ::close(socket);
    return;
  }
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  taken_.push_back({socket, *inode, group});
  take_(socket);
}

bool Listener::has_room(uint64_t address_group) {
  const auto is_full = [&] {
    const auto own = std::count_if(taken_.begin(), taken_.end(),
                                   [&](const Taken& one) { return one.address_group == address_group; });
    return taken_.size() >= options_.connections_max ||
           static_cast<size_t>(own) >= options_.connections_per_address_max;
  };
  if (!is_full()) return true;
  std::erase_if(taken_, [](const Taken& one) { return inode_of(one.socket) != one.inode; });
  return !is_full();
}

}  // namespace tuft::intake
