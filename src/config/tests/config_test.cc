#include "config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/testing/temp_dir.h"
#include "config/key_hash.h"
#include "config/tests/model_directory.h"

namespace tuft::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string errors_of(const std::string& yaml) {
  const Result<Loaded> loaded = parse_config(yaml, "tuft.yaml");
  return loaded.ok() ? "" : loaded.error().message;
}

Loaded parsed(const std::string& yaml) {
  Result<Loaded> loaded = parse_config(yaml, "tuft.yaml");
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
  return loaded.ok() ? std::move(*loaded) : Loaded{};
}

TEST(Config, TheSmallestFileHasTheDefaults) {
  const ScopedVariable home("TUFT_HOME", "/srv/tuft");
  const Loaded loaded = parsed(one_model() + kUsers);
  const ServerConfig& config = loaded.config;
  EXPECT_THAT(loaded.warnings, IsEmpty());
  EXPECT_EQ(config.host, "127.0.0.1");
  EXPECT_EQ(config.port, 10610);
  EXPECT_EQ(config.checkpoint_dir, "/srv/tuft/checkpoints");
  ASSERT_EQ(config.supported_models.size(), 1u);
  const ModelConfig& model = config.supported_models[0];
  EXPECT_EQ(model.model_name, "m");
  EXPECT_EQ(model.model_path, model_directory());
  EXPECT_EQ(model.max_model_len, 128);
  EXPECT_TRUE(model.training && model.sampling);
  EXPECT_EQ(model.max_lora_rank, 128);
  EXPECT_EQ(model.lora_alpha_ratio, 2);
  EXPECT_EQ(config.authorized_users.at(kept_form_of_key("tml-key-of-alice")), "alice");
  EXPECT_FALSE(config.telemetry.enabled);
  EXPECT_FALSE(config.telemetry.service_name);
  EXPECT_EQ(config.limits.reorder_window, 4096);
}

