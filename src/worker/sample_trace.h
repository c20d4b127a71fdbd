// The spans of one sample request, built when it ends: nothing is recorded per step.
#pragma once

#include "base/result.h"
#include "engine/sample/sampler.h"
#include "worker/operation.h"

namespace tuft::worker {

struct SampleFacts {
  std::string sampler_id;  // empty: the base model
  int64_t prompt_tokens = 0;
  int num_samples = 0;
};

// hf_model.sample from the arrival to now, with engine.queue, engine.prefill and engine.decode in it.
void record_sample(const Caller& caller, const SampleFacts& facts, const Result<engine::SampleResult>& result,
                   const Clock& clock);

}  // namespace tuft::worker
