#include "config/shown.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/text.h"
#include "config/sections.h"

namespace tuft::config {
namespace {

constexpr std::string_view kHidden = "***";

// Writes mappings of texts and numbers in block style.
class Yaml {
 public:
  void text(std::string_view key, std::string_view value) {
    begin(key);
    append_quoted(out_, value, "\\x");
    out_.push_back('\n');
  }
  void text_if_set(std::string_view key, const std::optional<std::string>& value) {
    if (value) text(key, *value);
  }
  void integer(std::string_view key, int64_t value) {
    begin(key);
    append_number(out_, value);
    out_.push_back('\n');
  }
  void integer_if_set(std::string_view key, const std::optional<int64_t>& value) {
    if (value) integer(key, *value);
  }
  void number(std::string_view key, const std::optional<double>& value) {
    if (!value) return;
    begin(key);
    append_number(out_, *value);
    out_.push_back('\n');
  }
  void seconds(std::string_view key, const std::optional<Nanos>& value) {
    if (value) number(key, std::optional(to_seconds(*value)));
  }
  void boolean(std::string_view key, std::optional<bool> value) {
    if (!value) return;
    begin(key);
    out_.append(*value ? "true\n" : "false\n");
  }
  void texts(std::string_view key, const std::vector<std::string>& values) {
    begin(key);
    out_.push_back('[');
    for (const std::string& value : values) {
      if (&value != values.data()) out_.append(", ");
      append_quoted(out_, value, "\\x");
    }
    out_.append("]\n");
  }
  // What `write` writes lies below `key`.
  template <typename Write>
  void below(std::string_view key, Write write) {
    const size_t before = out_.size();
    indent();
    out_.append(key).append(":\n");
    const size_t empty = out_.size();
    depth_ += 1;
    write();
    depth_ -= 1;
    if (out_.size() == empty) out_.resize(before);
  }
  // The same for an item of a list.
  template <typename Write>
  void item(Write write) {
    is_first_of_item_ = true;
    depth_ += 1;
    write();
    depth_ -= 1;
    is_first_of_item_ = false;
  }
  // A key that is a client's text.
  void quoted_key(std::string_view key, std::string_view value) {
    indent();
    append_quoted(out_, key, "\\x");
    out_.append(": ");
    append_quoted(out_, value, "\\x");
    out_.push_back('\n');
  }

  std::string take() && { return std::move(out_); }

 private:
  void indent() {
    if (std::exchange(is_first_of_item_, false)) {
      out_.append(2 * (depth_ - 1), ' ').append("- ");
    } else {
      out_.append(2 * depth_, ' ');
    }
  }
  void begin(std::string_view key) {
    indent();
    out_.append(key).append(": ");
  }

