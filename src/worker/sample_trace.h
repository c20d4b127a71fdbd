// The spans and log events of one sample request. The spans are made when it ends, from times that the sampler kept;
// nothing is recorded per step.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "engine/sample/sampler.h"
#include "worker/operation.h"

namespace tuft::worker {

// The parameters of a request that spans and logs show.
struct SampleFacts {
  std::string sampler_id;  // empty: the base model
  int lora_rank = 0;       // 0: not known
  int64_t prompt_tokens = 0;
  int num_samples = 0;
  // Parameters of the request. Absent ones are not recorded.
  std::optional<int> max_tokens;
  double temperature = 1.0;
  double top_p = 1.0;
  int top_k = -1;
  bool seeded = false;
  bool prompt_logprobs = false;
  int topk_logprobs = 0;  // alternatives for each sampled token
  int prompt_alt_tokens = 0;
  int64_t target_cells = 0;
  bool ends_at_eos = true;
};

SampleFacts facts_of(const engine::SampleRequest& request, const std::string& sampler_id);

// Logs sampling.begin at DEBUG.
void log_sample_begin(const Caller& caller, const SampleFacts& facts, const std::string& base_model);

// Records the span hf_model.sample from the arrival to `converted`, the time at which the answer was ready. In it lie
// the request tracing stages SCHEDULE, PREFILL, DECODE and POSTPROCESS of the calling thread. Logs sampling.completed
// at DEBUG or sampling.failed. `result` must still hold its sequences.
void record_sample(const Caller& caller, const SampleFacts& facts, const std::string& base_model,
                   const Result<engine::SampleResult>& result, Nanos converted);

}  // namespace tuft::worker
