// gRPC channels to workers.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

namespace tuft::actor {

// Opens a channel to a unix socket, which connects when it is used.
std::shared_ptr<grpc::Channel> open_channel(const std::string& socket);
// Makes a channel of a connected socket that does not block, and owns it from now on. Such a channel never connects
// again: when its connection breaks, calls fail.
std::shared_ptr<grpc::Channel> adopt_channel(int descriptor);

}  // namespace tuft::actor
