// A TLS connection between a worker and its server, as a descriptor without TLS.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace tuft::join {

// How long the handshakes of a connection may take, at each end.
inline constexpr Nanos kJoinTimeout = 10 * kSecond;

enum class End : uint8_t {
  kOpen,        // it has not ended
  kClosed,      // this end closed it
  kPeerClosed,  // the other end closed it in order
  kBroken,      // it broke: the peer or the network is gone
  kSilent,      // nothing came for longer than the lease
};

// Thread-safe. The destructor closes the connection.
class Connection {
 public:
  virtual ~Connection() = default;

  // Returns a connected stream socket that does not block, and -1 from the second call on. The caller owns it; closing
  // it closes the connection in order.
  virtual int take_descriptor() = 0;
  // Readable once the connection has ended. Open as long as this object.
  virtual int ended_fd() const = 0;
  virtual End end() const = 0;
  // Returns whether anything has come from the other end. A gRPC server speaks first, so a worker that was heard
  // serves.
  virtual bool heard() const = 0;
  // Returns when the other end last gave a sign of life, by the monotonic clock; 0: not yet. It sent something, or it
  // takes a large message through a narrow link, behind which all questions wait (send_progress.h).
  virtual Nanos last_sign() const = 0;
  virtual void close() = 0;
};

// Returns the end in words that continue a sentence, for instance "closed the connection".
std::string describe(End end);

}  // namespace tuft::join
