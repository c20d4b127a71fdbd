#include "intake/inflate.h"

#include <algorithm>
#include <zlib.h>

namespace tuft::intake {
namespace {

constexpr size_t kFirstBytes = size_t{64} << 10;
constexpr int kGzipOrZlib = 15 + 32;  // the largest window; the format is that of the head

class Inflater {
 public:
  Inflater() : is_made_(::inflateInit2(&stream_, kGzipOrZlib) == Z_OK) {}
  ~Inflater() {
    if (is_made_) ::inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool is_made() const { return is_made_; }
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_ = {};
  const bool is_made_;
};

}  // namespace

bool is_deflated(const std::string& bytes) {
  if (bytes.size() < 2) return false;
  const auto first = static_cast<unsigned char>(bytes[0]);
  const auto second = static_cast<unsigned char>(bytes[1]);
  return (first == 0x1f && second == 0x8b) || (first == 0x78 && (first * 256 + second) % 31 == 0);
}

Result<std::string> inflated(std::string bytes, size_t bytes_max) {
  Inflater inflater;
  if (!inflater.is_made()) return internal_error("the decompressor could not be made");
  z_stream& stream = inflater.stream();
  // zlib reads through a pointer that is not const.
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    const size_t written = stream.total_out;
    if (written == out.size()) out.resize(std::min(std::max(kFirstBytes, 2 * out.size()), bytes_max + 1));
    stream.next_out = reinterpret_cast<Bytef*>(out.data()) + written;
    stream.avail_out = static_cast<uInt>(out.size() - written);
    state = ::inflate(&stream, Z_NO_FLUSH);
    if (state != Z_OK && state != Z_STREAM_END)
      return invalid_argument("the message is not valid gzip or deflate", "invalid_gzip");
    if (stream.total_out > bytes_max) {
      return Error{
          ErrorCode::kPayloadTooLarge,
          "the decompressed message is larger than " + std::to_string(bytes_max) + " bytes; send smaller batches",
          "body_too_large"};
    }
  }
  if (stream.avail_in > 0) return invalid_argument("bytes follow the compressed message", "invalid_gzip");
  out.resize(stream.total_out);
  return out;
}

}  // namespace tuft::intake
