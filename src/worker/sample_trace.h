// The spans and log events of one sample request. Spans are built when it ends, from times that the sampler kept:
// nothing is recorded per step.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "engine/sample/sampler.h"
#include "worker/operation.h"

namespace tuft::worker {

struct SampleFacts {
  std::string sampler_id;  // empty: the base model
  int lora_rank = 0;       // 0: not known
  int64_t prompt_tokens = 0;
  int num_samples = 0;
  // Of the request's parameters; absent ones are not recorded.
  std::optional<int> max_tokens;
  double temperature = 1.0;
  double top_p = 1.0;
  int top_k = -1;
  bool seeded = false;
  bool prompt_logprobs = false;
};

SampleFacts facts_of(const engine::SampleRequest& request, const std::string& sampler_id);

// sampling.begin at DEBUG.
void log_sample_begin(const Caller& caller, const SampleFacts& facts, const std::string& base_model);

// hf_model.sample from the arrival to `converted`, when its answer was ready, and in it the row of the calling thread
// with the request tracing stages SCHEDULE, PREFILL, DECODE and POSTPROCESS; sampling.completed at DEBUG or
// sampling.failed. `result` still holds its sequences.
void record_sample(const Caller& caller, const SampleFacts& facts, const std::string& base_model,
                   const Result<engine::SampleResult>& result, Nanos converted);

}  // namespace tuft::worker
