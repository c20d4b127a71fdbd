#include "telemetry/settings.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "telemetry/resource_metrics.h"

namespace tuft::telemetry::internal {
namespace {

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TelemetryConfig with_endpoint(const char* endpoint) {
  return {.enabled = true, .otlp_endpoint = endpoint};
}

TEST(Endpoint, SchemeThenItDecidesTls) {
  EXPECT_FALSE(read_settings(with_endpoint("http://localhost:4317"))->traces.tls);
  EXPECT_EQ(read_settings(with_endpoint("http://localhost:4317"))->traces.endpoint, "localhost:4317");
  EXPECT_TRUE(read_settings(with_endpoint("https://collector.example:443/"))->traces.tls);
  EXPECT_EQ(read_settings(with_endpoint("https://collector.example"))->traces.endpoint, "collector.example:4317");
  EXPECT_EQ(read_settings(with_endpoint("http://[::1]:4317"))->traces.endpoint, "[::1]:4317");
}

TEST(Endpoint, BareHostThenInsecureVariableDecides) {
  EXPECT_TRUE(read_settings(with_endpoint("localhost:4317"))->traces.tls);
  const Variable insecure("OTEL_EXPORTER_OTLP_INSECURE", "true");
  EXPECT_FALSE(read_settings(with_endpoint("localhost:4317"))->traces.tls);
  EXPECT_EQ(read_settings(with_endpoint("localhost:4317"))->traces.endpoint, "localhost:4317");
}

TEST(Endpoint, ConfigurationAndVariableThenConfigurationWins) {
  const Variable variable("TUFT_OTLP_ENDPOINT", "http://from-variable:1");
  EXPECT_EQ(read_settings(with_endpoint("http://from-config:2"))->traces.endpoint, "from-config:2");
  EXPECT_EQ(read_settings({.enabled = true})->traces.endpoint, "from-variable:1");
}

TEST(Endpoint, NoAddressThenTheErrorNamesTheKey) {
  for (const char* bad :
       {"ftp://x:1", "http://", "http://host:notaport", "http://host:0", "http://ho st:1", "://x", "a b"}) {
    const auto settings = read_settings(with_endpoint(bad));
    ASSERT_FALSE(settings.ok()) << bad;
    EXPECT_NE(settings.error().message.find("telemetry.otlp_endpoint"), std::string::npos);
  }
  const Variable variable("TUFT_OTLP_ENDPOINT", "ftp://x");
  EXPECT_NE(read_settings({.enabled = true}).error().message.find("TUFT_OTLP_ENDPOINT"), std::string::npos);
}

TEST(CpuTimes, TwoReadingsThenTheBusyShare) {
  const auto before = parse_cpu_times("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n");
  const auto after = parse_cpu_times("cpu  150 0 150 1050 150 0 0 0 0 0\n");
  ASSERT_TRUE(before && after);
  EXPECT_EQ(before->total, 1000u);
  EXPECT_EQ(before->busy, 200u);
  EXPECT_DOUBLE_EQ(*cpu_utilization(*before, *after), 20.0);
  EXPECT_FALSE(cpu_utilization(*before, *before).has_value());
  EXPECT_FALSE(parse_cpu_times("").has_value());
}

class FakeRoot {
 public:
  FakeRoot() {
    std::string pattern = ::testing::TempDir() + "tuft_root_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
    write("proc/meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n");
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) {
    const auto path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    FILE* file = std::fopen(path.c_str(), "w");
    std::fputs(text.c_str(), file);
    std::fclose(file);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(MemoryUse, NoLimitThenTheMachine) {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/memory.max", "max\n");
  const auto use = read_memory_use(root.path());
  ASSERT_TRUE(use);
  EXPECT_EQ(use->total, 1000u * 1024);
  EXPECT_EQ(use->used, 600u * 1024);
}

TEST(MemoryUse, LimitOnAParentGroupThenThatGroup) {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/pod/container\n");
  root.write("sys/fs/cgroup/pod/memory.max", "512000\n");
  root.write("sys/fs/cgroup/pod/memory.current", "300000\n");
  root.write("sys/fs/cgroup/pod/memory.stat", "anon 1\ninactive_file 100000\n");
  root.write("sys/fs/cgroup/pod/container/memory.max", "max\n");
  root.write("sys/fs/cgroup/pod/container/memory.current", "200000\n");
  const auto use = read_memory_use(root.path());
  ASSERT_TRUE(use);
  EXPECT_EQ(use->total, 512000u);
  EXPECT_EQ(use->used, 200000u);
}

TEST(MemoryUse, Version1LimitThenThatGroup) {
  FakeRoot root;
  root.write("proc/self/cgroup", "9:cpu:/x\n4:memory:/docker/abc\n");
  root.write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "400000\n");
  root.write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "100000\n");
  const auto use = read_memory_use(root.path());
  ASSERT_TRUE(use);
  EXPECT_EQ(use->total, 400000u);
  EXPECT_EQ(use->used, 100000u);
}

}  // namespace
}  // namespace tuft::telemetry::internal
