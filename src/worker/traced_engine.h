// An Engine that measures another one: spans engine.forward and engine.backward under the current one, and what passes
// cost. Everything else goes straight through.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "telemetry/attribute.h"

namespace tuft::worker {

// Sums since the start.
struct PassTotals {
  Nanos forward = 0;
  Nanos loss = 0;  // between a forward pass and its backward pass
  Nanos backward = 0;
  int64_t tokens = 0;
  int64_t sequences = 0;

  friend PassTotals operator-(const PassTotals& left, const PassTotals& right) {
    return {left.forward - right.forward, left.loss - right.loss, left.backward - right.backward,
            left.tokens - right.tokens, left.sequences - right.sequences};
  }
};

class TracedEngine : public engine::Engine {
 public:
  virtual const PassTotals& totals() const = 0;
  // The spans of the next passes carry these; what they borrow lives until they are set anew.
  virtual void set_pass_attributes(std::vector<telemetry::Attribute> attributes) = 0;
};

// Both outlive the result.
std::unique_ptr<TracedEngine> make_traced_engine(engine::Engine& engine, const Clock& clock);

}  // namespace tuft::worker
