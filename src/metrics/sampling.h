// Metrics of sampling requests and sampling sessions, including those of the OpenAI endpoints.
#pragma once

#include "metrics/definition.h"

namespace tuft::metrics {

struct SamplingMetrics {
  UpDownCounter sessions_active{{.name = "tuft.sampling.sessions.active",
                                 .unit = "",
                                 .description = "Existing sampling sessions",
                                 .labels = {"base_model"}}};
  Counter requests{{.name = "tuft.sampling.requests",
                    .unit = "",
                    .description = "Sampling requests that ended (ok, failed, cancelled)",
                    .labels = {"base_model", "status"}}};
  Histogram duration{{.name = "tuft.sampling.duration",
                      .unit = "s",
                      .description = "A successful sampling request from its acceptance to its last token",
                      .labels = {"base_model"},
                      .bounds = bounds_request()}};
  Histogram tokens_per_second{{.name = "tuft.sampling.tokens_per_second",
                               .unit = "tokens/s",
                               .description = "Output tokens of a sampling request over its whole time",
                               .labels = {"base_model"},
                               .bounds = bounds_tokens_per_second()}};
  Histogram output_tokens{{.name = "tuft.sampling.output_tokens",
                           .unit = "tokens",
                           .description = "Output tokens of a sequence",
                           .labels = {"base_model"},
                           .bounds = bounds_tokens()}};
  Histogram prompt_tokens{{.name = "tuft.sampling.prompt_tokens",
                           .unit = "{token}",
                           .description = "Prompt tokens of a request",
                           .labels = {"base_model"},
                           .bounds = bounds_tokens()}};
  Histogram max_tokens{{.name = "tuft.sampling.params.max_tokens",
                        .unit = "{token}",
                        .description = "max_tokens that requests ask for",
                        .labels = {"base_model"},
                        .bounds = bounds_tokens()}};
  Histogram num_samples{{.name = "tuft.sampling.params.num_samples",
                         .unit = "{sequence}",
                         .description = "num_samples that requests ask for",
                         .labels = {"base_model"},
                         .bounds = bounds_count()}};
  Counter logprobs_requests{{.name = "tuft.sampling.logprobs.requests",
                             .unit = "{request}",
                             .description = "Requests for log-probabilities: of the prompt (prompt, topk, target), of "
                                            "alternatives to sampled tokens (topk_sample), of draws for the prompt "
                                            "(alternatives)",
                             .labels = {"base_model", "kind"}}};
  Counter finished{{.name = "tuft.sampling.finished",
                    .unit = "{sequence}",
                    .description = "Sequences that ended, by reason (stop, length, error, cancelled)",
                    .labels = {"base_model", "finish_reason"}}};
  Counter tokens{{.name = "tuft.sampling.tokens",
                  .unit = "{token}",
                  .description = "Tokens of finished requests, by kind (prefill, decode)",
                  .labels = {"base_model", "kind"}}};
  ObservableGauge records_active{{.name = "tuft.sampling.records.active",
                                  .unit = "{sequence}",
                                  .description = "Sequences recorded for the loss stable_reinforce"}};
  ObservableGauge records_bytes{
      {.name = "tuft.sampling.records.bytes", .unit = "By", .description = "Memory of these records"}};
  Counter repeats{{.name = "tuft.sampling.repeats",
                   .unit = "{request}",
                   .description = "Samples that were drawn again because their worker was lost",
                   .labels = {"base_model"}}};
  Counter records_dropped{{.name = "tuft.sampling.records.dropped",
                           .unit = "{sequence}",
                           .description =
                               "Records dropped: over limits.sample_record_bytes_* (limit), unused for a day "
                               "(expired), with their session (session_ended)",
                           .labels = {"reason"}}};
  Histogram prefill_duration{{.name = "tuft.sampling.prefill.duration",
                              .unit = "s",
                              .description = "From a request's first step to its first token",
                              .labels = {"base_model"},
                              .bounds = bounds_request()}};
  Histogram decode_duration{{.name = "tuft.sampling.decode.duration",
                             .unit = "s",
                             .description = "From a request's first token to its last",
                             .labels = {"base_model"},
                             .bounds = bounds_request()}};
  Histogram inference_duration{{.name = "tuft.sampling.inference.duration",
                                .unit = "s",
                                .description = "From a request's first step to its last token",
                                .labels = {"base_model"},
                                .bounds = bounds_request()}};
  Histogram inter_token_latency{{.name = "tuft.sampling.inter_token_latency",
                                 .unit = "s",
                                 .description = "Time between two tokens of a sequence",
                                 .labels = {"base_model"},
                                 .bounds = bounds_inter_token(),
                                 .recorded_by = RecordedBy::kWorker}};
  Counter nonfinite_logits{{.name = "tuft.sampling.nonfinite_logits",
                            .unit = "{sequence}",
                            .description =
                                "Sequences that failed because a logit was not finite, by whose weights gave it: "
                                "base (the server's), adapter (a user's)",
                            .labels = {"base_model", "weights"},
                            .recorded_by = RecordedBy::kWorker}};
  ObservableCounter model_flops{
      {.name = "tuft.sampling.model.flops",
       .unit = "{flop}",
       .description = "Useful arithmetic of sampling steps: 2 a weight and token, and attention, by kind (prefill, "
                      "decode); nothing for what the prefix cache held",
       .labels = {"base_model", "kind"},
       .recorded_by = RecordedBy::kWorker}};
  ObservableCounter model_bytes{
      {.name = "tuft.sampling.model.bytes",
       .unit = "By",
       .description = "What sampling steps move from and to memory at the least: weights and adapters once a step, "
                      "keys and values of each sequence (read, write)",
       .labels = {"base_model", "direction"},
       .recorded_by = RecordedBy::kWorker}};
  ObservableGauge mfu{
      {.name = "tuft.sampling.mfu",
       .unit = "1",
       .description =
           "tuft.sampling.model.flops over what the device could have done meanwhile (tuft.device.peak_flops), while "
           "steps ran since the last collection; absent without a peak or a step",
       .labels = {"base_model"},
       .recorded_by = RecordedBy::kWorker}};
  Counter openai_requests{{.name = "tuft.openai.requests",
                           .unit = "{request}",
                           .description = "Requests of the OpenAI-compatible API that ended (ok, failed, cancelled) or "
                                          "were refused (rejected)",
                           .labels = {"endpoint", "base_model", "status"}}};
  Histogram openai_prepare_duration{{.name = "tuft.openai.prepare.duration",
                                     .unit = "s",
                                     .description = "From a request's arrival until its prompt is tokens",
                                     .labels = {"endpoint"},
                                     .bounds = bounds_request()}};
  Histogram time_to_first_token{{.name = "gen_ai.server.time_to_first_token",
                                 .unit = "s",
                                 .description = "A sampling request from its acceptance to its first token",
                                 .labels = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"},
                                 .bounds = bounds_first_token()}};
  Histogram time_per_output_token{{.name = "gen_ai.server.time_per_output_token",
                                   .unit = "s",
                                   .description = "Time per token after the first, of successful requests",
                                   .labels = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"},
                                   .bounds = bounds_inter_token()}};
  Histogram gen_ai_request_duration{
      {.name = "gen_ai.server.request.duration",
       .unit = "s",
       .description = "A sampling request from its acceptance to its end",
       .labels = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "error.type"},
       .bounds = bounds_gen_ai_request()}};
  Histogram gen_ai_token_usage{
      {.name = "gen_ai.client.token.usage",
       .unit = "{token}",
       .description = "Tokens of a request (input, output)",
       .labels = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.token.type"},
       .bounds = bounds_tokens()}};
};

const SamplingMetrics& sampling();

}  // namespace tuft::metrics
