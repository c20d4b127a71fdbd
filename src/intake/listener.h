// Accepts the connections of a port that another library serves, as many as there may be at a time. gRPC itself has no
// such limit, so that strangers could take all file descriptors of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"

namespace tuft::intake {

struct ListenerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free port
  size_t connections_max = 0;
  size_t connections_per_address_max = 256;
};

// Of the owner's thread.
class Listener {
 public:
  // Owns the socket, which is connected and does not block. Called on the listener's thread.
  using Take = std::function<void(int socket)>;

  // Listens when it returns, and accepts from start() on. Errors: kUnavailable.
  static Result<std::unique_ptr<Listener>> open(const ListenerOptions& options);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  uint16_t port() const { return port_; }
  // Connections above a limit are closed at once.
  void start(Take take);
  // Closes the port. What was taken stays.
  void stop();

 private:
  // A socket that was taken. It is closed by who took it: then its descriptor is none, or that of something else.
  struct Taken {
    int socket = -1;
    uint64_t inode = 0;
    uint64_t address_group = 0;
  };

  explicit Listener(const ListenerOptions& options) : options_(options) {}
  Status listen();
  void run();
  void accept_one();
  // Returns whether there is room for a further connection of the group.
  bool has_room(uint64_t address_group);

  const ListenerOptions options_;
  Take take_;
  int listening_ = -1;
  int stopping_ = -1;  // an eventfd
  uint16_t port_ = 0;
  std::vector<Taken> taken_;  // of the listener's thread
  std::thread thread_;
};

}  // namespace tuft::intake
