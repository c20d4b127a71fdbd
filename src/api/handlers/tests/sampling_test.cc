// Tests of the endpoints of sampling over a real socket.

#include "api/tests/bodies.h"
#include "api/tests/test_client.h"

namespace tuft::api {
namespace {

class SamplingRoutes : public ServerTest {
 protected:
  void SetUp() override { start(); }
};

const char* const kSample =
    R"("sampling_session_id":"s:sample:0","prompt":{"chunks":[{"tokens":[1,2,3],"type":"encoded_text"}]})";

TEST_F(SamplingRoutes, AsampleListsEverySequence) {
  const Reply reply = post("asample", std::string("{") + kSample +
                                          R"(,"seq_id":999999999999999999,"num_samples":2,"prompt_logprobs":true,)"
                                          R"("sampling_params":{"max_tokens":7,"seed":5,"stop":["a","b"],)"
                                          R"("temperature":0,"top_k":-1,"top_p":0.5}})");
  EXPECT_EQ(reply.body, R"({"request_id":"r1","model_id":null,"sample_sequence_ids":["r1-0","r1-1"]})");
  EXPECT_EQ(control.last_sample.prompt_tokens, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(control.last_sample.seq_id, 999999999999999999);
  EXPECT_EQ(control.last_sample.num_samples, 2);
  EXPECT_TRUE(control.last_sample.prompt_logprobs);
  EXPECT_EQ(control.last_sample.params.max_tokens(), 7);
  EXPECT_EQ(control.last_sample.params.seed(), 5U);
  EXPECT_EQ(control.last_sample.params.temperature(), 0.0F);
  EXPECT_EQ(control.last_sample.params.stop_strs().values_size(), 2);
}

TEST_F(SamplingRoutes, AsampleDistinguishesStopStringsFromStopTokens) {
  const auto with_stop = [&](const std::string& stop) {
    return post("asample", std::string("{") + kSample + R"(,"sampling_params":{"stop":)" + stop + "}}");
  };
  EXPECT_EQ(with_stop("[7,8]").status, 200);
  EXPECT_EQ(control.last_sample.params.stop_tokens().values(1), 8);
  EXPECT_EQ(with_stop(R"("\n\u00e9")").status, 200);
  ASSERT_EQ(control.last_sample.params.stop_strs().values_size(), 1);
  EXPECT_EQ(control.last_sample.params.stop_strs().values(0), "\n\xc3\xa9");
  EXPECT_EQ(with_stop("[]").status, 200);
  EXPECT_EQ(control.last_sample.params.stop_case(), tinker_public::SamplingParams::kStopTokens);
  EXPECT_EQ(control.last_sample.params.stop_tokens().values_size(), 0);
  EXPECT_FALSE(control.last_sample.params.has_max_tokens());
  EXPECT_EQ(with_stop("null").status, 200);
  EXPECT_EQ(control.last_sample.params.stop_case(), tinker_public::SamplingParams::STOP_NOT_SET);
  expect_refusal(with_stop(R"([1,"a"])"), 400, "sampling_params.stop");
  expect_refusal(with_stop(R"({})"), 400, "sampling_params.stop");
}

// 350,000 empty strings took 53 MiB.
TEST_F(SamplingRoutes, AsampleCountsStopsBeforeItCopiesThem) {
  const auto with_stops = [&](const std::string& one, int count) {
    std::string list;
    for (int i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + one;
    return post("asample", std::string("{") + kSample + R"(,"sampling_params":{"stop":[)" + list + "]}}");
  };
  EXPECT_EQ(with_stops(R"("a")", 64).status, 200);
  EXPECT_EQ(with_stops("1", 1024).status, 200);
  const size_t accepted = control.calls.size();
  expect_refusal(with_stops(R"("a")", 65), 400, "sampling_params.stop: must have at most 64 strings or 1024 token ids");
  expect_refusal(with_stops("1", 1025), 400, "sampling_params.stop: must have at most 64 strings or 1024 token ids");
  EXPECT_EQ(control.calls.size(), accepted);
}

TEST_F(SamplingRoutes, AsampleRefusesBadPromptsWithoutEchoingThem) {
  const Reply reply = post("asample", R"({"sampling_session_id":"s","sampling_params":{},)"
                                      R"("prompt":{"chunks":[{"tokens":[1,99999999999]}]}})");
  expect_refusal(reply, 400, "prompt.chunks[0].tokens");
  EXPECT_EQ(reply.body.find("99999999999"), std::string::npos);
  expect_refusal(post("asample", R"({"sampling_session_id":"s","sampling_params":{},)"
                                 R"("prompt":{"chunks":[{"type":"image","data":"eA=="}]}})"),
                 400, "encoded_text");
  expect_refusal(post("asample", std::string("{") + kSample + R"(,"num_samples":0,"sampling_params":{}})"), 400,
                 "num_samples");
  expect_refusal(post("asample", std::string("{") + kSample + R"(,"num_samples":129,"sampling_params":{}})"), 400,
                 "num_samples: must be an integer from 1 to 128");
}

TEST_F(SamplingRoutes, AsampleReadsWhatIsAskedAboutThePrompt) {
  const auto with = [&](const std::string& more) {
    return post("asample", std::string("{") + kSample + R"(,"sampling_params":{})" + more + "}");
  };
  EXPECT_EQ(
      with(R"(,"prompt_logprobs":true,"prompt_logprobs_last_n":2,"topk_prompt_logprobs":3,"topk_sample_logprobs":4,)"
           R"("prompt_alt_tokens_k":5,"record_stability_info":true,"target_prompt_logprobs":{"data":[7,-1,9],)"
           R"("dtype":"int64","shape":[2,4],"sparse_crow_indices":[0,1,3],"sparse_col_indices":[3,0,1]})")
          .status,
      200);
  EXPECT_EQ(control.last_sample.prompt_logprobs_last_n, 2);
  EXPECT_EQ(control.last_sample.topk_prompt_logprobs, 3);
  EXPECT_EQ(control.last_sample.topk_sample_logprobs, 4);
  EXPECT_EQ(control.last_sample.prompt_alt_tokens_k, 5);
  EXPECT_TRUE(control.last_sample.record_stability_info);
  const auto sparse = control.last_sample.target_prompt_logprobs;
  ASSERT_TRUE(sparse.has_value());
  EXPECT_EQ(sparse->tokens, (std::vector<int32_t>{7, -1, 9}));
  EXPECT_EQ(sparse->rows, 2);
  EXPECT_EQ(sparse->columns, 4);
  EXPECT_EQ(sparse->crow_indices, (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(sparse->col_indices, (std::vector<int32_t>{3, 0, 1}));
  const auto targets = [&](const std::string& members) {
    return with(",\"target_prompt_logprobs\":{" + members + "}");
  };
  EXPECT_EQ(targets(R"("data":[7,8],"dtype":"int64","shape":[2,1],"sparse_crow_indices":null)").status, 200);
  EXPECT_TRUE(control.last_sample.target_prompt_logprobs->crow_indices.empty());
  expect_refusal(targets(R"("data":[7],"dtype":"float32","shape":[1,1])"), 400, "target_prompt_logprobs.dtype");
  expect_refusal(targets(R"("data":[7],"dtype":"int64","shape":[1])"), 400, "target_prompt_logprobs.shape");
  expect_refusal(targets(R"("data":[-2],"dtype":"int64","shape":[1,1])"), 400, "target_prompt_logprobs.data");
  expect_refusal(targets(R"("data":[7],"dtype":"int64","shape":[1,1],"sparse_crow_indices":[0,1])"), 400,
                 "sparse_crow_indices: must come together");
  expect_refusal(targets(R"("data":[7],"dtype":"int64","shape":[1,1],"rows":1)"), 400, "target_prompt_logprobs.rows");
  expect_refusal(with(R"(,"prompt_logprobs_last_n":0)"), 400, "prompt_logprobs_last_n");
  expect_refusal(with(R"(,"target_prompt_logprobs":[1])"), 400, "target_prompt_logprobs: must be an object");
}

TEST_F(SamplingRoutes, AsampleIgnoresNoField) {
  const auto with = [&](const std::string& more, const std::string& params = "") {
    return post("asample", std::string("{") + kSample + R"(,"sampling_params":{)" + params + "}" + more + "}");
  };
  EXPECT_EQ(with(R"(,"type":"sample","base_model":null,"model_path":null,"seq_id":null,"prompt_logprobs":null)",
                 R"("max_tokens":null,"seed":null,"stop":null)")
                .status,
            200);
  const size_t accepted = control.calls.size();
  expect_refusal(with(R"(,"topk_prompt_logprob":1)"), 400, "topk_prompt_logprob: is not a field");
  expect_refusal(with("", R"("max_token":1)"), 400, "sampling_params.max_token: is not a field");
  expect_refusal(with(R"(,"type":"score")"), 400, "type: must be sample");
  expect_refusal(with(R"(,"model_path":"tinker://x")"), 400, "model_path: must be absent");
  for (const std::string key : {"num_samples", "topk_prompt_logprobs", "topk_sample_logprobs", "prompt_alt_tokens_k"}) {
    expect_refusal(with(",\"" + key + "\":null"), 400, key + ": must not be null");
  }
  for (const std::string key : {"temperature", "top_k", "top_p"}) {
    expect_refusal(with("", "\"" + key + "\":null"), 400, "sampling_params." + key + ": must not be null");
  }
  expect_refusal(post("asample", R"({"sampling_session_id":"s","sampling_params":{},)"
                                 R"("prompt":{"chunks":[{"tokens":[1],"weight":2}],"images":1}})"),
                 400, "prompt.images: is not a field that this server knows; prompt.chunks[0].weight: is not");
  const Reply odd = with(",\"one two\":1");
  expect_refusal(odd, 400, "a member whose name is not a plain word");
  EXPECT_EQ(odd.body.find("one two"), std::string::npos);
  EXPECT_EQ(control.calls.size(), accepted);
}

// ---- results

TEST_F(SamplingRoutes, EveryPartOfASampleHasItsJson) {
  tinker_public::SampleResponse sample;
  auto* sequence = sample.add_sequences();
  sequence->set_tokens(bytes_of<int32_t>({4}));
  auto* topk = sequence->mutable_topk_sampled_logprobs();
  topk->set_k(2);
  topk->set_length(1);
  topk->set_token_ids(bytes_of<int32_t>({4, 5}));
  topk->set_logprobs(bytes_of<float>({-0.5F, -1.0F}));
  auto* targets = sample.mutable_target_prompt_logprobs();
  targets->set_dtype(tinker_public::DTYPE_FLOAT32);
  targets->add_shape(2);
  targets->add_shape(3);
  targets->mutable_sparse_csr()->set_values(bytes_of<float>({-2.0F}));
  targets->mutable_sparse_csr()->set_crow_indices(bytes_of<int64_t>({0, 0, 1}));
  targets->mutable_sparse_csr()->set_col_indices(bytes_of<int64_t>({2}));
  auto* tokens = sample.mutable_prompt_alt_tokens()->mutable_tokens();
  tokens->set_dtype(tinker_public::DTYPE_INT32);
  tokens->set_dense(bytes_of<int32_t>({8, 9}));
  auto* logprobs = sample.mutable_prompt_alt_tokens()->mutable_logprobs();
  logprobs->set_dtype(tinker_public::DTYPE_FLOAT32);
  logprobs->set_dense(bytes_of<float>({-3.0F, -4.0F}));
  for (auto* tensor : {tokens, logprobs}) {
    tensor->add_shape(2);
    tensor->add_shape(1);
  }
  ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 200);
  control.finish_with("r1", control::OperationType::kSample, control::ProtobufResult{sample.SerializeAsString()});
  EXPECT_EQ(post("retrieve_future", R"({"request_id":"r1"})").body,
            R"({"type":"sample","sequences":[{"stop_reason":"stop","tokens":[4],"topk_logprobs":[[[4,-0.5],[5,-1]]]}],)"
            R"("target_prompt_logprobs":{"data":[-2],"dtype":"float32","shape":[2,3],"sparse_crow_indices":[0,0,1],)"
            R"("sparse_col_indices":[2]},"prompt_alt_tokens":{"tokens":{"data":[8,9],"dtype":"int64","shape":[2,1]},)"
            R"("logprobs":{"data":[-3,-4],"dtype":"float32","shape":[2,1]}},"prompt_cache_hit_tokens":0})");
}

}  // namespace
}  // namespace tuft::api
