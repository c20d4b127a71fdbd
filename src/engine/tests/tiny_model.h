// The smallest model with every kind of layer that can carry an adapter.
#pragma once

#include "engine/lora.h"
#include "engine/model_spec.h"

namespace tuft::engine {

inline ModelSpec tiny_model() {
  ModelSpec model;
  model.family = Family::kQwen3;
  model.architecture = "Qwen3ForCausalLM";
  model.vocab_size = 50;
  model.hidden_size = 8;
  model.intermediate_size = 12;
  model.layers = 2;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 6;
  model.max_position = 64;
  return model;
}

inline LoraSpec tiny_lora() {
  LoraSpec spec;
  spec.rank = 3;
  spec.alpha = 6.0F;
  spec.seed = 0xFEDCBA9876543210ULL;
  return spec;
}

}  // namespace tuft::engine