TEST(Config, ReadsEveryKey) {
  const ServerConfig config =
      parsed(
          R"(
host: 0.0.0.0
port: "8080"
log_level: DEBUG
log_format: json
public_url: https://tuft.example:8443/api/
checkpoint_dir: /var/lib/tuft
model_owner: lab
toy_backend_seed: 3
telemetry:
  enabled: yes
  service_name: lab-tuft
  otlp_endpoint: http://collector:4317
  resource_attributes: {deployment.environment: test, shard: 3}
limits: {request_body_bytes_max: 1_048_576, futures_per_user_max: 1, sessions_per_user_max: 2, runs_per_user_max: 3,
  samplers_per_user_max: 4, reorder_window: 5, gap_timeout_seconds: 6, future_retention_seconds: 700,
  future_bytes_max: 8388608, connections_max: 9, samples_in_flight_per_user_max: 10, session_idle_seconds: 61,
  save_before_expiry: no, audit_retention_days: 12, connections_per_address_max: 13, header_bytes_max: 5000,
  request_timeout_seconds: 14, idle_timeout_seconds: 15, checkpoint_bytes_per_user_max: 16,
  queued_bytes_per_user_max: 17_000_000, journal_bytes_per_user_max: 27_000_000, receiving_bytes_max: 18_000_000, session_bytes_per_user_max: 19_000_000,
  future_bytes_per_user_max: 7_000_000, audit_events_per_user_max: 800, usage_lines_per_user_max: 900, ended_sessions_per_user_max: 40,
  sampling_silence_seconds: 31,
  custom_losses_per_user_max: 24, custom_loss_bytes_per_user_max: 250_000, sample_record_bytes_max: 3_000_000,
  sample_record_bytes_per_user_max: 2_000_000, archives_per_user_max: 21, archives_max: 22, answer_stall_seconds: 22,
  checkpoints_per_user_max: 250, request_parts_max: 19_000, sending_bytes_max: 20_000_000, answer_rate_min: 21,
  unfinished_head_bytes_max: 23_000_000, unnamed_samplers_per_run_max: 24, expired_checkpoint_ttl_seconds: 26}
tls: {certificate: /etc/tuft/server.pem, private_key: /etc/tuft/server.key}
authorized_users_file: /etc/tuft/users.yaml
persistence: {mode: DISABLE}
)" +
          one_model("    capabilities: [sampling]\n    max_lora_rank: 8.0\n    lora_alpha_ratio: 1\n"
                    "    train_batch_tokens: 64\n    sample_batch_tokens: 32\n    default_max_tokens: 7\n"
                    "    weights_dtype: bf16\n    threads: 3\n    backend: torch\n    device: cuda:1\n"
                    "    cuda_graphs: true\n    kv_cache_bytes: 8589934592\n    adapter_memory_bytes: 4294967296\n"
                    "    adapter_page_bytes: 31\n    training_share: 30\n") +
          kUsers)
          .config;
  EXPECT_EQ(config.host, "0.0.0.0");
  EXPECT_EQ(config.port, 8080);
  EXPECT_EQ(config.log_level, "debug");
  EXPECT_EQ(config.log_format, "json");
  EXPECT_EQ(config.public_url, "https://tuft.example:8443/api");
  EXPECT_EQ(config.checkpoint_dir, "/var/lib/tuft");
  EXPECT_EQ(config.model_owner, "lab");
  EXPECT_TRUE(config.telemetry.enabled);
  EXPECT_EQ(config.telemetry.service_name, "lab-tuft");
  EXPECT_EQ(config.telemetry.otlp_endpoint, "http://collector:4317");
  EXPECT_EQ(config.telemetry.resource_attributes.at("shard"), "3");
  const Limits& limits = config.limits;
  EXPECT_EQ(limits.request_body_bytes_max, 1048576);
  EXPECT_EQ(std::pair(limits.future_bytes_max, limits.future_retention_seconds), std::pair(int64_t{8388608}, 700));
  EXPECT_THAT((std::vector<int>{limits.futures_per_user_max, limits.sessions_per_user_max, limits.runs_per_user_max,
                                limits.samplers_per_user_max, limits.reorder_window, limits.gap_timeout_seconds,
                                limits.connections_max}),
              ElementsAre(1, 2, 3, 4, 5, 6, 9));
  EXPECT_THAT((std::vector<int>{limits.samples_in_flight_per_user_max, limits.session_idle_seconds,
                                limits.audit_retention_days, limits.connections_per_address_max,
                                limits.header_bytes_max, limits.request_timeout_seconds, limits.idle_timeout_seconds}),
              ElementsAre(10, 61, 12, 13, 5000, 14, 15));
  EXPECT_FALSE(limits.save_before_expiry);
  EXPECT_EQ(limits.journal_bytes_per_user_max, 27'000'000);
  EXPECT_THAT((std::vector<int64_t>{limits.checkpoint_bytes_per_user_max, limits.unnamed_samplers_per_run_max,
                                    limits.checkpoints_per_user_max, limits.expired_checkpoint_ttl_seconds,
                                    limits.queued_bytes_per_user_max, limits.receiving_bytes_max,
                                    limits.session_bytes_per_user_max, limits.future_bytes_per_user_max}),
              ElementsAre(16, 24, 250, 26, 17'000'000, 18'000'000, 19'000'000, 7'000'000));
  EXPECT_EQ(limits.audit_events_per_user_max, 800);
  EXPECT_EQ(limits.usage_lines_per_user_max, 900);
  EXPECT_EQ(limits.ended_sessions_per_user_max, 40);
  EXPECT_EQ(limits.custom_losses_per_user_max, 24);
  EXPECT_EQ(limits.custom_loss_bytes_per_user_max, 250'000);
  EXPECT_EQ(limits.sample_record_bytes_per_user_max, 2'000'000);
  EXPECT_EQ(limits.sample_record_bytes_max, 3'000'000);
  EXPECT_EQ(limits.archives_per_user_max, 21);
  EXPECT_EQ(limits.archives_max, 22);
  EXPECT_EQ(limits.sampling_silence_seconds, 31);
  EXPECT_EQ(limits.request_parts_max, 19'000);
  EXPECT_EQ(limits.sending_bytes_max, 20'000'000);
  EXPECT_EQ(limits.answer_rate_min, 21);
  EXPECT_EQ(limits.answer_stall_seconds, 22);
  EXPECT_EQ(limits.unfinished_head_bytes_max, 23'000'000);
  EXPECT_EQ(config.tls.certificate, "/etc/tuft/server.pem");
  EXPECT_EQ(config.tls.private_key, "/etc/tuft/server.key");
  EXPECT_EQ(config.authorized_users_file, "/etc/tuft/users.yaml");
  const ModelConfig& model = config.supported_models[0];
  EXPECT_FALSE(model.training);
  EXPECT_TRUE(model.sampling);
  EXPECT_EQ(model.max_lora_rank, 8);
  EXPECT_EQ(model.lora_alpha_ratio, 1);
  EXPECT_EQ(model.train_batch_tokens, 64);
  EXPECT_EQ(model.sample_batch_tokens, 32);
  EXPECT_EQ(model.default_max_tokens, 7);
  EXPECT_EQ(model.weights_dtype, WeightsDtype::kBfloat16);
  EXPECT_EQ(model.backend, BackEnd::kTorch);
  EXPECT_EQ(model.device, "cuda:1");
  EXPECT_TRUE(model.cuda_graphs);
  EXPECT_EQ(model.threads, 3);
  EXPECT_EQ(model.kv_cache_bytes, int64_t{8} << 30);
  EXPECT_EQ(std::pair(model.adapter_memory_bytes, model.adapter_page_bytes), std::pair(int64_t{4} << 30, int64_t{31}));
  EXPECT_EQ(model.training_share, 30);
}

struct Rule {
  const char* model_lines;  // appended to a valid model entry
  const char* root_lines;
  const char* message;
};

class ConfigRule : public ::testing::TestWithParam<Rule> {};

TEST_P(ConfigRule, IsAnErrorThatNamesTheKeyAndTheCure) {
  const Rule& rule = GetParam();
  EXPECT_THAT(errors_of(one_model(rule.model_lines) + rule.root_lines), HasSubstr(rule.message));
}

INSTANTIATE_TEST_SUITE_P(
    Model, ConfigRule,
    ::testing::Values(
        Rule{"    max_lora_rnk: 8\n", "",
             "tuft.yaml:5: unknown key 'max_lora_rnk' in supported_models[0]; did you mean 'max_lora_rank'?"},
        Rule{"    max_lora_rank: 0\n", "",
             "tuft.yaml:5: supported_models[0].max_lora_rank: must be at least 1, not '0'"},
        Rule{"    max_lora_rank: many\n", "", "supported_models[0].max_lora_rank: must be a whole number, not 'many'"},
        Rule{"    max_lora_rank: 1.5\n", "", "must be a whole number, not '1.5'"},
        Rule{"    max_lora_rank: [8]\n", "", "must be a whole number, not a list"},
        Rule{"    lora_alpha_ratio: 0\n", "", "lora_alpha_ratio: must be at least 1"},
        Rule{"    max_loras: 0\n", "", "max_loras: must be at least 1"},
        Rule{"    train_batch_tokens: 0\n", "", "train_batch_tokens: must be at least 1"},
        Rule{"    sample_batch_tokens: -1\n", "", "sample_batch_tokens: must be at least 1"},
        Rule{"    default_max_tokens: 0\n", "", "default_max_tokens: must be at least 1"},
        Rule{"    threads: -1\n", "", "threads: must be at least 0"},
        Rule{"    kv_cache_bytes: -1\n", "", "kv_cache_bytes: must be at least 0"},
        Rule{"    adapter_memory_bytes: -1\n", "", "adapter_memory_bytes: must be at least 0"},
        Rule{"    adapter_page_bytes: -1\n", "", "adapter_page_bytes: must be at least 0"},
        Rule{"    training_share: 100\n", "", "training_share: must be at most 99"},
        Rule{"    backend: onnx\n", "", "backend: must be one of native, torch, not 'onnx'"},
        Rule{"    backend: torch\n    device: gpu\n", "", "device: must be cpu, cuda or cuda:N, not 'gpu'"},
        Rule{"    device: cuda\n", "", "device: the native back end computes on the CPU; set backend: torch"},
        Rule{"    cuda_graphs: true\n", "", "cuda_graphs: records the work of a GPU; set device: cuda"},
        Rule{"    weights_dtype: fp8\n", "", "weights_dtype: must be one of auto, f32, bf16, not 'fp8'"},
        Rule{"    capabilities: []\n", "", "capabilities: must name at least one of training, sampling"},
        Rule{"    capabilities: [training, dancing]\n", "", "capabilities: each entry must be training or sampling"},
        Rule{"    capabilities: training\n", "", "capabilities: must be a list"},
        Rule{"    colocate: true\n    tensor_parallel_size: 2\n", "", "colocate: needs tensor_parallel_size 1"},
        Rule{"    colocate: true\n    data_parallel_size: 2\n", "", "colocate: needs data_parallel_size 1"},
        Rule{"    colocate: true\n    capabilities: [sampling]\n", "",
             "colocate: needs the capabilities training and sampling"},
        Rule{"    colocate: maybe\n", "", "colocate: must be true or false, not 'maybe'"},
        Rule{"    training_backend: ray\n", "", "training_backend: must be one of hf, fsdp"},
        Rule{"    fsdp_rank_slots: {}\n", "", "fsdp_rank_slots: must map ranks to counts"},
        Rule{"    fsdp_rank_slots: {0: 1}\n", "", "ranks and counts must be whole numbers >= 1"},
        Rule{"    fsdp_rank_slots: {8: 0}\n", "", "ranks and counts must be whole numbers >= 1"},
        Rule{"    training_backend: fsdp\n    max_lora_rank: 16\n    fsdp_rank_slots: {8: 2}\n", "",
             "its highest rank must be max_lora_rank (16)"},
        Rule{"    training_backend: fsdp\n    max_lora_rank: 16\n    fsdp_rank_slots: {16: 2, 32: 1}\n", "",
             "its highest rank must be max_lora_rank (16)"},
        Rule{"    fsdp_target_modules: []\n", "", "fsdp_target_modules: must be a list of names"},
        Rule{"    fsdp_target_modules: [\" \"]\n", "", "fsdp_target_modules: holds a blank name"},
        Rule{"    fsdp_target_modules: [q_proj, \"q_proj \"]\n", "", "fsdp_target_modules: names a target twice"},
        Rule{"    fsdp_target_modules: [q_proj, v_proj]\n", "", "need fsdp_qv_only: true"},
        Rule{"    fsdp_qv_only: true\n", "", "fsdp_qv_only: needs training_backend: fsdp"},
        Rule{"    training_backend: fsdp\n    fsdp_qv_only: true\n    fsdp_target_modules: [k_proj]\n", "",
             "fsdp_qv_only: contradicts"},
        Rule{"    enable_auto_tool_choice: true\n", "", "enable_auto_tool_choice: needs a tool_call_parser"}));

INSTANTIATE_TEST_SUITE_P(
    Root, ConfigRule,
    ::testing::Values(
        Rule{"", "telemetri: {enabled: true}\n",
             "tuft.yaml:5: unknown key 'telemetri' at the top level; did you mean 'telemetry'?"},
        Rule{"", "telemetry: {enable: true}\n", "unknown key 'enable' in telemetry; did you mean 'enabled'?"},
        Rule{"", "telemetry: true\n", "telemetry: must be a mapping"},
        Rule{"", "telemetry: {enabled: perhaps}\n", "telemetry.enabled: must be true or false"},
        Rule{"", "telemetry: {service_name: \"\"}\n", "telemetry.service_name: must not be empty"},
        Rule{"", "telemetry: {resource_attributes: [a]}\n", "telemetry.resource_attributes: must be a mapping"},
        Rule{"", "telemetry: {resource_attributes: {a: [b]}}\n", "telemetry.resource_attributes.a: must be a text"},
        Rule{"", "limits: {reorder_windw: 1}\n", "did you mean 'reorder_window'?"},
        Rule{"", "limits: {connections_max: 0}\n", "limits.connections_max: must be at least 1"},
        Rule{"", "limits: {future_retention_seconds: 5}\n", "limits.future_retention_seconds: must be at least 120"},
        Rule{"", "limits: {header_bytes_max: 70000}\n", "limits.header_bytes_max: must be at most 65536"},
        Rule{"", "limits: {queued_bytes_per_user_max: 5}\n",
             "limits.queued_bytes_per_user_max: must be at least 1048576"},
        Rule{"", "limits: {receiving_bytes_max: 0}\n", "limits.receiving_bytes_max: must be at least 1048576"},
        Rule{"", "limits: {request_body_bytes_max: 2_000_000_000}\n",
             "limits.receiving_bytes_max: must be at least limits.request_body_bytes_max, which is 2000000000"},
        Rule{"", "limits: {session_idle_seconds: 5}\n", "limits.session_idle_seconds: must be at least 30"},
        Rule{"", "tls: {certificate: a.pem}\n", "tls.private_key: is missing: HTTPS needs tls.certificate and"},
        Rule{"", "tls: {private_key: a.pem}\n", "tls.certificate: is missing"},
        Rule{"", "authorized_users: {\"sha256:00:11\": a}\n", "(entry 1): is not a hash as `tuft hash-key` prints it"},
        Rule{"", "persistence: {namespace: \"\"}\n", "persistence.namespace: must be a text of 1 to 200 bytes"},
        Rule{"", "persistence: {future_ttl_seconds: 0}\n", "persistence.future_ttl_seconds: must be at least 1"},
        Rule{"", "persistence: {check_fields: TELEMETRY}\n", "persistence.check_fields: must be a list of names"},
        Rule{"", "persistence: {check_fields: [TELEMETRI]}\n", "none of SUPPORTED_MODELS, CHECKPOINT_DIR"},
        Rule{"", "persistence: {mode: disable}\n", "persistence.mode: must be one of DISABLE, FILE, REDIS"},
        Rule{"", "authorized_users: [alice]\n", "authorized_users: must be a mapping of API keys to users"},
        Rule{"", "authorized_users: {tml-a: [x]}\n", "authorized_users (entry 1): must be the name of a user"},
        Rule{"", "authorized_users: {\"\": x}\n", "authorized_users (entry 1): has an empty API key"},
        Rule{"", "authorized_users: {tml-a: \"a\\nb\"}\n", "without control characters"},
        Rule{"", "port: 70000\n", "port: must be at most 65535"},
        Rule{"", "public_url: tuft.example\n", "public_url: must be the address that clients use"},
        Rule{"", "public_url: ftp://tuft.example\n", "public_url: must be the address that clients use"},
        Rule{"", "public_url: https://\n", "public_url: must be the address that clients use"},
        Rule{"", "public_url: https://a@b\n", "public_url: must be the address that clients use"},
        Rule{"", "public_url: https://a:0/x\n", "public_url: must be the address that clients use"},
        Rule{"", "public_url: \"https://[::1\"\n", "public_url: must be the address that clients use"},
        Rule{"", "public_url: \"https://a/x?y\"\n", "public_url: must be the address that clients use"},
        Rule{"", "port: 1\nport: 2\n", "tuft.yaml:6: this key stands here twice; the first one is in line 5"},
        Rule{"", "host: \"\"\n", "host: must be an address"},
        Rule{"", "log_level: loud\n", "log_level: must be debug, info, warning or error"},
        Rule{"", "log_format: xml\n", "log_format: must be one of text, json"},
        Rule{"", "model_owner: ${nothing}\n", "tuft.yaml:5: ${...} refers to a key that is not in this file"},
        Rule{"", "some_setting: 1\n",
             "unknown key 'some_setting' at the top level; docs/configuration.md lists the keys"}));

TEST(Config, RefusesAFileWithoutModels) {
  EXPECT_THAT(errors_of(kUsers), HasSubstr("supported_models: must list at least one model"));
  EXPECT_THAT(errors_of("supported_models: []\n"), HasSubstr("supported_models: must list at least one model"));
  EXPECT_THAT(errors_of("supported_models: {a: b}\n"), HasSubstr("supported_models: must be a list"));
  EXPECT_THAT(errors_of("supported_models: [~]\n"), HasSubstr("supported_models[0]: is empty"));
  EXPECT_THAT(errors_of(""), HasSubstr("the file must be a mapping"));
  EXPECT_THAT(errors_of("- a\n"), HasSubstr("the file must be a mapping"));
}

TEST(Config, DoesNotReadEndlessDocumentsAfterAComma) {
  EXPECT_THAT(errors_of(","), HasSubstr("tuft.yaml:1: this is not YAML: nothing can start here"));
  EXPECT_THAT(errors_of(" , {c0:1,?1 ' }g :}g : h}"), HasSubstr("tuft.yaml:1: this is not YAML"));
  EXPECT_THAT(errors_of("a: 1\n---\n,"), HasSubstr("tuft.yaml:2: a second document starts here"));
}

TEST(Config, LargeOrDeepReferencesAreRefused) {
  std::string doubling = "v0: 0123456789abcdef\n";
  std::string chain = "v0: x\n";
  for (int i = 1; i <= 31; ++i) {
    const std::string before = "${v" + std::to_string(i - 1) + "}";
    doubling += "v" + std::to_string(i) + ": " + before + before + "\n";
  }
  for (int i = 1; i <= 1000; ++i) {
    chain = "v" + std::to_string(i) + ": ${v" + std::to_string(i - 1) + "}\n" + chain;
  }
  std::string nested = "v: ";
  for (int i = 0; i < 10'000; ++i) nested += "${";
  nested.append(10'000, '}');
  EXPECT_THAT(errors_of(doubling), HasSubstr("with its ${...} filled in this value is too long"));
  EXPECT_THAT(errors_of(chain), HasSubstr("refers to others, and these to others, too many times"));
  EXPECT_THAT(errors_of(nested), HasSubstr("refers to others, and these to others, too many times"));
}

TEST(Config, ShowsAllMistakesOfAModelAtOnce) {
  const std::string errors =
      errors_of("supported_models:\n  - model_name: \"two words\"\n    model_path: /nowhere/at/all\n");
  EXPECT_THAT(errors, HasSubstr("supported_models[0].model_name: must be 1 to 200 printable"));
  EXPECT_THAT(errors, HasSubstr("supported_models[0].model_path: there is no directory /nowhere/at/all"));
  EXPECT_THAT(errors, HasSubstr("supported_models[0].max_model_len: is missing"));
}

TEST(Config, RefusesInvalidDirectoriesAndLengths) {
  const TempDir empty;
  const std::string entry =
      "supported_models:\n  - {model_name: m, max_model_len: 0, model_path: " + empty.path().string() + "}\n";
  EXPECT_THAT(errors_of(entry), HasSubstr("supported_models[0].model_path: there is no config.json in"));
  EXPECT_THAT(errors_of(entry), HasSubstr("supported_models[0].max_model_len: must be at least 1"));
}

TEST(Config, RefusesDuplicateNamesAndColocateWithSeveralModels) {
  const std::string second = "  - model_name: m\n    model_path: " + model_directory() + "\n    max_model_len: 1\n";
  EXPECT_THAT(errors_of(one_model() + second),
              HasSubstr("supported_models[1].model_name: is the name of supported_models[0] too"));
  EXPECT_THAT(errors_of(one_model("    colocate: true\n") + second), HasSubstr("colocate: is for a single model"));
}

TEST(Config, KeyOfAnotherEngineGivesOneWarningWithItsReplacement) {
  const std::string lines = "    tensor_parallel_size: 2\n    micro_batch_size: 4\n    sampling_memory_fraction: 0.5\n";
  const std::string second =
      "  - model_name: n\n    model_path: " + model_directory() + "\n    max_model_len: 1\n" + lines;
  const Loaded loaded = parsed(one_model(lines) + second + kUsers + "worker_venv_path: /venv\n");
  EXPECT_THAT(loaded.warnings,
              ::testing::UnorderedElementsAre(HasSubstr("supported_models[0].tensor_parallel_size: has no effect"),
                                              HasSubstr("set train_batch_tokens"), HasSubstr("one copy of the weights"),
                                              HasSubstr("worker_venv_path: has no effect")));
}

TEST(Config, SaysThatReplicateIsForTraining) {
  const std::string sampling = "    capabilities: [sampling]\n    replicate: true\n";
  EXPECT_THAT(parsed(one_model(sampling) + kUsers).warnings,
              ElementsAre(HasSubstr("supported_models[0].replicate: has no effect")));
  EXPECT_THAT(parsed(one_model("    replicate: true\n") + kUsers).warnings, IsEmpty());
}

TEST(Config, AcceptsEveryKeyOfTuft) {
  const Loaded loaded = parsed(one_model(R"(    capabilities: [sampling, training, training]
    tensor_parallel_size: 1
    data_parallel_size: 1
    temperature: 0.7
    top_p: 0.9
    top_k: 5
    logprobs: 1
    seed: 42
    min_response_tokens: 0
    default_max_tokens: 16
    max_lora_rank: 16
    max_loras: 4
    lora_alpha_ratio: 2
    micro_batch_size: 1
    training_backend: fsdp
    fsdp_num_gpus: 2
    fsdp_master_port: 29500
    fsdp_rank_slots: {8: 16, 16: 8}
    fsdp_qv_only: false
    fsdp_target_modules: [q_proj, k_proj]
    fsdp_target_parameters: []
    fsdp_train_attn: true
    fsdp_train_mlp: true
    fsdp_train_unembed: true
    qwen_gated_deltanet_full_lora: false
    fsdp_override_config: {a: 1}
    attn_implementation: sdpa
    quantization: fp8
    colocate: true
    sampling_memory_fraction: 0.2
    sampling_max_model_len: 64
    sampling_enforce_eager: true
    enable_auto_tool_choice: true
    tool_call_parser: hermes
    reasoning_parser: qwen3
)") + kUsers +
                               "persistence: {mode: DISABLE, redis_url: r, file_path: f, namespace: n, "
                               "future_ttl_seconds: 1, check_fields: []}\n"
                               "worker_venv_path: /v\ntoy_backend_seed: 0\nmodel_owner: x\ncheckpoint_dir: /tmp/c\n");
  EXPECT_EQ(loaded.warnings.size(), 30u /* of another engine */ + 1 /* max_loras */ + 1 /* venv */);
}

TEST(Config, ReadsThePersistenceBlock) {
  const PersistenceConfig defaults = parsed(one_model() + kUsers).config.persistence;
  EXPECT_EQ(defaults.mode, PersistenceMode::kDisable);
  EXPECT_EQ(defaults.redis_url, "redis://localhost:6379/0");
  EXPECT_EQ(defaults.name_space, "persistence-tuft-server");
  EXPECT_EQ(defaults.future_ttl_seconds, 86'400);
  EXPECT_EQ(defaults.file_path.filename(), "persistence.db");
  EXPECT_TRUE(defaults.file_path.is_absolute());
  const PersistenceConfig file = parsed(one_model() + kUsers +
                                        "persistence: {mode: FILE, file_path: ~/x/y.db, namespace: n, "
                                        "future_ttl_seconds: null, check_fields: [TELEMETRY]}\n")
                                     .config.persistence;
  EXPECT_EQ(file.mode, PersistenceMode::kFile);
  EXPECT_EQ(file.file_path.string().find('~'), std::string::npos);
  EXPECT_TRUE(file.file_path.string().ends_with("/x/y.db"));
  EXPECT_EQ(file.name_space, "n");
  EXPECT_FALSE(file.future_ttl_seconds.has_value());
  EXPECT_EQ(file.check_fields, (std::vector<std::string>{"SUPPORTED_MODELS", "TELEMETRY"}));
  const PersistenceConfig redis =
      parsed(one_model() + kUsers + "persistence: {mode: REDIS, redis_url: redis://h:1/2}\n").config.persistence;
  EXPECT_EQ(redis.mode, PersistenceMode::kRedis);
  EXPECT_EQ(redis.redis_url, "redis://h:1/2");
}

TEST(Config, UsersCanBeInASeparateFile) {
  const TempDir directory;
  const auto path = directory / "users.yaml";
  const std::string hash = "sha256:00ff:" + std::string(64, 'a');
  ASSERT_TRUE(write_file_atomically(path, hash + ": alice\ntml-two: bob\n").ok());
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  const Result<UsersFile> file = read_users_file(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->users, (std::map<std::string, std::string>{{hash, "alice"}, {kept_form_of_key("tml-two"), "bob"}}));
  EXPECT_THAT(file->warnings, ElementsAre());
  std::filesystem::permissions(path, std::filesystem::perms::group_read, std::filesystem::perm_options::add);
  EXPECT_THAT(read_users_file(path)->warnings, ElementsAre(HasSubstr("can be read by others")));
  std::filesystem::permissions(path, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  for (const char* broken : {"tml-s3cret: [x]\n", "- tml-s3cret\n", "tml-s3cret: a\ntml-s3cret: b\n", "{"}) {
    ASSERT_TRUE(write_file_atomically(path, broken).ok());
    const Result<UsersFile> refused = read_users_file(path);
    ASSERT_FALSE(refused.ok()) << broken;
    EXPECT_THAT(refused.error().message, ::testing::Not(HasSubstr("s3cret")));
  }
  EXPECT_THAT(read_users_file(directory / "nowhere").error().message, HasSubstr("authorized_users_file: "));
}

TEST(Config, WarnsOfKeysThatTheSdkRefusesAndOfMissingUsers) {
  EXPECT_THAT(parsed(one_model() + "authorized_users: {plain-key: bob, eyJtoken: eve}\n").warnings,
              ElementsAre(HasSubstr(
                  "authorized_users (entry 1): the Tinker SDK refuses API keys that do not start with \"tml-\"")));
  EXPECT_THAT(parsed(one_model()).warnings, ElementsAre(HasSubstr("authorized_users: is empty")));
  const Loaded disabled = parsed(one_model() + "authorized_users: {tml-one: \"\", tml-two: bob}\n");
  EXPECT_THAT(disabled.warnings, ElementsAre(HasSubstr("(entry 1): names no user, so the key is refused")));
  EXPECT_EQ(disabled.config.authorized_users.size(), 1u);
}

}  // namespace
}  // namespace tuft::config
