// AWS Signature Version 4: what proves to an S3 server that a request comes from the owner of a key, and was not
// changed on its way.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "bucket/settings.h"

namespace tuft::bucket {

// A request as its server sees it.
struct SignedParts {
  std::string_view method;
  std::string path;                            // decoded; begins with '/'
  std::map<std::string, std::string> query;    // decoded
  std::map<std::string, std::string> headers;  // those that are signed, `host` among them; the names in lower case
  std::string payload_sha256;                  // in hexadecimal
};

// Returns "20130524T000000Z" for a wall clock time; the value of the header x-amz-date.
std::string amz_date(Nanos wall);

// Returns the value of the header Authorization. `date` is the result of amz_date().
std::string authorization(const Credentials& credentials, std::string_view region, std::string_view date,
                          const SignedParts& request);

// Percent-encodes all bytes but A-Z a-z 0-9 - . _ ~ and, if `keeps_slash`, '/'.
std::string uri_encoded(std::string_view text, bool keeps_slash);
// Returns "a=1&b=2", sorted and encoded.
std::string query_string(const std::map<std::string, std::string>& query);

// In hexadecimal.
std::string sha256_hex(std::string_view bytes);

}  // namespace tuft::bucket
