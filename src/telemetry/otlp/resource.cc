#include "telemetry/otlp/resource.h"

#include <map>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "base/host.h"
#include "base/id.h"
#include "telemetry/host/machine.h"
#include "telemetry/otlp/wire.h"

namespace tuft::telemetry::internal::otlp {
namespace {

// One identity per process, even if telemetry is started several times. A child of fork() is another process.
const std::string& instance_id() {
  static pid_t owner = ::getpid();
  static std::string id = random_uuid();
  if (owner != ::getpid()) {
    owner = ::getpid();
    id = random_uuid();
  }
  return id;
}

// The word of OpenTelemetry's conventions.
#if defined(__x86_64__)
constexpr std::string_view kArchitecture = "amd64";
#elif defined(__aarch64__)
constexpr std::string_view kArchitecture = "arm64";
#else
constexpr std::string_view kArchitecture = "";
#endif

}  // namespace

std::string encode_resource(const Settings& settings) {
  std::map<std::string, std::string> texts{
      {"service.name", settings.service_name}, {"service.version", TUFT_VERSION},
      {"service.instance.id", instance_id()},  {"telemetry.sdk.name", "tuft"},
      {"telemetry.sdk.language", "cpp"},       {"telemetry.sdk.version", TUFT_VERSION}};
  if (std::string host = host_name(); !host.empty()) texts["host.name"] = std::move(host);
  if (!kArchitecture.empty()) texts["host.arch"] = kArchitecture;
  if (std::string cpu = read_cpu_name(); !cpu.empty()) texts["host.cpu.model.name"] = std::move(cpu);
  for (const auto& [key, value] : settings.resource_attributes) texts[key] = value;

  WireWriter writer;
  const auto put = [&writer](std::string_view key, auto&& put_value) {
    const size_t attribute = writer.open(1);
    writer.text(1, key);
    const size_t value = writer.open(2);
    put_value();
    writer.close(value);
    writer.close(attribute);
  };
  for (const auto& [key, value] : texts) put(key, [&] { writer.text(1, value); });
  if (!texts.contains("process.pid")) put("process.pid", [&] { writer.varint(3, static_cast<uint64_t>(::getpid())); });
  return std::string(writer.view());
}

}  // namespace tuft::telemetry::internal::otlp
