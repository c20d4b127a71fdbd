#include "actor/channel.h"

#include <utility>

#include <grpcpp/create_channel_posix.h>

#include "rpc/methods.h"

namespace tuft::actor {
namespace {

grpc::ChannelArguments arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(rpc::kMessageBytesMax);
  arguments.SetMaxSendMessageSize(rpc::kMessageBytesMax);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // an operation that may have run must not run again
  return arguments;
}

// The first channel of the process is never closed. When the last channel closes, gRPC 1.51 stops the threads that run
// callbacks and joins a poller that may sleep for ten more seconds. When the next channel starts the threads again,
// this sometimes aborts.
std::shared_ptr<grpc::Channel> keep_first(std::shared_ptr<grpc::Channel> channel) {
  // "used": the pointer is kept, too, so that leak checkers find the channel.
  [[gnu::used]] static const auto* const kept = new std::shared_ptr<grpc::Channel>(channel);
  return channel;
}

}  // namespace

std::shared_ptr<grpc::Channel> open_channel(const std::string& socket) {
  return keep_first(grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments()));
}

std::shared_ptr<grpc::Channel> adopt_channel(int descriptor) {
  return keep_first(grpc::CreateCustomInsecureChannelFromFd("worker", descriptor, arguments()));
}

}  // namespace tuft::actor
