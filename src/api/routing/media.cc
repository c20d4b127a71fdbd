#include "api/routing/media.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <zlib.h>
#include <zstd.h>

namespace tuft::api {
namespace {

// The limit of a frame's window, which may refer back to so many bytes of history (the default is 128 MiB).
constexpr int kWindowLogMax = 25;
constexpr int kGzipWindow = 15 + 16;  // zlib's largest, with the head of gzip
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

Error truncated(std::string_view what) {
  return invalid_argument("the " + std::string(what) + " body is truncated", "invalid_" + std::string(what));
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

Status check_content_encoding(std::string_view content_encoding, bool takes_gzip) {
  const std::string name = normalized(content_encoding);
  if (name.empty() || name == "identity" || name == "zstd" || (takes_gzip && name == "gzip")) return {};
  return Error{ErrorCode::kUnsupportedMedia,
               takes_gzip ? "this Content-Encoding is not supported; send gzip, zstd or none at all"
                          : "this Content-Encoding is not supported; send zstd or none at all",
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
  const std::string name = normalized(content_encoding);
  return name == "zstd" || name == "gzip";
}

struct BodyDecoder::Compressed {
  explicit Compressed(bool gzip) : is_gzip(gzip) {
    if (is_gzip) {
      is_made = ::inflateInit2(&inflating, kGzipWindow) == Z_OK;
    } else {
      context.reset(ZSTD_createDCtx());
      is_made = context != nullptr;
      if (is_made) ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kWindowLogMax);
    }
  }
  ~Compressed() {
    if (is_gzip && is_made) ::inflateEnd(&inflating);
  }
  Compressed(const Compressed&) = delete;
  Compressed& operator=(const Compressed&) = delete;

  const bool is_gzip;
  bool is_made = false;
  std::unique_ptr<ZSTD_DCtx, FreeStream> context;
  z_stream inflating = {};
  std::string output;
  size_t written = 0;
  size_t read = 0;
  bool at_end = false;  // of a frame
};

BodyDecoder::BodyDecoder(std::string body, std::string_view content_encoding, const BodyLimit& limit, Charge charge)
    : input_(std::move(body)), limit_(limit), charge_(std::move(charge)) {
  if (!is_compressed(content_encoding)) return;
  compressed_ = std::make_unique<Compressed>(normalized(content_encoding) == "gzip");
}

BodyDecoder::~BodyDecoder() = default;

// The size that the first frame of zstd declares is only a hint, which is limited by a plausible compression ratio.
Status BodyDecoder::grow() {
  const size_t most = static_cast<size_t>(limit_.bytes) + 1;
  std::string& output = compressed_->output;
  size_t size = std::max(kFirstOutputBytes, output.size() * 2);
  if (output.empty() && !compressed_->is_gzip) {
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
  if (compressed_ == nullptr) return true;
  if (!compressed_->is_made) return internal_error("the decompressor could not be made");
  const size_t stop = compressed_->written + kSliceBytes;
  const size_t read_stop = std::min(input_.size(), compressed_->read + kSliceBytes);
  return compressed_->is_gzip ? advance_gzip(stop, read_stop) : advance_zstd(stop, read_stop);
}

Result<bool> BodyDecoder::advance_zstd(size_t stop, size_t read_stop) {
  Compressed& zstd = *compressed_;
  size_t frames = 0;
  while (!zstd.at_end || zstd.read < input_.size()) {
    if (zstd.written == zstd.output.size()) TUFT_TRY(grow());
    ZSTD_inBuffer in{input_.data(), read_stop, zstd.read};
    ZSTD_outBuffer out{zstd.output.data(), std::min(zstd.output.size(), stop), zstd.written};
    const size_t state = ZSTD_decompressStream(zstd.context.get(), &out, &in);
    if (ZSTD_isError(state)) {
      return invalid_argument(std::string("the body is not valid zstd: ") + ZSTD_getErrorName(state), "invalid_zstd");
    }
    zstd.at_end = state == 0;
    if (out.pos > static_cast<size_t>(limit_.bytes)) return body_too_large(limit_, "decompressed body");
    if (in.pos == zstd.read && out.pos == zstd.written) break;
    zstd.read = in.pos;
    zstd.written = out.pos;
    if (zstd.written == stop) return false;
    // A call ends with a frame.
    if (zstd.at_end) ++frames;
    if ((zstd.read == read_stop || frames == kSliceFrames) && zstd.read < input_.size()) return false;
  }
  if (!zstd.at_end) return truncated("zstd");
  return true;
}

// One member; what comes after it is refused.
Result<bool> BodyDecoder::advance_gzip(size_t stop, size_t read_stop) {
  Compressed& gzip = *compressed_;
  while (!gzip.at_end) {
    if (gzip.written == gzip.output.size()) TUFT_TRY(grow());
    const size_t room = std::min(gzip.output.size(), stop) - gzip.written;
    // zlib reads through a pointer that is not const.
    gzip.inflating.next_in = reinterpret_cast<Bytef*>(input_.data()) + gzip.read;
    gzip.inflating.avail_in = static_cast<uInt>(read_stop - gzip.read);
    gzip.inflating.next_out = reinterpret_cast<Bytef*>(gzip.output.data()) + gzip.written;
    gzip.inflating.avail_out = static_cast<uInt>(room);
    const int state = ::inflate(&gzip.inflating, Z_NO_FLUSH);
    if (state == Z_BUF_ERROR) return truncated("gzip");
    if (state != Z_OK && state != Z_STREAM_END) return invalid_argument("the body is not valid gzip", "invalid_gzip");
    gzip.read = read_stop - gzip.inflating.avail_in;
    gzip.written += room - gzip.inflating.avail_out;
    gzip.at_end = state == Z_STREAM_END;
    if (gzip.written > static_cast<size_t>(limit_.bytes)) return body_too_large(limit_, "decompressed body");
    const bool has_read_all = gzip.read == input_.size();
    if (!gzip.at_end && (gzip.written == stop || (gzip.read == read_stop && !has_read_all))) return false;
  }
  if (gzip.read < input_.size()) return invalid_argument("there are bytes after the gzip body", "invalid_gzip");
  return true;
}

int64_t BodyDecoder::produced() const {
  return compressed_ == nullptr ? received() : static_cast<int64_t>(compressed_->written);
}

std::string BodyDecoder::take() {
  if (compressed_ == nullptr) return std::move(input_);
  compressed_->output.resize(compressed_->written);
  return std::move(compressed_->output);
}

Result<std::string> decode_body(std::string body, std::string_view content_encoding, const BodyLimit& limit) {
  BodyDecoder decoder(std::move(body), content_encoding, limit, [](int64_t) { return Status(); });
  while (true) {
    TUFT_ASSIGN(const bool is_done, decoder.advance());
    if (is_done) return decoder.take();
  }
}

}  // namespace tuft::api
