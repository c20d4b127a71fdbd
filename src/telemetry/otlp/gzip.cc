#include "telemetry/otlp/gzip.h"

#include <zlib.h>

namespace tuft::telemetry::internal::otlp {

std::string gzip(std::string_view bytes) {
  // The fastest level is enough, because telemetry is very repetitive.
  constexpr int kLevel = 1;
  constexpr int kWindowBits = 15;
  constexpr int kGzipHeader = 16;
  constexpr int kMemoryLevel = 8;
  z_stream stream{};
  if (::deflateInit2(&stream, kLevel, Z_DEFLATED, kWindowBits + kGzipHeader, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK)
    return {};
  std::string out(::deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // NOLINT: zlib's old signature
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int end = ::deflate(&stream, Z_FINISH);
  out.resize(end == Z_STREAM_END ? stream.total_out : 0);
  ::deflateEnd(&stream);
  return out;
}

}  // namespace tuft::telemetry::internal::otlp
