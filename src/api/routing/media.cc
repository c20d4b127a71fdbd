#include "api/routing/media.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <zstd.h>

namespace tuft::api {
namespace {

// The limit of a frame's window, which may refer back to so many bytes of history (the default is 128 MiB).
constexpr int kWindowLogMax = 25;
constexpr size_t kFirstOutputBytes = 64 << 10;

std::string normalized(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  std::string result(text.substr(first, text.find_last_not_of(" \t") - first + 1));
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

struct FreeStream {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

Result<std::string> decompress_zstd(std::string_view input, const BodyLimit& limit) {
  const auto size_bytes_max = static_cast<size_t>(limit.bytes);
  const auto too_large = [&] { return body_too_large(limit, "decompressed body"); };
  const unsigned long long declared = ZSTD_getFrameContentSize(input.data(), input.size());
  const bool is_declared = declared != ZSTD_CONTENTSIZE_UNKNOWN && declared != ZSTD_CONTENTSIZE_ERROR;
  if (is_declared && declared > size_bytes_max) return too_large();

  const std::unique_ptr<ZSTD_DCtx, FreeStream> context(ZSTD_createDCtx());
  if (!context) return internal_error("zstd context could not be made");
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kWindowLogMax);

  std::string output;
  // The declared size is only a hint, which is limited by a plausible compression ratio.
  const size_t hint = is_declared ? static_cast<size_t>(declared) + 1 : kFirstOutputBytes;
  output.resize(std::clamp<size_t>(std::min(hint, input.size() * 16), 1, size_bytes_max + 1));
  ZSTD_inBuffer in{input.data(), input.size(), 0};
  ZSTD_outBuffer out{output.data(), output.size(), 0};
  size_t state = 1;
  while (state != 0 || in.pos < in.size) {
    const size_t read_before = in.pos;
    const size_t written_before = out.pos;
    state = ZSTD_decompressStream(context.get(), &out, &in);
    if (ZSTD_isError(state)) {
      return invalid_argument(std::string("the body is not valid zstd: ") + ZSTD_getErrorName(state), "invalid_zstd");
    }
    if (out.pos > size_bytes_max) return too_large();
    if (out.pos == out.size) {
      output.resize(std::min(size_bytes_max + 1, output.size() * 2));
      out = {output.data(), output.size(), out.pos};
    } else if (in.pos == read_before && out.pos == written_before) {
      break;
    }
  }
  if (state != 0) return invalid_argument("the zstd body is truncated", "invalid_zstd");
  output.resize(out.pos);
  return output;
}

}  // namespace

MediaType media_type(std::string_view content_type) {
  const std::string name = normalized(content_type.substr(0, content_type.find(';')));
  if (name.empty()) return MediaType::kNone;
  if (name == "application/json") return MediaType::kJson;
  if (name == "application/x-protobuf" || name == "application/protobuf") return MediaType::kProtobuf;
  return MediaType::kOther;
}

bool accepts_protobuf(std::string_view accept) {
  return accept.find("application/x-protobuf") != accept.npos;
}

Status check_content_encoding(std::string_view content_encoding) {
  const std::string name = normalized(content_encoding);
  if (name.empty() || name == "identity" || name == "zstd") return {};
  return Error{ErrorCode::kUnsupportedMedia, "this Content-Encoding is not supported; send zstd or none at all",
               "content_encoding"};
}

Error body_too_large(const BodyLimit& limit, std::string_view what) {
  return {ErrorCode::kPayloadTooLarge,
          "the " + std::string(what) + " is larger than " + std::to_string(limit.bytes) + " bytes " +
              (limit.is_of_route ? "(what this endpoint takes at most)" : "(limits.request_body_bytes_max)") +
              "; send it in smaller requests",
          "body_too_large"};
}

Result<std::string> decode_body(std::string body, std::string_view content_encoding, const BodyLimit& limit) {
  if (normalized(content_encoding) != "zstd") return body;
  return decompress_zstd(body, limit);
}

}  // namespace tuft::api
