#include "app/tuft_worker/options.h"

#include <algorithm>
#include <map>
#include <optional>

#include <CLI/CLI.hpp>

namespace tuft::app {
namespace {

constexpr int kUsageError = 2;

std::map<std::string, engine::Family> families_by_name() {
  std::map<std::string, engine::Family> all;
  for (const engine::FamilyFacts& facts : engine::families()) all.emplace(facts.name, facts.family);
  return all;
}

// Presets of --size; a flag of its own overrides each value.
const std::map<std::string, engine::InitModelOptions>& sizes() {
  static const std::map<std::string, engine::InitModelOptions> all = [] {
    const auto make = [](int hidden, int intermediate, int layers, int heads, int kv_heads, int head_dim) {
      engine::InitModelOptions options;
      options.hidden_size = hidden;
      options.intermediate_size = intermediate;
      options.layers = layers;
      options.heads = heads;
      options.kv_heads = kv_heads;
      options.head_dim = head_dim;
      return options;
    };
    return std::map<std::string, engine::InitModelOptions>{{"tiny", make(64, 192, 2, 4, 2, 16)},
                                                           {"small", make(256, 768, 4, 8, 4, 32)},
                                                           {"medium", make(512, 1536, 8, 8, 4, 64)},
                                                           {"large", make(1024, 3072, 16, 16, 8, 64)}};
  }();
  return all;
}

void add_worker_flags(CLI::App& app, WorkerFlags& flags) {
  // A worker that joins parses the server's flags and then its own.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option(
      "--join", flags.join.address,
      "HOST:PORT of a server to join, or of several with commas between them, of which one leads; the server's "
      "configuration gives the other flags, and those given here win");
  app.add_option("--join-token-file", flags.join.token_file, "file with the server's join token");
  app.add_option("--join-ca", flags.join.authority,
                 "file with the authority of the server's certificate [the machine's]");
  app.add_option("--join-certificate", flags.join.certificate,
                 "file with this worker's certificate, if the server asks "
                 "for one");
  app.add_option("--join-key", flags.join.private_key, "file with the private key of that certificate");
  app.add_option("--drain-seconds", flags.join.drain_seconds,
                 "after SIGTERM, how long the server may take to save what this worker holds [25]")
      ->check(CLI::Range(0, 3600));
  app.add_option("--model-path", flags.model_path, "Hugging Face model directory");
  app.add_option("--model-name", flags.model_name, "name of the base model in messages, logs and telemetry");
  app.add_option("--socket", flags.socket, "unix socket to listen on");
  app.add_option("--traceparent", flags.traceparent, "W3C trace context of the parent span");
  app.add_option("--parent-pid", flags.parent_pid, "id of a process; the worker ends when it ends");
  app.add_option("--max-model-len", flags.max_model_len, "max tokens of prompt and output, and of a datum")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--train-batch-tokens", flags.train_batch_tokens, "max tokens of one training pass")
      ->check(CLI::PositiveNumber);
  app.add_option("--sample-batch-tokens", flags.sample_batch_tokens, "max tokens of one sampling step")
      ->check(CLI::PositiveNumber);
  app.add_option("--max-lora-rank", flags.max_lora_rank, "largest rank of an adapter")->check(CLI::PositiveNumber);
  app.add_option("--threads", flags.threads, "compute threads; 0: one per usable core")->check(CLI::NonNegativeNumber);
  app.add_option("--kv-cache-bytes", flags.kv_cache_bytes,
                 "bytes of the KV cache; 0: half of the memory that is free after loading the weights")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--adapter-memory-bytes", flags.adapter_memory_bytes,
                 "bytes of the adapters; 0: half of the memory that weights and KV cache leave free")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--adapter-page-bytes", flags.adapter_page_bytes,
                 "bytes of the page files of adapters that do not fit into memory; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--page-directory", flags.page_directory,
                 "directory for adapters that do not fit into memory, and for copies of checkpoints in a bucket");
  app.add_option("--memory-share", flags.memory_share, "this worker's share of the free memory")
      ->check(CLI::Range(0.001, 1.0));
  app.add_option("--training-share", flags.training_share,
                 "percent of the engine's time for training while samples wait")
      ->check(CLI::Range(1, 99));
  app.add_option("--backend", flags.backend, "native or torch")->check(CLI::IsMember({"native", "torch"}));
  app.add_option("--device", flags.device, "cpu; with the torch back end also cuda or cuda:N");
  app.add_option("--cuda-graphs", flags.cuda_graphs, "on a GPU, capture decode steps as CUDA graphs (default: true)");
  app.add_option("--weights-dtype", flags.weights_dtype, "auto, f32 or bf16");
  app.add_option("--log-level", flags.log_level, "debug, info, warning or error");
  app.add_option("--log-format", flags.log_format, "text or json");
}

struct InitModelText {
  std::string size = "small";
  std::string family = "qwen3";
  std::string dtype = "f32";
  std::optional<int> hidden, intermediate, layers, heads, kv_heads, head_dim, max_position;
  std::optional<bool> tied;
  uint64_t seed = 0;
};

