// What people may see of a configuration: every key, and no secret.
#include "config/shown.h"

#include <regex>

#include <gmock/gmock.h>

#include "base/file.h"
#include "base/testing/temp_dir.h"

namespace tuft::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Shown : public ::testing::Test {
 protected:
  Shown() {
    std::filesystem::create_directories(directory_.path() / "model");
    EXPECT_TRUE(write_file_atomically(directory_.path() / "model/config.json", "{}").ok());
  }
  std::string file(const std::string& more = "") const {
    return "supported_models:\n- {model_name: m, model_path: \"" + (directory_.path() / "model").string() +
           "\", max_model_len: 64, default_max_tokens: 16}\n" + more;
  }
  static ServerConfig parsed(const std::string& yaml) {
    auto loaded = parse_config(yaml, "test");
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return loaded.ok() ? std::move(loaded->config) : ServerConfig();
  }

  const TempDir directory_;
};

constexpr const char* kSecrets = R"(
authorized_users: {tml-s3cret: alice, tml-s3cret-too: bob}
persistence: {mode: REDIS, redis_url: "redis://user:s3cret@host:6379/0"}
telemetry:
  otlp_endpoint: "https://me:s3cret@collector:4317/?key=s3cret"
  headers: {authorization: "Bearer s3cret"}
  metrics_token: s3cret
  traces: {endpoint: "https://collector/v1/traces?token=s3cret"}
)";

TEST_F(Shown, NoSecret) {
  const std::string shown = shown_config(parsed(file(kSecrets)));
  EXPECT_THAT(shown, Not(HasSubstr("s3cret")));
  EXPECT_THAT(shown, Not(HasSubstr("sha256")));
  EXPECT_THAT(shown, HasSubstr("redis_url: \"redis://***@host:6379/0\""));
  EXPECT_THAT(shown, HasSubstr("\"authorization\": \"***\""));
  EXPECT_THAT(shown, HasSubstr("\"*** 2\": "));
  EXPECT_THAT(shown, HasSubstr("metrics_token: \"***\""));
}

TEST_F(Shown, ReadsBackAsTheSame) {
  const ServerConfig config = parsed(file(std::string(kSecrets) + "limits: {runs_per_user_max: 7}\n"
                                                                  "console: {operators: [alice]}\nport: 99\n"));
  const std::string shown = shown_config(config);
  const ServerConfig again = parsed(shown);
  EXPECT_EQ(shown_config(again), shown);
  EXPECT_EQ(again.limits.runs_per_user_max, 7);
  EXPECT_EQ(again.port, 99);
  EXPECT_EQ(again.console.operators, std::vector<std::string>{"alice"});
}

TEST(ShownUrl, HidesWhoAndWhatFor) {
  EXPECT_EQ(shown_url("http://localhost:4317"), "http://localhost:4317");
  EXPECT_EQ(shown_url("https://a:b@host/x?c=d"), "https://***@host/x?***");
  EXPECT_EQ(shown_url("redis://:pass/wo@rd@host"), "redis://***@host");
  EXPECT_EQ(shown_url("redis://:pass?word@host"), "***");
  EXPECT_EQ(shown_url("secret@host"), "***@host");
}

// A key that the readers know and this does not show would be missing in a report of a problem.
TEST_F(Shown, EveryKeyThatIsRead) {
  std::string yaml = file(kSecrets);
  yaml +=
      "public_url: https://x\nauthorized_users_file: /f\ntls: {certificate: /c, private_key: /k}\n"
      "join: {port: 7, token_file: /t, worker_authority: /a}\n"
      "bucket: {endpoint: \"https://b\", name: abc, credentials_file: /s, ca_file: /d}\n";
  yaml.insert(
      yaml.find("telemetry:\n") + 11,
      "  enabled: true\n  service_name: s\n  resource_attributes: {a: b}\n  protocol: grpc\n"
      "  compression: gzip\n  tls: {ca_file: /a, certificate_file: /b, key_file: /c}\n  file_path: /f\n"
      "  export_timeout_seconds: 1\n  logs: {level: info, enabled: true, protocol: grpc, endpoint: \"http://x\"}\n"
      "  sampler: traceidratio\n  sampling_ratio: 0.5\n  keep_errors: true\n  keep_slower_than_seconds: 2\n"
      "  metric_interval_seconds: 3\n  temporality: delta\n  exemplar_filter: always_on\n"
      "  histogram_aggregation: explicit_bucket_histogram\n  batch_delay_seconds: 1\n  batch_max: 5\n"
      "  queue_max: 6\n  shutdown_budget_seconds: 4\n  propagate_baggage: true\n  metrics: {enabled: true}\n");
  const std::string shown = shown_config(parsed(yaml));
  const std::regex read(
      R"re((?:reader\.|reader, |one_of\(reader, )(?:text|boolean|number|integer|one_of|take)?\(?"([a-z_]+)")re");
  size_t keys = 0;
  for (const char* source : {"bucket_section.cc", "config.cc", "join_section.cc", "models.cc", "sections.cc",
                             "telemetry_section.cc", "telemetry_store_section.cc"}) {
    const auto text = read_file(std::filesystem::path("src/config") / source, 1 << 20);
    ASSERT_TRUE(text.ok()) << text.error().message;
    for (std::sregex_iterator at(text->begin(), text->end(), read), end; at != end; ++at) {
      const std::string key = (*at)[1];
      // Without an effect, or a message about another key.
      if (key == "toy_backend_seed" || key == "worker_venv_path" || key == "max_loras") continue;
      EXPECT_THAT(shown, HasSubstr(key + ":")) << source;
      ++keys;
    }
  }
  EXPECT_GT(keys, 80U);
}

}  // namespace
}  // namespace tuft::config
