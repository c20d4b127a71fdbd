// Engine: one base model in memory with its three ports. Each caller takes only the ports that it needs:
//   AdapterStore    create, remove, copy and page adapters      the pager, checkpoint operations
//   TrainingEngine  passes and optimizer steps                  the training scheduler, the batch of optimizer steps
//   DecodeEngine    sequences, KV cache and decode steps        the sampler
//
// A back end (engine/native on CPUs, engine/torch on GPUs) computes; engine/back_end holds what both have in common.
// Packing of datums, losses, scheduling, sampling and checkpoint files are above the ports and use tokens,
// log-probabilities and logits only. One copy of the base weights serves all three ports.
#pragma once

#include <string_view>

#include "engine/adapter_store.h"
#include "engine/decode_engine.h"
#include "engine/model_spec.h"
#include "engine/training_engine.h"

namespace tuft::engine {

// The time that finished work took on the device, summed since the start. All zero if the device is the CPU of the
// engine thread, because the clock around a call shows the same.
struct DeviceTimes {
  Nanos forward = 0;
  Nanos backward = 0;
  Nanos optim_step = 0;
  Nanos step = 0;  // decode steps
};

// Confined to the engine thread, except model() and weights_dtype(), which never change, and AdapterStore::make(). The
// ports live as long as the engine.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual const ModelSpec& model() const = 0;
  virtual std::string_view weights_dtype() const = 0;  // "f32", "bf16"

  virtual AdapterStore& adapters() = 0;
  virtual TrainingEngine& training() = 0;
  virtual DecodeEngine& decoding() = 0;

  // Never waits for the device.
  virtual DeviceTimes device_times() { return {}; }
  // Returns the dense FLOP/s of the device in its compute type; a fused multiply-add counts as two. 0: unknown.
  virtual double peak_flops() const { return 0; }
  // The same, to compare what a CPU computes with what the device does: of a GPU whose peak is unknown that of a fast
  // one, so that what the CPU computes is not taken for nothing. 0: a CPU of unknown peak.
  virtual double assumed_peak_flops() const { return peak_flops(); }
};

}  // namespace tuft::engine