  std::string out_;
  size_t depth_ = 0;
  bool is_first_of_item_ = false;
};

template <size_t kWords, typename Enum>
void word(Yaml& yaml, std::string_view key, const std::string_view (&words)[kWords], const std::optional<Enum>& value) {
  if (value && static_cast<size_t>(*value) < kWords) yaml.text(key, words[static_cast<size_t>(*value)]);
}

constexpr std::string_view kBackEnds[] = {"native", "torch"};
constexpr std::string_view kDtypes[] = {"auto", "f32", "bf16"};
constexpr std::string_view kModes[] = {"DISABLE", "FILE", "REDIS"};
constexpr std::string_view kLevels[] = {"debug", "info", "warning", "error"};
constexpr std::string_view kCompressions[] = {"none", "gzip"};
constexpr std::string_view kTemporalities[] = {"cumulative", "delta", "lowmemory"};

void show_model(Yaml& yaml, const ModelConfig& model) {
  yaml.text("model_name", model.model_name);
  yaml.text("model_path", model.model_path.string());
  yaml.integer("max_model_len", model.max_model_len);
  std::vector<std::string> capabilities;
  if (model.training) capabilities.emplace_back("training");
  if (model.sampling) capabilities.emplace_back("sampling");
  yaml.texts("capabilities", capabilities);
  yaml.integer("max_lora_rank", model.max_lora_rank);
  yaml.integer("lora_alpha_ratio", model.lora_alpha_ratio);
  yaml.integer("train_batch_tokens", model.train_batch_tokens);
  yaml.integer("sample_batch_tokens", model.sample_batch_tokens);
  if (model.default_max_tokens) yaml.integer("default_max_tokens", *model.default_max_tokens);
  yaml.text("worker", model.worker == WorkerKind::kJoined ? "joined" : "local");
  yaml.integer("workers", model.workers);
  yaml.boolean("replicate", model.replicate);
  yaml.text("backend", kBackEnds[static_cast<size_t>(model.backend)]);
  yaml.text("device", model.device);
  yaml.boolean("cuda_graphs", model.cuda_graphs);
  yaml.text("weights_dtype", kDtypes[static_cast<size_t>(model.weights_dtype)]);
  yaml.integer("threads", model.threads);
  yaml.integer("kv_cache_bytes", model.kv_cache_bytes);
  yaml.integer("adapter_memory_bytes", model.adapter_memory_bytes);
  yaml.integer("adapter_page_bytes", model.adapter_page_bytes);
  yaml.integer("training_share", model.training_share);
}

void show_bucket(Yaml& yaml, const BucketConfig& config) {
  const bucket::Settings& bucket = config.settings;
  yaml.text("endpoint", bucket.endpoint);
  yaml.text("region", bucket.region);
  yaml.text("name", bucket.name);
  yaml.text("prefix", bucket.prefix);
  yaml.boolean("path_style", bucket.path_style);
  if (!config.credentials_file.empty()) yaml.text("credentials_file", config.credentials_file.string());
  if (!config.ca_file.empty()) yaml.text("ca_file", config.ca_file.string());
  yaml.integer("timeout_seconds", bucket.timeout / kSecond);
  yaml.integer("part_bytes", bucket.part_bytes);
  yaml.integer("cache_bytes", bucket.cache_bytes);
}

void show_join(Yaml& yaml, const JoinConfig& join) {
  yaml.text("host", join.host);
  yaml.integer("port", join.port);
  yaml.text("certificate", join.certificate.string());
  yaml.text("private_key", join.private_key.string());
  if (!join.token_file.empty()) yaml.text("token_file", join.token_file.string());
  if (!join.worker_authority.empty()) yaml.text("worker_authority", join.worker_authority.string());
  yaml.integer("lease_seconds", join.lease_seconds);
  yaml.integer("keep_seconds", join.keep_seconds);
}

void show_headers(Yaml& yaml, const std::map<std::string, std::string>& headers) {
  yaml.below("headers", [&] {
    for (const auto& [name, value] : headers) yaml.quoted_key(name, kHidden);
  });
}

void show_signal(Yaml& yaml, std::string_view name, const telemetry::SignalConfig& signal,
                 const std::optional<telemetry::Severity>& level = {}) {
  yaml.below(name, [&] {
    yaml.boolean("enabled", signal.enabled);
    word(yaml, "protocol", telemetry::kProtocolWords, signal.protocol);
    if (signal.endpoint) yaml.text("endpoint", shown_url(*signal.endpoint));
    word(yaml, "level", kLevels, level);
  });
}

void show_tls(Yaml& yaml, const telemetry::TlsConfig& tls) {
  yaml.below("tls", [&] {
    yaml.text_if_set("ca_file", tls.ca_file);
    yaml.text_if_set("certificate_file", tls.certificate_file);
    yaml.text_if_set("key_file", tls.key_file);
  });
}

void show_export(Yaml& yaml, const telemetry::TelemetryConfig& telemetry) {
  yaml.text_if_set("service_name", telemetry.service_name);
  yaml.below("resource_attributes", [&] {
    for (const auto& [key, value] : telemetry.resource_attributes) yaml.quoted_key(key, value);
  });
  if (telemetry.otlp_endpoint) yaml.text("otlp_endpoint", shown_url(*telemetry.otlp_endpoint));
  word(yaml, "protocol", telemetry::kProtocolWords, telemetry.protocol);
  show_headers(yaml, telemetry.headers);
  word(yaml, "compression", kCompressions, telemetry.compression);
  show_tls(yaml, telemetry.tls);
  yaml.text_if_set("file_path", telemetry.file_path);
  yaml.seconds("export_timeout_seconds", telemetry.export_timeout);
  show_signal(yaml, "traces", telemetry.traces);
  show_signal(yaml, "metrics", telemetry.metrics);
  show_signal(yaml, "logs", telemetry.logs, telemetry.log_level);
}

void show_telemetry(Yaml& yaml, const ServerConfig& config) {
  const telemetry::TelemetryConfig& telemetry = config.telemetry;
  yaml.boolean("enabled", telemetry.enabled);
  show_export(yaml, telemetry);
  yaml.text_if_set("sampler", telemetry.sampler);
  yaml.number("sampling_ratio", telemetry.sampling_ratio);
  yaml.boolean("keep_errors", telemetry.keep_errors);
  yaml.seconds("keep_slower_than_seconds", telemetry.keep_slower_than);
  yaml.seconds("metric_interval_seconds", telemetry.metric_interval);
  word(yaml, "temporality", kTemporalities, telemetry.temporality);
  word(yaml, "exemplar_filter", telemetry::kExemplarFilterWords, telemetry.exemplar_filter);
  word(yaml, "histogram_aggregation", telemetry::kHistogramAggregationWords, telemetry.histogram_aggregation);
  yaml.seconds("batch_delay_seconds", telemetry.batch_delay);
  yaml.integer_if_set("batch_max", telemetry.batch_max);
  yaml.integer_if_set("queue_max", telemetry.queue_max);
  yaml.integer("trace_archive_bytes", telemetry.trace_archive_bytes);
  yaml.seconds("shutdown_budget_seconds", telemetry.shutdown_budget);
  yaml.boolean("propagate_baggage", telemetry.propagate_baggage);
  yaml.boolean("metrics_endpoint", telemetry.metrics_endpoint);
  if (!telemetry.metrics_token.empty()) yaml.text("metrics_token", kHidden);
  yaml.boolean("tenant_label", telemetry.tenant_label);
  yaml.below("store", [&] {
    const TelemetryStoreConfig& store = config.telemetry_store;
    yaml.boolean("enabled", store.enabled);
    yaml.text("directory", store.directory.string());
    yaml.integer("disk_bytes_max", store.disk_bytes_max);
    yaml.integer("memory_bytes_max", store.memory_bytes_max);
    yaml.integer("age_max_seconds", store.age_max_seconds);
  });
  yaml.below("intake", [&] {
    yaml.integer("grpc_port", config.telemetry_intake.grpc_port);
    yaml.integer("http_port", config.telemetry_intake.http_port);
  });
}

void show_persistence(Yaml& yaml, const PersistenceConfig& persistence) {
  yaml.text("mode", kModes[static_cast<size_t>(persistence.mode)]);
  yaml.text("redis_url", shown_url(persistence.redis_url));
  yaml.text("file_path", persistence.file_path.string());
  yaml.text("namespace", persistence.name_space);
  yaml.integer_if_set("future_ttl_seconds", persistence.future_ttl_seconds);
  yaml.integer("lease_seconds", persistence.lease_seconds);
  yaml.text("advertise", persistence.advertise);
  yaml.texts("check_fields", persistence.check_fields);
}

}  // namespace

std::string shown_url(std::string_view url) {
  const size_t query = std::min(url.find('?'), url.size());
  std::string shown;
  std::string_view rest = url.substr(0, query);
  if (const size_t mark = rest.find("://"); mark != std::string_view::npos) {
    shown.append(rest.substr(0, mark + 3));
    rest.remove_prefix(mark + 3);
  }
  // A password may have a '/' or '@' that should have been escaped.
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    shown.append(kHidden).push_back('@');
    rest.remove_prefix(at + 1);
  }
  shown.append(rest);
  if (query < url.size()) {
    // A '?' inside of a password: what follows may be the rest of it.
    if (url.find('@', query) != std::string_view::npos) return std::string(kHidden);
    shown.append("?").append(kHidden);
  }
  return shown;
}

