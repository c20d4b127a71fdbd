// Reads the XML of S3's answers.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bucket/bucket.h"

namespace tuft::bucket {

// Returns the code of an <Error>, such as "NoSuchKey": at most 64 letters and digits; empty if `xml` is none.
std::string error_code_of(std::string_view xml);

// The following return kInternal for anything else than such an answer.

struct ListPage {
  std::vector<Bucket::Object> objects;  // with their whole names
  std::string next;                     // the token of the next page; empty: this is the last
};
Result<ListPage> parse_list(std::string_view xml);

struct UploadsPage {
  std::vector<std::pair<std::string, std::string>> uploads;  // key, id
  std::string next_key, next_id;                             // empty: this is the last page
};
Result<UploadsPage> parse_uploads(std::string_view xml);

// Returns the id of a multipart upload that was begun.
Result<std::string> parse_upload_id(std::string_view xml);

}  // namespace tuft::bucket
