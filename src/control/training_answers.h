// How an actor's answer finds its operation again. Internal to the training controller.
#pragma once

#include <utility>

#include "control/training_controller.h"

namespace tuft::control {

// The answer ends the backend span, then goes to `handler`, a member function. It holds run and operation, and the
// controller only weakly.
template <typename Response, typename Handler>
actor::Callback<Response> TrainingController::answer_to(const RunPtr& run, const OperationPtr& operation,
                                                        Handler handler) {
  return [weak = weak_from_this(), run, operation, handler](Result<Response> result) {
    const auto self = weak.lock();
    if (result.ok()) {
      operation->backend_span.set_attribute("tuft.queue_seconds", result->queue_seconds());
      if (self) self->parts_.futures.mark_started(*operation->future, result->queue_seconds());
    } else {
      operation->backend_span.record_error(result.error());
    }
    operation->backend_span.end();
    if (self) (self.get()->*handler)(run, operation, std::move(result));
  };
}

}  // namespace tuft::control
