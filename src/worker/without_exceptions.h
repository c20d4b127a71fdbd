// Turns exceptions into errors. One means a lack of memory or a bug; neither may end the worker, which holds the
// unsaved training of all its users.
#pragma once

#include <exception>
#include <new>

#include "base/result.h"
#include "telemetry/log.h"

namespace tuft::worker {

// `action` returns a Result or a Status. The caller of the work gets the error; the fault is the server's.
template <typename Action>
auto without_exceptions(const Action& action) -> decltype(action()) {
  try {
    return action();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& exception) {
    telemetry::log_error("worker.exception", exception.what());
    return internal_error("the worker failed on this request", "exception");
  }
}

}  // namespace tuft::worker
