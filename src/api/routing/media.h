// Content types and content encodings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft::api {

enum class MediaType : uint8_t { kNone, kJson, kProtobuf, kOther };

// Returns the type that a Content-Type header names, ignoring case and parameters.
MediaType media_type(std::string_view content_type);

// Returns true if the Accept header contains application/x-protobuf, as the Tinker SDK tests it.
bool accepts_protobuf(std::string_view accept);

// Returns kUnsupportedMedia unless the header is absent, identity, zstd or, with `takes_gzip`, gzip.
Status check_content_encoding(std::string_view content_encoding, bool takes_gzip = false);

// The maximum size of a body, both as received and after decompression.
struct BodyLimit {
  int64_t bytes = 0;
  bool is_of_route = false;  // the limit of the route; false: limits.request_body_bytes_max
};
// Returns kPayloadTooLarge, naming the limit. `what` is, for instance, "request body".
Error body_too_large(const BodyLimit& limit, std::string_view what);

// Returns true for a Content-Encoding that changes the body, which is zstd or gzip.
bool is_compressed(std::string_view content_encoding);

// Removes the content encoding of a body in slices, so that users can take turns. Not thread-safe.
class BodyDecoder {
 public:
  static constexpr size_t kSliceBytes = 4 << 20;
  static constexpr size_t kSliceFrames = 16 << 10;  // about as much work as so many bytes
  // Asks for further bytes of memory before they are used; an error ends the decoding with it.
  using Charge = std::function<Status(int64_t bytes)>;

  // `content_encoding` was accepted by check_content_encoding(). A body without encoding is charged nothing.
  BodyDecoder(std::string body, std::string_view content_encoding, const BodyLimit& limit, Charge charge);
  ~BodyDecoder();
  BodyDecoder(const BodyDecoder&) = delete;
  BodyDecoder& operator=(const BodyDecoder&) = delete;

  // Reads and produces at most a slice each, of at most so many frames of zstd: a body may be long and hold nothing.
  // Returns true at the end of the body, kPayloadTooLarge as soon as the output exceeds the
  // limit, and kInvalidArgument for damaged or truncated data.
  Result<bool> advance();
  int64_t received() const { return static_cast<int64_t>(input_.size()); }
  // Returns the bytes that the slices have produced.
  int64_t produced() const;
  // Returns the decoded body. Requires that advance() has returned true.
  std::string take();

 private:
  Status grow();
  // `stop`, `read_stop`: where the slice ends in the output and in the input.
  Result<bool> advance_zstd(size_t stop, size_t read_stop);
  Result<bool> advance_gzip(size_t stop, size_t read_stop);

  struct Compressed;
  std::string input_;
  const BodyLimit limit_;
  const Charge charge_;
  std::unique_ptr<Compressed> compressed_;  // null: the body is not compressed
};

// Decodes a whole body. The same errors.
Result<std::string> decode_body(std::string body, std::string_view content_encoding, const BodyLimit& limit);

}  // namespace tuft::api
