#include "api/handlers/tar_gz.h"

#include <algorithm>
#include <array>
#include <zlib.h>

#include "base/check.h"

namespace tuft::api {
namespace {

constexpr size_t kBlock = 512;
constexpr int kArchiveWindow = 15 + 16;  // the largest window, with the head of gzip
constexpr int kMemoryLevel = 8;

}  // namespace

void append_tar_file(std::string& tar, std::string_view name, std::string_view content, Nanos wall) {
  std::array<char, kBlock> head{};
  TUFT_CHECK(name.size() < 100, "a name in a tar archive is short");
  std::copy(name.begin(), name.end(), head.begin());
  const auto number = [&](size_t at, size_t digits, uint64_t value) {
    for (size_t i = digits; i-- > 0; value /= 8) head[at + i] = static_cast<char>('0' + value % 8);
  };
  number(100, 7, 0644);
  number(108, 7, 0);
  number(116, 7, 0);
  number(124, 11, content.size());
  number(136, 11, static_cast<uint64_t>(std::max<Nanos>(0, wall) / kSecond));
  std::fill_n(head.begin() + 148, 8, ' ');
  head[156] = '0';
  const std::string_view magic("ustar\00000", 8);
  std::copy(magic.begin(), magic.end(), head.begin() + 257);
  uint64_t sum = 0;
  for (const char c : head) sum += static_cast<unsigned char>(c);
  number(148, 6, sum);
  head[155] = ' ';
  tar.append(head.data(), head.size());
  tar.append(content);
  tar.append((kBlock - content.size() % kBlock) % kBlock, '\0');
}

void end_tar(std::string& tar) {
  tar.append(2 * kBlock, '\0');
}

Result<std::string> gzip(std::string_view bytes) {
  z_stream stream{};
  if (::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kArchiveWindow, kMemoryLevel, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    return internal_error("zlib could not be started");
  }
  std::string out(::deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int ended = ::deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  if (ended != Z_STREAM_END) return internal_error("zlib did not compress a whole text");
  return out;
}

}  // namespace tuft::api