std::vector<std::pair<std::string_view, int64_t>> limit_values(const Limits& limits) {
#define TUFT_LIMIT(name) \
  { #name, static_cast<int64_t>(limits.name) }
  return {TUFT_LIMIT(request_body_bytes_max),
          TUFT_LIMIT(request_parts_max),
          TUFT_LIMIT(futures_per_user_max),
          TUFT_LIMIT(sessions_per_user_max),
          TUFT_LIMIT(session_bytes_per_user_max),
          TUFT_LIMIT(runs_per_user_max),
          TUFT_LIMIT(samplers_per_user_max),
          TUFT_LIMIT(unnamed_samplers_per_run_max),
          TUFT_LIMIT(samples_in_flight_per_user_max),
          TUFT_LIMIT(queued_bytes_per_user_max),
          TUFT_LIMIT(journal_bytes_per_user_max),
          TUFT_LIMIT(checkpoint_bytes_per_user_max),
          TUFT_LIMIT(checkpoints_per_user_max),
          TUFT_LIMIT(custom_losses_per_user_max),
          TUFT_LIMIT(custom_loss_bytes_per_user_max),
          TUFT_LIMIT(sample_record_bytes_per_user_max),
          TUFT_LIMIT(sample_record_bytes_max),
          TUFT_LIMIT(archives_per_user_max),
          TUFT_LIMIT(archives_max),
          TUFT_LIMIT(session_idle_seconds),
          TUFT_LIMIT(sampling_silence_seconds),
          TUFT_LIMIT(save_before_expiry),
          TUFT_LIMIT(expired_checkpoint_ttl_seconds),
          TUFT_LIMIT(audit_retention_days),
          TUFT_LIMIT(audit_events_per_user_max),
          TUFT_LIMIT(usage_lines_per_user_max),
          TUFT_LIMIT(ended_sessions_per_user_max),
          TUFT_LIMIT(reorder_window),
          TUFT_LIMIT(gap_timeout_seconds),
          TUFT_LIMIT(future_retention_seconds),
          TUFT_LIMIT(future_bytes_per_user_max),
          TUFT_LIMIT(future_bytes_max),
          TUFT_LIMIT(receiving_bytes_max),
          TUFT_LIMIT(sending_bytes_max),
          TUFT_LIMIT(answer_rate_min),
          TUFT_LIMIT(answer_stall_seconds),
          TUFT_LIMIT(connections_max),
          TUFT_LIMIT(connections_per_address_max),
          TUFT_LIMIT(header_bytes_max),
          TUFT_LIMIT(unfinished_head_bytes_max),
          TUFT_LIMIT(request_timeout_seconds),
          TUFT_LIMIT(idle_timeout_seconds)};
#undef TUFT_LIMIT
}

std::string shown_config(const ServerConfig& config) {
  Yaml yaml;
  yaml.text("host", config.host);
  yaml.integer("port", config.port);
  if (!config.public_url.empty()) yaml.text("public_url", config.public_url);
  yaml.text("log_level", config.log_level);
  yaml.text("log_format", config.log_format);
  yaml.text("checkpoint_dir", config.checkpoint_dir.string());
  yaml.text("model_owner", config.model_owner);
  yaml.below("supported_models", [&] {
    for (const ModelConfig& model : config.supported_models) yaml.item([&] { show_model(yaml, model); });
  });
  yaml.below("authorized_users", [&] {
    std::vector<std::string> users;
    for (const auto& [key, user] : config.authorized_users) users.push_back(user);
    std::sort(users.begin(), users.end());  // the order of the keys would say something about them
    for (size_t i = 0; i < users.size(); ++i) {
      yaml.quoted_key(std::string(kHidden) + " " + std::to_string(i + 1), users[i]);
    }
  });
  if (!config.authorized_users_file.empty()) yaml.text("authorized_users_file", config.authorized_users_file.string());
  if (!config.tls.certificate.empty()) {
    yaml.below("tls", [&] {
      yaml.text("certificate", config.tls.certificate.string());
      yaml.text("private_key", config.tls.private_key.string());
    });
  }
  if (config.join.port != 0) yaml.below("join", [&] { show_join(yaml, config.join); });
  if (config.bucket) yaml.below("bucket", [&] { show_bucket(yaml, *config.bucket); });
  yaml.below("console", [&] {
    yaml.boolean("enabled", config.console.enabled);
    yaml.texts("operators", config.console.operators);
  });
  yaml.below("telemetry", [&] { show_telemetry(yaml, config); });
  yaml.below("persistence", [&] { show_persistence(yaml, config.persistence); });
  yaml.below("limits", [&] {
    for (const auto& [key, value] : limit_values(config.limits)) {
      if (key == "save_before_expiry") {
        yaml.boolean(key, value != 0);
      } else {
        yaml.integer(key, value);
      }
    }
  });
  return std::move(yaml).take();
}

}  // namespace tuft::config
