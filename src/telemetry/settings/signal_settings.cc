#include "telemetry/settings/signal_settings.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <unistd.h>

#include "base/text.h"
#include "telemetry/settings/environment.h"

namespace tuft::telemetry::internal {
namespace {

constexpr int64_t kTimeoutMaxMs = 3'600'000;
constexpr int64_t kHttpPort = 4318;

std::string variable(const SignalKey& signal, const char* what) {
  return "OTEL_EXPORTER_OTLP_" + std::string(signal.upper) + "_" + what;
}

// Returns OTEL_EXPORTER_OTLP_<SIGNAL>_<what>, else OTEL_EXPORTER_OTLP_<what>.
Setting otlp_variable(const SignalKey& signal, const char* what) {
  return first_set({variable(signal, what), std::string("OTEL_EXPORTER_OTLP_") + what});
}

std::string config_key(const SignalKey& signal, std::string_view what) {
  return "telemetry." + std::string(signal.lower) + "." + std::string(what);
}

Error wrong(const Setting& setting, std::string_view rule) {
  const bool may_hold_password = setting.value.find('@') != std::string::npos;
  return invalid_argument(setting.name + (may_hold_password ? " has a wrong value" : " is '" + setting.value + "'") +
                              ": " + std::string(rule),
                          "telemetry");
}

// "otlp" does not name a protocol. "prometheus" asks for metrics at /metrics, where they already are.
Result<std::optional<Protocol>> exporter_protocol(const SignalKey& signal, const Setting& exporter) {
  std::optional<Protocol> chosen;
  bool otlp = false;
  for (std::string_view rest = exporter.value; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::string_view word = trimmed(item);
    if (word == "otlp") {
      otlp = true;
    } else if (word == "console" || word == "logging") {
      chosen = Protocol::kConsole;
    } else if (word == "none" || (word == "prometheus" && signal.lower == "metrics")) {
      if (!chosen) chosen = Protocol::kNone;
    } else {
      return wrong(exporter, signal.lower == "metrics" ? "write otlp, console, prometheus or none"
                                                       : "write otlp, console or none");
    }
  }
  if (otlp) return std::optional<Protocol>();
  return chosen;
}

Result<std::optional<Protocol>> otlp_protocol(const Setting& setting) {
  if (setting.value == "grpc") return std::optional(Protocol::kGrpc);
  if (setting.value == "http/protobuf") return std::optional(Protocol::kHttpProtobuf);
  return wrong(setting, "write grpc or http/protobuf");
}

// An address. If `base` is set, it is for all signals, and over HTTP the signal's path is appended.
struct Address {
  Setting setting;
  bool base = true;
};

Address find_address(const TelemetryConfig& config, const SignalKey& signal) {
  if (signal.config.endpoint) return {{config_key(signal, "endpoint"), *signal.config.endpoint}, false};
  if (config.otlp_endpoint && !config.otlp_endpoint->empty())
    return {{"telemetry.otlp_endpoint", *config.otlp_endpoint}};
  if (Setting tuft = first_set({"TUFT_OTLP_ENDPOINT"})) return {std::move(tuft)};
  if (Setting own = first_set({variable(signal, "ENDPOINT")})) return {std::move(own), false};
  if (Setting all = first_set({"OTEL_EXPORTER_OTLP_ENDPOINT"})) return {std::move(all)};
  if (signal.lower == "traces") {
    if (Setting fastdeploy = first_set({"EXPORTER_OTLP_ENDPOINT"})) {
      const bool base = !has_path(fastdeploy.value);
      return {std::move(fastdeploy), base};
    }
  }
  return {};
}

bool is_host(std::string_view host) {
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    const std::string_view address = host.substr(1, host.size() - 2);
    return address.find_first_not_of("0123456789abcdefABCDEF:.%") == std::string_view::npos && !address.empty();
  }
  return !host.empty() && std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

// The parts of "[scheme://]host[:port][/path]".
struct Parts {
  std::string_view scheme, authority, path;
  std::optional<int64_t> port;
};

std::optional<Parts> split_address(std::string_view value) {
  Parts parts;
  const size_t scheme_end = value.find("://");
  if (scheme_end != std::string_view::npos) {
    parts.scheme = value.substr(0, scheme_end);
    if (parts.scheme != "http" && parts.scheme != "https") return std::nullopt;
    value.remove_prefix(scheme_end + 3);
  }
  parts.authority = value.substr(0, value.find('/'));
  parts.path = value.substr(parts.authority.size());
  if (parts.path.find_first_of(" \t\"<>\\^`{|}") != std::string_view::npos) return std::nullopt;
  std::string_view host = parts.authority;
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) {
    const auto port = parse_whole(host.substr(colon + 1));
    if (!port || *port < 1 || *port > 65535) return std::nullopt;
    parts.port = port;
    host = host.substr(0, colon);
  }
  if (!is_host(host)) return std::nullopt;
  return parts;
}

// Returns true for an address that only a receiver of OTLP over HTTP can have.
bool is_for_http(const Setting& address) {
  const auto parts = split_address(address.value);
  return parts && !parts->scheme.empty() && (parts->path.size() > 1 || parts->port == kHttpPort);
}

// Returns nullopt if nothing names the protocol.
Result<std::optional<Protocol>> named_protocol(const TelemetryConfig& config, const SignalKey& signal) {
  if (!signal.config.enabled.value_or(true)) return std::optional(Protocol::kNone);
  if (environment("TUFT_OTEL_DEBUG") == "1") return std::optional(Protocol::kConsole);
  if (signal.config.protocol) return signal.config.protocol;
  if (config.protocol) return config.protocol;
  // The environment cannot switch off a signal that the configuration file enables by name.
  const Setting exporter = first_set({"OTEL_" + std::string(signal.upper) + "_EXPORTER"});
  if (exporter && !signal.config.enabled) {
    TUFT_ASSIGN(const std::optional<Protocol> chosen, exporter_protocol(signal, exporter));
    if (chosen) return chosen;
  }
  if (const Setting setting = otlp_variable(signal, "PROTOCOL")) return otlp_protocol(setting);
  if (signal.lower == "traces" && !exporter) {
    if (const Setting fastdeploy = first_set({"TRACES_EXPORTER"})) {
      TUFT_ASSIGN(const std::optional<Protocol> chosen, exporter_protocol(signal, fastdeploy));
      if (chosen) return chosen;
    }
  }
  return std::optional<Protocol>();
}

Status read_protocol(const TelemetryConfig& config, const SignalKey& signal, SignalSettings& out) {
  TUFT_ASSIGN(const std::optional<Protocol> named, named_protocol(config, signal));
  out.protocol = named.value_or(Protocol::kGrpc);
  if (named) return {};
  const Address address = find_address(config, signal);
  if (!address.setting || !is_for_http(address.setting)) return {};
  out.protocol = Protocol::kHttpProtobuf;
  out.protocol_from = address.setting.name;
  return {};
}

// Hides an address that may contain a password.
Error bad_address(const Setting& setting, std::string_view rule) {
  const bool show = setting.value.find('@') == std::string::npos;
  return invalid_argument(
      setting.name + (show ? " '" + setting.value + "'" : "") + " is not a collector's address: " + std::string(rule),
      "telemetry_endpoint");
}

Status read_grpc_endpoint(const Setting& setting, const SignalKey& signal, SignalSettings& out) {
  const auto parts = split_address(setting.value);
  if (!parts) return bad_address(setting, "write http://host:4317, https://host:4317 or host:4317");
  if (parts->path.size() > 1)
    return bad_address(setting, "gRPC uses no path; remove it, or set protocol http/protobuf");
  out.tls = parts->scheme.empty() ? !is_true(otlp_variable(signal, "INSECURE").value) : parts->scheme == "https";
  out.endpoint = std::string(parts->authority) + (parts->port ? "" : ":4317");
  return {};
}

Status read_http_endpoint(const Address& address, const SignalKey& signal, SignalSettings& out) {
  const auto parts = split_address(address.setting.value);
  if (!parts || parts->scheme.empty())
    return bad_address(address.setting, "write http://host:4318 or https://host:4318");
  out.tls = parts->scheme == "https";
  out.endpoint = address.setting.value;
  if (!address.base) return {};
  while (out.endpoint.ends_with('/')) out.endpoint.pop_back();
  out.endpoint += "/v1/" + std::string(signal.lower);
  return {};
}

Status read_endpoint(const TelemetryConfig& config, const SignalKey& signal, SignalSettings& out) {
  if (out.protocol == Protocol::kFile) {
    out.endpoint = signal.config.endpoint.value_or(config.file_path.value_or(""));
    if (out.endpoint.empty()) return invalid_argument("telemetry.file_path is missing: protocol file needs it");
    return {};
  }
  Address address = find_address(config, signal);
  const bool grpc = out.protocol == Protocol::kGrpc;
  if (!address.setting) address.setting = {"the default", grpc ? "http://localhost:4317" : "http://localhost:4318"};
  return grpc ? read_grpc_endpoint(address.setting, signal, out) : read_http_endpoint(address, signal, out);
}

Status check_readable(const Setting& setting) {
  if (!setting || ::access(setting.value.c_str(), R_OK) == 0) return {};
  return invalid_argument(setting.name + ": cannot read " + setting.value + ": " + std::strerror(errno), "telemetry");
}

Status read_tls(const TelemetryConfig& config, const SignalKey& signal, SignalSettings& out) {
  if (!out.tls) return {};
  const auto find = [&](std::optional<std::string> TlsConfig::*member, const char* key, const char* what) {
    if (const auto& own = signal.config.tls.*member)
      return Setting{config_key(signal, std::string("tls.") + key), *own};
    const auto& said = config.tls.*member;
    return said ? Setting{std::string("telemetry.tls.") + key, *said} : otlp_variable(signal, what);
  };
  const Setting ca = find(&TlsConfig::ca_file, "ca_file", "CERTIFICATE");
  const Setting certificate = find(&TlsConfig::certificate_file, "certificate_file", "CLIENT_CERTIFICATE");
  const Setting key = find(&TlsConfig::key_file, "key_file", "CLIENT_KEY");
  for (const Setting* file : {&ca, &certificate, &key}) TUFT_TRY(check_readable(*file));
  if (static_cast<bool>(certificate) != static_cast<bool>(key))
    return invalid_argument((certificate ? certificate : key).name + " requires both a certificate and a key",
                            "telemetry");
  out.ca_file = ca.value;
  out.certificate_file = certificate.value;
  out.key_file = key.value;
  return {};
}

// gRPC aborts the process for a name or a value that it cannot send.
bool is_header(Protocol protocol, std::string_view name, std::string_view value) {
  const auto printable = [](std::string_view text, unsigned char least) {
    return std::all_of(text.begin(), text.end(), [least](unsigned char c) { return c >= least && c < 0x7f; });
  };
  const auto in_grpc = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  if (protocol == Protocol::kGrpc && !std::all_of(name.begin(), name.end(), in_grpc)) return false;
  return !name.empty() && printable(name, 0x21) &&
         name.find_first_of("()<>@,;:\\\"/[]?={}") == std::string_view::npos && printable(value, 0x20);
}

Status read_headers(const TelemetryConfig& config, const SignalKey& signal, SignalSettings& out) {
  for (const auto& [name, value] : signal.config.headers.empty() ? config.headers : signal.config.headers) {
    // The message does not show the name, which may be a misplaced credential.
    if (!is_header(out.protocol, name, value)) {
      return invalid_argument(
          "telemetry.headers: a name or a value has characters that headers cannot have; over gRPC, names may "
          "contain only letters, digits, -, _ and .",
          "telemetry");
    }
    out.headers[lower_case(name)] = value;
  }
  if (!out.headers.empty()) return {};
  Setting setting = otlp_variable(signal, "HEADERS");
  if (!setting && signal.lower == "traces") setting = first_set({"EXPORTER_OTLP_HEADERS"});
  int malformed = 0;
  for (const auto& [name, value] : parse_pairs(setting.value, malformed)) {
    if (is_header(out.protocol, name, value)) {
      out.headers[lower_case(name)] = value;
    } else {
      ++malformed;
    }
  }
  if (malformed > 0)
    warn_ignored(setting.name, std::to_string(malformed) + " of its headers are ignored; write name=value,name=value");
  return {};
}

void read_compression(const TelemetryConfig& config, const SignalKey& signal, SignalSettings& out) {
  const Setting setting = otlp_variable(signal, "COMPRESSION");
  if (const auto said = signal.config.compression ? signal.config.compression : config.compression) {
    out.compression = *said;
  } else if (setting.value == "gzip") {
    out.compression = Compression::kGzip;
  } else if (setting && setting.value != "none") {
    warn_ignored(setting.name, "must be gzip or none; nothing is compressed");
  }
}

// Uses the smaller of the limits of the exporter and of its processor or reader.
void read_timeout(const TelemetryConfig& config, const SignalKey& signal, SignalSettings& out) {
  if (const auto said = signal.config.export_timeout ? signal.config.export_timeout : config.export_timeout) {
    out.export_timeout = *said;
    return;
  }
  const std::string caller = signal.lower == "traces" ? "OTEL_BSP_EXPORT_TIMEOUT"
                             : signal.lower == "logs" ? "OTEL_BLRP_EXPORT_TIMEOUT"
                                                      : "OTEL_METRIC_EXPORT_TIMEOUT";
  std::optional<Nanos> shortest;
  for (const Setting& setting : {otlp_variable(signal, "TIMEOUT"), first_set({caller})}) {
    if (!setting) continue;
    const auto number = parse_whole(setting.value);
    if (!number || *number < 1) {
      warn_ignored(setting.name, "must be a time in milliseconds; the default is used");
      continue;
    }
    const Nanos time = std::min(*number, kTimeoutMaxMs) * kMillisecond;
    shortest = std::min(shortest.value_or(time), time);
  }
  if (shortest) out.export_timeout = *shortest;
}

}  // namespace

bool has_path(std::string_view address) {
  const size_t scheme = address.find("://");
  const size_t path = address.find('/', scheme == std::string_view::npos ? 0 : scheme + 3);
  return path != std::string_view::npos && path + 1 < address.size();
}

Status read_signal(const TelemetryConfig& config, const SignalKey& signal, SignalSettings& out) {
  TUFT_TRY(read_protocol(config, signal, out));
  read_timeout(config, signal, out);
  if (out.protocol == Protocol::kNone || out.protocol == Protocol::kConsole) return {};
  TUFT_TRY(read_endpoint(config, signal, out));
  if (out.protocol == Protocol::kFile) return {};
  TUFT_TRY(read_tls(config, signal, out));
  TUFT_TRY(read_headers(config, signal, out));
  read_compression(config, signal, out);
  return {};
}

}  // namespace tuft::telemetry::internal
