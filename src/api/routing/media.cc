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

Error truncated() {
  return invalid_argument("the zstd body is truncated", "invalid_zstd");
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

bool is_compressed(std::string_view content_encoding) {
  return normalized(content_encoding) == "zstd";
}

struct BodyDecoder::Zstd {
  std::unique_ptr<ZSTD_DCtx, FreeStream> context{ZSTD_createDCtx()};
  std::string output;
  size_t written = 0;
  size_t read = 0;
  size_t state = 1;  // 0: at the end of a frame
};

BodyDecoder::BodyDecoder(std::string body, std::string_view content_encoding, const BodyLimit& limit, Charge charge)
    : input_(std::move(body)), limit_(limit), charge_(std::move(charge)) {
  if (!is_compressed(content_encoding)) return;
  zstd_ = std::make_unique<Zstd>();
  if (zstd_->context) ZSTD_DCtx_setParameter(zstd_->context.get(), ZSTD_d_windowLogMax, kWindowLogMax);
}

BodyDecoder::~BodyDecoder() = default;

// The size that the first frame declares is only a hint, which is limited by a plausible compression ratio.
Status BodyDecoder::grow() {
  const size_t most = static_cast<size_t>(limit_.bytes) + 1;
  std::string& output = zstd_->output;
  size_t size = std::max(kFirstOutputBytes, output.size() * 2);
  if (output.empty()) {
    const unsigned long long declared = ZSTD_getFrameContentSize(input_.data(), input_.size());
    const bool is_declared = declared != ZSTD_CONTENTSIZE_UNKNOWN && declared != ZSTD_CONTENTSIZE_ERROR;
    if (is_declared && declared >= most) return body_too_large(limit_, "decompressed body");
    if (is_declared) size = std::min(static_cast<size_t>(declared) + 1, input_.size() * 16);
  }
  size = std::clamp<size_t>(size, 1, most);
  TUFT_TRY(charge_(static_cast<int64_t>(size - output.size())));
  output.resize(size);
  return {};
}

Result<bool> BodyDecoder::advance() {
  if (zstd_ == nullptr) return true;
  Zstd& zstd = *zstd_;
  if (!zstd.context) return internal_error("zstd context could not be made");
  const size_t stop = zstd.written + kSliceBytes;
  while (zstd.state != 0 || zstd.read < input_.size()) {
    if (zstd.written == zstd.output.size()) TUFT_TRY(grow());
    ZSTD_inBuffer in{input_.data(), input_.size(), zstd.read};
    ZSTD_outBuffer out{zstd.output.data(), std::min(zstd.output.size(), stop), zstd.written};
    zstd.state = ZSTD_decompressStream(zstd.context.get(), &out, &in);
    if (ZSTD_isError(zstd.state)) {
      return invalid_argument(std::string("the body is not valid zstd: ") + ZSTD_getErrorName(zstd.state),
                              "invalid_zstd");
    }
    if (out.pos > static_cast<size_t>(limit_.bytes)) return body_too_large(limit_, "decompressed body");
    if (in.pos == zstd.read && out.pos == zstd.written) break;
    zstd.read = in.pos;
    zstd.written = out.pos;
    if (zstd.written == stop) return false;
  }
  if (zstd.state != 0) return truncated();
  return true;
}

int64_t BodyDecoder::produced() const {
  return zstd_ == nullptr ? received() : static_cast<int64_t>(zstd_->written);
}

std::string BodyDecoder::take() {
  if (zstd_ == nullptr) return std::move(input_);
  zstd_->output.resize(zstd_->written);
  return std::move(zstd_->output);
}

Result<std::string> decode_body(std::string body, std::string_view content_encoding, const BodyLimit& limit) {
  BodyDecoder decoder(std::move(body), content_encoding, limit, [](int64_t) { return Status(); });
  while (true) {
    TUFT_ASSIGN(const bool is_done, decoder.advance());
    if (is_done) return decoder.take();
  }
}

}  // namespace tuft::api
