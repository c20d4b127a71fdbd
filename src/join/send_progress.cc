#include "join/send_progress.h"

// Not <netinet/tcp.h>, whose tcp_info ends before these fields, and which cannot be included beside this header.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace tuft::join {

SendProgress send_progress(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return {info.tcpi_bytes_acked, info.tcpi_notsent_bytes};
}

}  // namespace tuft::join
