#include "app/tuft_worker/served_model.h"

#include <filesystem>
#include <memory>
#include <poll.h>
#include <string>
#include <utility>

#include "app/tuft_worker/back_end.h"
#include "app/tuft_worker/memory_plan.h"
#include "app/tuft_worker/worker_process.h"
#include "bucket/bucket.h"
#include "metrics/workers.h"
#include "telemetry/host/machine.h"
#include "telemetry/log.h"
#include "telemetry/telemetry.h"
#include "telemetry/trace.h"
#include "tokenizer/decoder.h"
#include "worker/bucket_checkpoints.h"
#include "worker/engine_loop.h"
#include "worker/service.h"

namespace tuft::app {
namespace {

constexpr Nanos kCallsGrace = 200 * kMillisecond;
constexpr int64_t kKeptBytesMax = 64 << 20;

// What happens until the worker can be called is below the server's span of its start.
telemetry::SpanContext start_of(const WorkerFlags& flags) {
  return flags.traceparent.empty() ? telemetry::SpanContext{} : telemetry::from_traceparent(flags.traceparent);
}

Result<int64_t> plan_memory(const WorkerFlags& flags, const engine::ModelSpec& model, const DeviceMemory& memory) {
  KvCacheNeed need;
  need.asked = flags.kv_cache_bytes;
  need.share = flags.memory_share;
  need.bytes_per_token = memory.kv_bytes_per_token;
  need.tokens_max = flags.max_model_len > 0 ? flags.max_model_len : model.max_position;
  need.free = memory.free;
  auto bytes = plan_kv_cache(need);
  if (!bytes.ok()) {
    return invalid_argument("base model " + flags.model_name + ": " + bytes.error().message, bytes.error().reason);
  }
  const int64_t tokens = *bytes / need.bytes_per_token;
  telemetry::log_info("worker.memory_plan", "KV cache limit set",
                      {{"tuft.base_model", flags.model_name},
                       {"tuft.kv_cache_bytes", *bytes},
                       {"tuft.kv_cache_tokens", tokens},
                       {"tuft.kv_bytes_per_token", need.bytes_per_token},
                       {"tuft.free_bytes", need.free},
                       {"tuft.memory_share", need.share}});
  if (*bytes > 0 && tokens < need.tokens_max) {
    telemetry::log_warning("worker.small_kv_cache",
                           "the KV cache holds fewer tokens than max_model_len: longer samples are refused; raise "
                           "kv_cache_bytes, or lower max_model_len",
                           {{"tuft.base_model", flags.model_name}, {"tuft.kv_cache_tokens", tokens}});
  }
  return bytes;
}

Result<int64_t> plan_adapter_memory(const WorkerFlags& flags, engine::Engine& engine) {
  engine::LoraSpec largest;
  largest.rank = flags.max_lora_rank;
  AdapterNeed need;
  need.asked = flags.adapter_memory_bytes;
  need.share = flags.memory_share;
  const DeviceMemory memory = device_memory(flags);
  need.free = memory.free;
  need.kv_cache = memory.kv_is_taken ? 0 : engine.decoding().kv_usage().limit;
  need.training = engine.adapters().bytes_of(largest, true);
  need.sampler = engine.adapters().bytes_of(largest, false);
  auto bytes = plan_adapters(need);
  if (!bytes.ok()) {
    return invalid_argument("base model " + flags.model_name + ": " + bytes.error().message, bytes.error().reason);
  }
  telemetry::log_info("worker.adapter_plan", "adapter memory limit set",
                      {{"tuft.base_model", flags.model_name},
                       {"tuft.adapter_memory_bytes", *bytes},
                       {"tuft.training_bytes_max", need.training},
                       {"tuft.sampler_bytes_max", need.sampler},
                       {"tuft.free_bytes", need.free}});
  return bytes;
}

Result<int> tokens_max(const WorkerFlags& flags, const engine::ModelSpec& model) {
  if (flags.max_model_len == 0) return model.max_position;
  if (flags.max_model_len <= model.max_position) return flags.max_model_len;
  return invalid_argument("max_model_len of base model " + flags.model_name + " is " +
                          std::to_string(flags.max_model_len) + ", but the model supports at most " +
                          std::to_string(model.max_position) + " tokens (max_position_embeddings); lower it");
}

// Only stop strings need a tokenizer. Without one they are refused, and everything else works.
engine::TokenBytes load_token_bytes(const WorkerFlags& flags) {
  auto decoder = tokenizer::Decoder::load(flags.model_path);
  if (!decoder.ok()) {
    telemetry::log_warning("worker.no_tokenizer", "stop strings are refused: " + decoder.error().message);
    return {};
  }
  return [shared = std::make_shared<tokenizer::Decoder>(std::move(decoder).value())](int32_t token) {
    return shared->token_bytes(token);
  };
}

}  // namespace

Result<LoadedModel> load_model(const WorkerFlags& flags) {
  const telemetry::ContextScope start(start_of(flags));
  const Nanos begin = system_clock().monotonic();
  auto span = telemetry::get_tracer("tuft.hf_training_model")
                  .start_span("hf_model.load_weights", {.attributes = {{"tuft.base_model", flags.model_name}}});
  const telemetry::ContextScope scope(span.context());
  auto engine = make_engine(flags, [&flags](const engine::ModelSpec& model, const DeviceMemory& memory) {
    return plan_memory(flags, model, memory);
  });
  if (!engine.ok()) {
    span.record_error(engine.error());
    return std::move(engine).error();
  }
  metrics::workers().startup_duration.record(to_seconds(system_clock().monotonic() - begin),
                                             {{"base_model", flags.model_name}, {"phase", "load_weights"}});
  span.set_attributes({{"tuft.architecture", (*engine)->model().architecture},
                       {"tuft.parameters", (*engine)->model().parameters()},
                       {"tuft.weights_dtype", (*engine)->weights_dtype()},
                       {"tuft.backend", flags.backend},
                       {"tuft.device", flags.device}});
  return LoadedModel{std::move(engine).value(), begin};
}

namespace {

Result<worker::EngineLoopOptions> loop_options(const WorkerFlags& flags, engine::Engine& engine) {
  TUFT_ASSIGN(const int length, tokens_max(flags, engine.model()));
  worker::EngineLoopOptions options;
  options.base_model = flags.model_name;
  options.trainer.batch_tokens = flags.train_batch_tokens;
  options.trainer.tokens_max = length;
  options.sampler.batch_tokens = flags.sample_batch_tokens;
  options.sampler.tokens_max = length;
  if (const auto memory = telemetry::internal::read_memory_use()) {
    options.sampler.memory_bytes = static_cast<int64_t>(memory->total);
  }
  options.limits.rank_max = flags.max_lora_rank;
  TUFT_ASSIGN(options.pager.bytes_max, plan_adapter_memory(flags, engine));
  options.pager.page_bytes_max = flags.adapter_page_bytes;
  options.pager.directory =
      flags.page_directory.empty() ? std::filesystem::temp_directory_path() : flags.page_directory;
  options.training_share = flags.training_share / 100.0;
  return options;
}

// Returns null where checkpoints are in a directory.
Result<std::unique_ptr<worker::BucketCheckpoints>> open_bucket(const WorkerFlags& flags,
                                                               const std::filesystem::path& directory) {
  if (!flags.bucket) return std::unique_ptr<worker::BucketCheckpoints>();
  TUFT_ASSIGN(auto bucket, bucket::open_s3(*flags.bucket));
  return worker::BucketCheckpoints::create(std::move(bucket), directory, flags.bucket->cache_bytes);
}

class ServedModelImpl final : public ServedModel {
 public:
  ServedModelImpl(const WorkerFlags& flags, LoadedModel model, std::unique_ptr<worker::BucketCheckpoints> checkpoints,
                  const worker::EngineLoopOptions& options)
      : name_(flags.model_name),
        engine_(std::move(model.engine)),
        checkpoints_(std::move(checkpoints)),
        loop_(*engine_, options, load_token_bytes(flags), system_clock()) {}
  ~ServedModelImpl() override { stop(); }
  void stop() override {
    loop_.stop();
    if (server_) server_->shutdown(kCallsGrace);
  }

