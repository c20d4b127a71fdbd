// Which bucket, and how to reach it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace tuft::bucket {

struct Credentials {
  std::string access_key_id;
  std::string secret_access_key;  // secret, as the next: never print them
  std::string session_token;      // empty: the keys are permanent
};

inline constexpr int64_t kPartBytesMin = 5 << 20;  // S3 refuses smaller ones, except for the last

struct Settings {
  std::string endpoint;  // "https://s3.example.com" or "http://127.0.0.1:9000"; no path
  std::string region = "us-east-1";
  std::string name;        // of the bucket
  std::string prefix;      // of the names of all objects; empty, or ends with '/'
  bool path_style = true;  // https://ENDPOINT/BUCKET/KEY; false: https://BUCKET.ENDPOINT/KEY
  Credentials credentials;
  std::string authorities;  // certificates (PEM) of the authorities that may sign the endpoint's; empty: the machine's
  Nanos timeout = 60 * kSecond;            // of one request with its repetitions
  int64_t part_bytes = 16 << 20;           // a larger file is transferred in parts of this size
  int64_t cache_bytes = int64_t{4} << 30;  // checkpoints that a worker keeps on its disk
};

// Returns "s3://NAME/PREFIX" for logs and messages to operators.
std::string address_of(const Settings& settings);

// The environment variable in which a server passes the settings to its workers.
inline constexpr const char* kBucketVariable = "TUFT_WORKER_BUCKET";

// Settings as JSON, for passing them to a worker. It has the credentials: pass it in an environment variable or over
// TLS, never on a command line or in a log.
std::string to_json(const Settings& settings);
// Parses the result of to_json(). Fails on anything else; messages show no value.
Result<Settings> settings_from_json(std::string_view json);

// Returns kInvalidArgument, naming the field, if the settings cannot be used.
Status check(const Settings& settings);

// Reads the credentials of a file in the format of the AWS tools: lines "aws_access_key_id = ...",
// "aws_secret_access_key = ..." and perhaps "aws_session_token = ..." in the section [default], or without a section.
// Messages show no value.
Result<Credentials> parse_credentials(std::string_view text);

}  // namespace tuft::bucket
