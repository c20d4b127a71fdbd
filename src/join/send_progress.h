// What the other end of a TCP connection has taken. Its kernel acknowledges bytes that its process has not read, up to
// the size of a buffer. So an acknowledgement says nothing about the process, unless more bytes wait than go at once:
// then the process must read, or nothing is acknowledged any more.
#pragma once

#include <cstdint>

namespace tuft::join {

struct SendProgress {
  uint64_t acknowledged_bytes = 0;  // since the connection began
  uint64_t waiting_bytes = 0;       // in the kernel, and not yet sent
};

// Returns zeros for what is no TCP socket. Thread-safe.
SendProgress send_progress(int socket);

}  // namespace tuft::join
