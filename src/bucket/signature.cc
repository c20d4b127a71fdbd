#include "bucket/signature.h"

#include <array>
#include <cstdio>
#include <ctime>

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "base/text.h"

namespace tuft::bucket {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr size_t kDayLength = 8;  // of a date such as 20130524T000000Z

std::string hmac(std::string_view key, std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
         text.size(), digest.data(), nullptr);
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::string hex(std::string_view bytes) {
  std::string text;
  append_hex(text, bytes);
  return text;
}

bool is_unreserved(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

}  // namespace

std::string amz_date(Nanos wall) {
  const auto seconds = static_cast<std::time_t>(wall / kSecond);
  std::tm parts = {};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const size_t size = std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts);
  return {text.data(), size};
}

std::string uri_encoded(std::string_view text, bool keeps_slash) {
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    if (is_unreserved(c) || (keeps_slash && c == '/')) {
      encoded += c;
    } else {
      std::array<char, 4> escape{};
      std::snprintf(escape.data(), escape.size(), "%%%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
      encoded += escape.data();
    }
  }
  return encoded;
}

std::string query_string(const std::map<std::string, std::string>& query) {
  std::string text;
  for (const auto& [key, value] : query) {
    if (!text.empty()) text += '&';
    text += uri_encoded(key, false) + "=" + uri_encoded(value, false);
  }
  return text;
}

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  ::SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

// The steps are those of "Authenticating Requests: Using the Authorization Header" in the S3 API reference.
std::string authorization(const Credentials& credentials, std::string_view region, std::string_view date,
                          const SignedParts& request) {
  std::string headers;
  std::string names;
  for (const auto& [name, value] : request.headers) {
    headers += name + ":" + std::string(trimmed(value)) + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = std::string(request.method) + "\n" + uri_encoded(request.path, true) + "\n" +
                                query_string(request.query) + "\n" + headers + "\n" + names + "\n" +
                                request.payload_sha256;
  const std::string day(date.substr(0, kDayLength));
  const std::string scope = day + "/" + std::string(region) + "/s3/aws4_request";
  const std::string to_sign =
      std::string(kAlgorithm) + "\n" + std::string(date) + "\n" + scope + "\n" + sha256_hex(canonical);
  std::string key = hmac("AWS4" + credentials.secret_access_key, day);
  for (const std::string_view part : {region, std::string_view("s3"), std::string_view("aws4_request")}) {
    key = hmac(key, part);
  }
  return std::string(kAlgorithm) + " Credential=" + credentials.access_key_id + "/" + scope +
         ",SignedHeaders=" + names + ",Signature=" + hex(hmac(key, to_sign));
}

}  // namespace tuft::bucket