void add_init_model_flags(CLI::App& app, InitModelFlags& flags, InitModelText& text) {
  app.add_option("directory", flags.directory, "directory to write; must not exist")->required();
  app.add_option("--family", text.family, "model family")->check(CLI::IsMember(families_by_name()));
  app.add_option("--size", text.size, "tiny, small, medium or large")
      ->check(CLI::IsMember({"tiny", "small", "medium", "large"}));
  app.add_option("--hidden-size", text.hidden)->check(CLI::PositiveNumber);
  app.add_option("--intermediate-size", text.intermediate)->check(CLI::PositiveNumber);
  app.add_option("--layers", text.layers)->check(CLI::PositiveNumber);
  app.add_option("--heads", text.heads)->check(CLI::PositiveNumber);
  app.add_option("--kv-heads", text.kv_heads)->check(CLI::PositiveNumber);
  app.add_option("--head-dim", text.head_dim)->check(CLI::PositiveNumber);
  app.add_option("--max-position", text.max_position, "longest sequence in tokens")->check(CLI::PositiveNumber);
  app.add_option("--tie-word-embeddings", text.tied, "true or false");
  app.add_option("--dtype", text.dtype, "f32 or bf16")->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--seed", text.seed, "the same seed gives the same weights");
}

engine::InitModelOptions init_model_options(const InitModelText& text) {
  engine::InitModelOptions options = sizes().at(text.size);
  options.family = families_by_name().at(text.family);
  options.hidden_size = text.hidden.value_or(options.hidden_size);
  options.intermediate_size = text.intermediate.value_or(options.intermediate_size);
  options.layers = text.layers.value_or(options.layers);
  options.heads = text.heads.value_or(options.heads);
  options.kv_heads = text.kv_heads.value_or(options.kv_heads);
  options.head_dim = text.head_dim.value_or(options.head_dim);
  options.max_position = text.max_position.value_or(options.max_position);
  options.tie_word_embeddings = text.tied.value_or(options.tie_word_embeddings);
  options.dtype = text.dtype == "bf16" ? engine::Dtype::kBfloat16 : engine::Dtype::kFloat32;
  options.seed = text.seed;
  return options;
}

// Without either, nothing could call the worker.
void check_worker_flags(const CLI::App& app) {
  if (app.count("--model-path") == 0) throw CLI::RequiredError("--model-path");
  if (app.count("--join") == 0 && app.count("--socket") == 0) throw CLI::RequiredError("--join or --socket");
  if (app.count("--join") != 0 && app.count("--socket") != 0) throw CLI::ExcludesError("--join", "--socket");
  if (app.count("--join-certificate") != app.count("--join-key")) {
    throw CLI::RequiresError("--join-certificate", "--join-key");
  }
  if (app.count("--join") != 0 && app.count("--join-token-file") == 0 && app.count("--join-certificate") == 0) {
    throw CLI::RequiredError("--join-token-file or --join-certificate");
  }
}

}  // namespace

Command parse_command(int argc, const char* const* argv) {
  Command command;
  InitModelText text;
  CLI::App app("tuft-worker: serves one base model to a tuft server, which starts it, or which it joins");
  add_worker_flags(app, command.worker);
  CLI::App* const init_model =
      app.add_subcommand("init-model", "write a small randomly initialised Hugging Face model directory");
  add_init_model_flags(*init_model, command.init_model, text);
  try {
    app.parse(argc, argv);
    if (!init_model->parsed()) {
      check_worker_flags(app);
    }
  } catch (const CLI::ParseError& error) {
    command.exit_code = app.exit(error) == 0 ? 0 : kUsageError;
    return command;
  }
  command.kind = init_model->parsed() ? Command::Kind::kInitModel : Command::Kind::kServe;
  if (init_model->parsed()) command.init_model.options = init_model_options(text);
  command.arguments.assign(argv + 1, argv + argc);
  if (command.worker.model_name.empty()) command.worker.model_name = command.worker.model_path.filename().string();
  return command;
}

Result<WorkerFlags> merge_flags(const std::vector<std::string>& of_server, const std::vector<std::string>& arguments) {
  WorkerFlags flags;
  CLI::App app;
  add_worker_flags(app, flags);
  std::vector<std::string> all = of_server;
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::reverse(all.begin(), all.end());  // as CLI11 wants it
  try {
    app.parse(std::move(all));
  } catch (const CLI::ParseError& error) {
    return invalid_argument(std::string("the server's flags do not fit this worker: ") + error.what());
  }
  if (flags.model_name.empty()) flags.model_name = flags.model_path.filename().string();
  return flags;
}

Result<engine::WeightsDtype> parse_weights_dtype(const std::string& text) {
  if (text == "auto") return engine::WeightsDtype::kAuto;
  if (text == "f32") return engine::WeightsDtype::kFloat32;
  if (text == "bf16") return engine::WeightsDtype::kBfloat16;
  return invalid_argument("--weights-dtype must be auto, f32 or bf16");
}

}  // namespace tuft::app
