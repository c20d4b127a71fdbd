// An Engine that measures another one: spans engine.forward and engine.backward under the current one, and what passes
// and steps cost in time, arithmetic and memory traffic. Everything else goes straight through.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "telemetry/attribute.h"

namespace tuft::worker {

// Sums since the start. Arithmetic is that of engine/model_cost.h.
struct PassTotals {
  Nanos forward = 0;
  Nanos loss = 0;  // between a forward pass and its backward pass
  Nanos backward = 0;
  int64_t tokens = 0;
  int64_t sequences = 0;
  double forward_flops = 0;   // the output layer for tokens with a target
  double backward_flops = 0;  // the output layer for those whose loss has a gradient; none without any

  friend PassTotals operator-(const PassTotals& left, const PassTotals& right) {
    return {left.forward - right.forward,
            left.loss - right.loss,
            left.backward - right.backward,
            left.tokens - right.tokens,
            left.sequences - right.sequences,
            left.forward_flops - right.forward_flops,
            left.backward_flops - right.backward_flops};
  }
};

struct StepTotals {
  Nanos time = 0;
  double prefill_flops = 0;
  double decode_flops = 0;  // of sequences that got one token
  // To and from memory at the least: every weight and adapter once a step, keys and values once a sequence.
  double bytes_read = 0;
  double bytes_written = 0;
};

class TracedEngine : public engine::Engine {
 public:
  virtual const PassTotals& totals() const = 0;
  virtual const StepTotals& step_totals() const = 0;
  // The spans of the next passes carry these; what they borrow lives until they are set anew.
  virtual void set_pass_attributes(std::vector<telemetry::Attribute> attributes) = 0;
};

// Both outlive the result.
std::unique_ptr<TracedEngine> make_traced_engine(engine::Engine& engine, const Clock& clock);

}  // namespace tuft::worker
