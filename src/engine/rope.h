// Rotary position embedding (Su et al. 2021) with the scalings of Transformers' modeling_rope_utils: cosines and sines
// of every position up to the longest one so far, in f32 as in Transformers.
#pragma once

#include <vector>

#include "engine/model_spec.h"

namespace tuft::engine {

class Rope {
 public:
  explicit Rope(const ModelSpec& spec);

  // Makes positions [0, count) available. Throws std::bad_alloc.
  void extend(int count);
  // Return head_dim / 2 values each, multiplied by yarn's attention factor.
  const float* cosines(int position) const { return cosines_.data() + static_cast<ptrdiff_t>(position) * half_; }
  const float* sines(int position) const { return sines_.data() + static_cast<ptrdiff_t>(position) * half_; }

 private:
  int half_ = 0;
  int count_ = 0;
  float factor_ = 1.0F;
  std::vector<float> frequencies_;
  std::vector<float> cosines_;
  std::vector<float> sines_;
};

}  // namespace tuft::engine
