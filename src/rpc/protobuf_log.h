// Messages of libprotobuf. By default it writes raw lines on stderr, which are not lines of the log.
#pragma once

#include <string_view>

namespace tuft::rpc {

// Passes libprotobuf's messages of this process to `take` instead, at most one a second: a client can cause them. They
// name fields and types, never values. To be called once, before other threads start. `take` is called on any thread.
void take_protobuf_log(void (*take)(std::string_view message));

}  // namespace tuft::rpc
