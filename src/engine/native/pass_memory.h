// PassFloats: the memory of a training pass, computed from its shape before anything of it is taken.
#pragma once

#include <cstddef>

#include "engine/model_spec.h"

namespace tuft::engine::native {

struct PassShape {
  size_t rows = 0;
  size_t segments = 0;
  size_t kv_blocks = 0;       // of all segments
  size_t longest = 0;         // rows of a segment
  size_t logits_rows = 0;     // rows that pass through the output layer at a time
  bool keeps_logits = false;  // from the forward to the backward pass
  size_t rank = 0;            // the highest of its adapters
  bool one_adapter = true;    // in all segments
  bool backward = true;       // follows
  bool recompute = false;     // blocks keep only their input
  size_t threads = 1;
};

// Upper bounds, in floats, for each of those who hold the memory; above the truth by a few percent of a long pass.
// Transformer, LoraLinear and TrainingPass take what is counted here: who changes one of them changes this, and
// PassMemory.* compares both.
struct PassFloats {
  size_t keep = 0;     // TrainingPass::keep_
  size_t layer = 0;    // TrainingPass::layer_
  size_t scratch = 0;  // Model::scratch()
  size_t threads = 0;  // Transformer::thread_floats()

  size_t total() const { return keep + layer + scratch + threads; }
};
PassFloats pass_floats(const ModelSpec& spec, const PassShape& shape);

}  // namespace tuft::engine::native
