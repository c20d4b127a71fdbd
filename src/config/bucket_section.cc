#include <cstdlib>
#include <string>

#include "base/file.h"
#include "config/sections.h"

namespace tuft::config {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;
constexpr int kTimeoutMin = 5;
constexpr int kTimeoutMax = 3600;
constexpr int64_t kPartBytesMax = int64_t{1} << 30;  // a part is in memory while it is sent

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// What the files hold is checked when they are read.
Status check_without_files(bucket::Settings settings) {
  settings.credentials = {"not-read-yet", "not-read-yet", ""};
  return bucket::check(settings);
}

bool is_remote_and_plain(std::string_view endpoint) {
  constexpr std::string_view kPlain = "http://";
  if (!endpoint.starts_with(kPlain)) return false;
  const std::string_view host = endpoint.substr(kPlain.size());
  return !host.starts_with("127.") && !host.starts_with("localhost") && !host.starts_with("[::1]");
}

}  // namespace

void read_bucket(const Node* node, std::optional<BucketConfig>& config, Problems& problems) {
  if (node == nullptr || node->is_null()) return;
  MapReader reader(node, "bucket", problems);
  bucket::Settings& settings = config.emplace().settings;
  reader.text("endpoint", settings.endpoint);
  reader.text("region", settings.region);
  reader.text("name", settings.name);
  reader.text("prefix", settings.prefix);
  reader.boolean("path_style", settings.path_style);
  reader.file("credentials_file", config->credentials_file);
  reader.file("ca_file", config->ca_file);
  int64_t seconds = settings.timeout / kSecond;
  if (reader.integer("timeout_seconds", seconds, kTimeoutMin, kTimeoutMax)) settings.timeout = seconds * kSecond;
  reader.integer("part_bytes", settings.part_bytes, bucket::kPartBytesMin, kPartBytesMax);
  reader.integer("cache_bytes", settings.cache_bytes, 0);
  reader.finish();
  if (const Status usable = check_without_files(settings); !usable.ok()) {
    const std::string& message = usable.error().message;  // "<key> <what is wrong>"
    const size_t blank = message.find(' ');
    reader.error(message.substr(0, blank), message.substr(blank + 1));
  }
  if (is_remote_and_plain(settings.endpoint)) {
    reader.warning("endpoint", "is http, so everybody on the way can read and change the checkpoints; use https");
  }
}

Result<bucket::Settings> load_bucket_settings(const BucketConfig& config) {
  bucket::Settings settings = config.settings;
  if (!config.ca_file.empty()) {
    auto authorities = read_file(config.ca_file, kFileBytesMax);
    if (!authorities.ok()) return invalid_argument("bucket.ca_file: " + authorities.error().message, "config");
    settings.authorities = std::move(*authorities);
  }
  if (config.credentials_file.empty()) {
    settings.credentials = {variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"),
                            variable("AWS_SESSION_TOKEN")};
    if (settings.credentials.access_key_id.empty() || settings.credentials.secret_access_key.empty()) {
      return invalid_argument(
          "bucket.credentials_file: is missing, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set; give one "
          "of the two",
          "config");
    }
  } else {
    const auto text = read_file(config.credentials_file, kFileBytesMax);
    if (!text.ok()) return invalid_argument("bucket.credentials_file: " + text.error().message, "config");
    auto credentials = bucket::parse_credentials(*text);
    if (!credentials.ok()) {
      return invalid_argument("bucket.credentials_file: " + credentials.error().message, "config");
    }
    settings.credentials = std::move(*credentials);
  }
  if (const Status usable = bucket::check(settings); !usable.ok()) {
    return invalid_argument("bucket: " + usable.error().message, "config");
  }
  return settings;
}

}  // namespace tuft::config
