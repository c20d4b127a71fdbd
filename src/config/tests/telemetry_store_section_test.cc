#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "config/config.h"
#include "config/tests/model_directory.h"

namespace tuft::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Loaded parsed_store(const std::string& yaml) {
  Result<Loaded> loaded = parse_config(one_model() + kUsers + yaml, "tuft.yaml");
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
  return loaded.ok() ? std::move(*loaded) : Loaded{};
}

std::string store_error(const std::string& yaml) {
  const Result<Loaded> loaded = parse_config(one_model() + kUsers + yaml, "tuft.yaml");
  return loaded.ok() ? "" : loaded.error().message;
}

TEST(TelemetryStore, NothingSaidThenOnWithTheDefaults) {
  const ScopedVariable home("TUFT_HOME", "/srv/tuft");
  const ServerConfig config = parsed_store("").config;
  EXPECT_TRUE(config.telemetry_store.enabled);
  EXPECT_TRUE(config.telemetry.outbox);
  EXPECT_FALSE(config.telemetry.enabled);
  EXPECT_EQ(config.telemetry_store.directory, "/srv/tuft/telemetry");
  EXPECT_EQ(config.telemetry_store.disk_bytes_max, 1'073'741'824);
  EXPECT_EQ(config.telemetry_store.memory_bytes_max, 67'108'864);
  EXPECT_EQ(config.telemetry_store.age_max_seconds, 86'400);
  EXPECT_EQ(config.telemetry_intake.grpc_port, 0);
  EXPECT_EQ(config.telemetry_intake.http_port, 0);
  EXPECT_TRUE(config.console.enabled);
  EXPECT_THAT(config.console.operators, IsEmpty());
}

TEST(TelemetryStore, ReadsEveryKey) {
  const Loaded loaded = parsed_store(R"(
console: {enabled: false, operators: [alice, alice]}
telemetry:
  store: {directory: ~/kept, disk_bytes_max: 33554432, memory_bytes_max: 16777216, age_max_seconds: 600}
  intake: {grpc_port: 4317, http_port: 4318}
)");
  const ServerConfig& config = loaded.config;
  EXPECT_THAT(loaded.warnings, IsEmpty());
  EXPECT_FALSE(config.console.enabled);
  EXPECT_THAT(config.console.operators, ElementsAre("alice"));
  EXPECT_TRUE(config.telemetry_store.directory.is_absolute());
  EXPECT_EQ(config.telemetry_store.directory.filename(), "kept");
  EXPECT_EQ(config.telemetry_store.disk_bytes_max, 33'554'432);
  EXPECT_EQ(config.telemetry_store.memory_bytes_max, 16'777'216);
  EXPECT_EQ(config.telemetry_store.age_max_seconds, 600);
  EXPECT_EQ(config.telemetry_intake.grpc_port, 4317);
  EXPECT_EQ(config.telemetry_intake.http_port, 4318);
}

TEST(TelemetryStore, OffThenNothingIsPutIntoTheOutbox) {
  const ServerConfig config = parsed_store("telemetry: {store: {enabled: false}}\n").config;
  EXPECT_FALSE(config.telemetry_store.enabled);
  EXPECT_FALSE(config.telemetry.outbox);
}

TEST(TelemetryStore, OperatorWithoutAKeyThenAWarningNamesIt) {
  EXPECT_THAT(parsed_store("console: {operators: [alice, mallory]}\n").warnings,
              ElementsAre(HasSubstr("console.operators: names mallory")));
}

// The file is read at the start and changes later, so the launcher looks.
TEST(TelemetryStore, UsersInAFileThenTheirNamesAreNotKnownYet) {
  const Loaded loaded = parsed_store("authorized_users_file: /srv/users.yaml\nconsole: {operators: [carol]}\n");
  EXPECT_THAT(loaded.warnings, IsEmpty());
  EXPECT_THAT(unknown_operators(loaded.config.console, loaded.config.authorized_users), ElementsAre("carol"));
  EXPECT_THAT(unknown_operators(loaded.config.console, {{"a key", "carol"}}), IsEmpty());
}

TEST(TelemetryStore, OtelConfigFileThenTheSectionsKeepTheirEffect) {
  const TempDir directory;
  const auto path = directory / "otel.yaml";
  for (const bool disabled : {false, true}) {
    write_text(path, std::string("file_format: \"1.0\"\ndisabled: ") + (disabled ? "true" : "false") + "\n");
    const ScopedVariable file("OTEL_CONFIG_FILE", path.c_str());
    const Loaded loaded = parsed_store("telemetry: {store: {age_max_seconds: 60}, intake: {http_port: 4318}}\n");
    EXPECT_THAT(loaded.warnings, IsEmpty());
    EXPECT_EQ(loaded.config.telemetry_store.age_max_seconds, 60);
    EXPECT_EQ(loaded.config.telemetry_intake.http_port, 4318);
    EXPECT_EQ(loaded.config.telemetry.outbox, !disabled) << "a disabled SDK records nothing";
  }
}

struct StoreMistake {
  const char* yaml;
  const char* message;
};
class TelemetryStoreMistake : public ::testing::TestWithParam<StoreMistake> {};

TEST_P(TelemetryStoreMistake, StopsTheStartAndNamesTheKey) {
  EXPECT_THAT(store_error(GetParam().yaml), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Table, TelemetryStoreMistake,
    ::testing::Values(
        StoreMistake{"telemetry: {store: {disk_bytes_max: 1000}}\n", "telemetry.store.disk_bytes_max"},
        StoreMistake{"telemetry: {store: {memory_bytes_max: 1000}}\n", "telemetry.store.memory_bytes_max"},
        StoreMistake{"telemetry: {store: {age_max_seconds: 59}}\n", "telemetry.store.age_max_seconds"},
        StoreMistake{"telemetry: {store: {age_max_seconds: 7776001}}\n", "telemetry.store.age_max_seconds"},
        StoreMistake{"telemetry: {store: {directory: ''}}\n", "telemetry.store.directory: must name a directory"},
        StoreMistake{"telemetry: {store: {disk_byte_max: 1}}\n", "disk_bytes_max"},
        StoreMistake{"telemetry: {intake: {port: 4317}}\n", "unknown key 'port' in telemetry.intake"},
        StoreMistake{"telemetry: {intake: {grpc_port: 70000}}\n", "telemetry.intake.grpc_port"},
        StoreMistake{"telemetry: {intake: {grpc_port: 4317, http_port: 4317}}\n",
                     "telemetry.intake.http_port: must differ"},
        StoreMistake{"telemetry: {intake: {http_port: 10610}}\n", "telemetry.intake.http_port: must differ from port"},
        StoreMistake{"telemetry: {intake: {http_port: 4318}, store: {enabled: false}}\n",
                     "telemetry.intake.http_port: needs the store"},
        StoreMistake{"console: {operators: alice}\n", "console.operators: must be a list"},
        StoreMistake{"console: {operators: [{}]}\n", "console.operators: must hold names"},
        StoreMistake{"console: {operator: [alice]}\n", "did you mean 'operators'?"},
        StoreMistake{"console: {enabled: perhaps}\n", "console.enabled"}));

}  // namespace
}  // namespace tuft::config