  Status listen(const WorkerFlags& flags) {
    const int64_t kept = flags.join.address.empty() ? 0 : kKeptBytesMax;
    TUFT_ASSIGN(server_, worker::start_server(loop_, {flags.socket, flags.model_name, kept}));
    return {};
  }

  void connect(int descriptor) override { server_->connect(descriptor); }
  size_t adapters() const override { return server_->adapters(); }

  void drain(int ended_fd, Nanos limit) override {
    if (!server_->drain(limit)) return;
    telemetry::log_info("worker.told_to_end", "told to end; the server saves what this worker holds",
                        {{"tuft.base_model", name_}, {"tuft.seconds", to_seconds(limit)}});
    pollfd ended{ended_fd, POLLIN, 0};
    (void)::poll(&ended, 1, static_cast<int>(limit / kMillisecond));
  }

 private:
  const std::string name_;
  const std::unique_ptr<engine::Engine> engine_;
  const std::unique_ptr<worker::BucketCheckpoints> checkpoints_;  // null: they are in a directory
  worker::EngineLoop loop_;
  std::unique_ptr<worker::WorkerServer> server_;
};

}  // namespace

Result<std::unique_ptr<ServedModel>> ServedModel::start(const WorkerFlags& flags, LoadedModel model) {
  const telemetry::ContextScope start(start_of(flags));
  const Nanos begin = model.begin;
  engine::Engine& engine = *model.engine;
  TUFT_ASSIGN(worker::EngineLoopOptions options, loop_options(flags, engine));
  TUFT_ASSIGN(auto checkpoints, open_bucket(flags, options.pager.directory));
  options.bucket = checkpoints.get();
  auto served = std::make_unique<ServedModelImpl>(flags, std::move(model), std::move(checkpoints), options);
  TUFT_TRY(served->listen(flags));
  telemetry::log_info("worker.listening", "base model loaded",
                      {{"tuft.base_model", flags.model_name},
                       {"tuft.architecture", engine.model().architecture},
                       {"tuft.parameters", engine.model().parameters()},
                       {"tuft.weights_dtype", engine.weights_dtype()},
                       {"tuft.backend", flags.backend},
                       {"tuft.device", flags.device},
                       {"tuft.startup_seconds", to_seconds(system_clock().monotonic() - begin)}});
  return std::unique_ptr<ServedModel>(std::move(served));
}

void end_service(ServedModel& served) {
  telemetry::log_info("worker.stopping", "stopping");
  served.stop();
  telemetry::shutdown_telemetry(kTelemetryGrace);
}

}  // namespace tuft::app
