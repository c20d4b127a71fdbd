// The port through which the commands ask the server.
#pragma once

#include <string>

#include "app/tuft/terminal/json.h"
#include "base/result.h"

namespace tuft::terminal {

class Api {
 public:
  virtual ~Api() = default;

  // Returns the answer to GET `target` (a path with a query). Blocks. The message of an error is one line that names
  // the cure. Codes: kUnavailable (nobody answers), kUnauthenticated and kPermissionDenied (the key), kNotFound,
  // kInvalidArgument, kCancelled, kDataLoss (the answer is not JSON), kInternal.
  virtual Result<Json> get(const std::string& target) = 0;
};

}  // namespace tuft::terminal
