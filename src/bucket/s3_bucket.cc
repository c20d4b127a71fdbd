#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bucket/answers.h"
#include "bucket/bucket.h"
#include "bucket/requests.h"
#include "bucket/signature.h"
#include "bucket/transfer.h"
#include "metrics/bucket.h"
#include "telemetry/trace.h"

namespace tuft::bucket {
namespace {

constexpr const char* kShaHeader = "x-amz-meta-sha256";
constexpr int64_t kHashPiece = 4 << 20;
constexpr size_t kListPageBytesMax = 4 << 20;  // a page has at most 1,000 names of at most 1 KiB
constexpr int64_t kPartsMax = 10'000;          // of one object
constexpr int kListPagesMax = 100'000;         // against a server that never ends

telemetry::Tracer tracer() {
  static const telemetry::Tracer made = telemetry::get_tracer("tuft.bucket");
  return made;
}

Error damaged() {
  return data_loss("an object of the bucket of checkpoints is damaged: its bytes are not those that were put",
                   "object_damaged");
}

enum class Operation : uint8_t { kPut, kGet, kList, kDelete };
constexpr std::array<std::string_view, 4> kWords = {"put", "get", "list", "delete"};

telemetry::Span start_span_of(Operation operation) {
  switch (operation) {
    case Operation::kPut:
      return tracer().start_span("bucket.put", {.kind = telemetry::SpanKind::kClient});
    case Operation::kGet:
      return tracer().start_span("bucket.get", {.kind = telemetry::SpanKind::kClient});
    case Operation::kList:
      return tracer().start_span("bucket.list", {.kind = telemetry::SpanKind::kClient});
    case Operation::kDelete:
      return tracer().start_span("bucket.delete", {.kind = telemetry::SpanKind::kClient});
  }
  return {};
}

// The span and the metrics of one call.
class Measured {
 public:
  Measured(Operation operation, std::string_view name)
      : word_(kWords[static_cast<size_t>(operation)]),
        begin_(system_clock().monotonic()),
        span_(start_span_of(operation)),
        scope_(span_.context()) {
    span_.set_attribute("tuft.bucket.object", name);
  }

  void transferred(int64_t bytes) { bytes_ += bytes; }

  template <typename T>
  Result<T> done(Result<T> result) {
    const std::string_view outcome = result.ok() ? "ok" : error_code_name(result.error().code);
    metrics::bucket().duration.record(to_seconds(system_clock().monotonic() - begin_),
                                      {{"operation", word_}, {"result", outcome}});
    if (bytes_ > 0) {
      metrics::bucket().bytes.add(bytes_, {{"operation", word_}, {"result", outcome}});
      span_.set_attribute("tuft.size_bytes", bytes_);
    }
    if (!result.ok()) span_.record_error(result.error());
    return result;
  }

 private:
  const std::string_view word_;
  const Nanos begin_;
  telemetry::Span span_;
  const telemetry::ContextScope scope_;
  int64_t bytes_ = 0;
};

class S3Bucket final : public Bucket {
 public:
  explicit S3Bucket(const Settings& settings) : settings_(settings), requests_(settings_) {}

  Status put(std::string_view name, std::string_view bytes) override {
    Measured measured(Operation::kPut, name);
    return measured.done(put_whole(name, bytes, measured));
  }

  Status put_file(std::string_view name, const std::filesystem::path& file) override {
    Measured measured(Operation::kPut, name);
    return measured.done(put_opened(name, file, measured));
  }

  Result<std::string> get(std::string_view name, size_t size_bytes_max) override {
    Measured measured(Operation::kGet, name);
    return measured.done(get_whole(name, size_bytes_max, measured));
  }

  Status get_file(std::string_view name, const std::filesystem::path& file) override {
    Measured measured(Operation::kGet, name);
    return measured.done(get_to(name, file, measured));
  }

  Result<Version> head(std::string_view name) override {
    Measured measured(Operation::kGet, name);
    return measured.done(version_of(name));
  }

  Result<std::string> get_part(std::string_view name, const Version& version, int64_t offset,
                               int64_t size_bytes) override {
    Measured measured(Operation::kGet, name);
    return measured.done(part_of(name, version, offset, size_bytes, measured));
  }

  Status list(std::string_view prefix, const std::function<void(Object)>& found) override {
    Measured measured(Operation::kList, prefix);
    return measured.done(list_pages(prefix, found));
  }

  Status remove(std::string_view name) override {
    Measured measured(Operation::kDelete, name);
    Result<HttpAnswer> answer = requests_.send({.operation = "delete", .method = "DELETE", .key = key_of(name)});
    const bool is_gone = answer.ok() || answer.error().code == ErrorCode::kNotFound;
    return measured.done(is_gone ? Status() : Status(std::move(answer).error()));
  }

  Status remove_unfinished(std::string_view prefix) override {
    Measured measured(Operation::kDelete, prefix);
    return measured.done(abort_uploads(prefix));
  }

  void cancel(Nanos grace) override { requests_.cancel(grace); }

 private:
  std::string key_of(std::string_view name) const { return settings_.prefix + std::string(name); }

  Status put_whole(std::string_view name, std::string_view bytes, Measured& measured) {
    TUFT_ASSIGN(const HttpAnswer answer, requests_.send({.operation = "put",
                                                         .method = "PUT",
                                                         .key = key_of(name),
                                                         .headers = {{kShaHeader, sha256_hex(bytes)}},
                                                         .body = bytes}));
    measured.transferred(static_cast<int64_t>(bytes.size()));
    return {};
  }

  Status put_opened(std::string_view name, const std::filesystem::path& path, Measured& measured) {
    TUFT_ASSIGN(InputFile file, InputFile::open(path));
    if (file.size_bytes() > settings_.part_bytes) return put_parts(name, file, measured);
    TUFT_ASSIGN(const std::string bytes, file.read(file.size_bytes()));
    return put_whole(name, bytes, measured);
  }

  // The metadata is given before the parts, so the file is read twice.
  Status put_parts(std::string_view name, InputFile& file, Measured& measured) {
    RunningSha256 sha256;
    for (int64_t left = file.size_bytes(); left > 0; left -= std::min(left, kHashPiece)) {
      TUFT_ASSIGN(const std::string piece, file.read(std::min(left, kHashPiece)));
      sha256.add(piece);
    }
    TUFT_TRY(file.rewind());
    const std::string sum = sha256.hex();
    TUFT_ASSIGN(const HttpAnswer begun, requests_.send({.operation = "put",
                                                        .method = "POST",
                                                        .key = key_of(name),
                                                        .query = {{"uploads", ""}},
                                                        .headers = {{kShaHeader, sum}}}));
    TUFT_ASSIGN(const std::string id, parse_upload_id(begun.body));
    Status sent = send_parts(name, id, file, measured);
    if (!sent.ok() && sent.error().code == ErrorCode::kNotFound) sent = check_ended(name, sum);
    if (!sent.ok()) (void)abort_upload(key_of(name), id);
    return sent;
  }

  Status send_parts(std::string_view name, const std::string& id, InputFile& file, Measured& measured) {
    const int64_t part_bytes = std::max(settings_.part_bytes, (file.size_bytes() + kPartsMax - 1) / kPartsMax);
    std::string list = "<CompleteMultipartUpload>";
    int number = 0;
    for (int64_t left = file.size_bytes(); left > 0; left -= std::min(left, part_bytes)) {
      TUFT_ASSIGN(const std::string part, file.read(std::min(left, part_bytes)));
      const std::string text = std::to_string(++number);
      TUFT_ASSIGN(const HttpAnswer answer, requests_.send({.operation = "put",
                                                           .method = "PUT",
                                                           .key = key_of(name),
                                                           .query = {{"partNumber", text}, {"uploadId", id}},
                                                           .body = part}));
      measured.transferred(static_cast<int64_t>(part.size()));
      const auto etag = answer.headers.find("etag");
      if (etag == answer.headers.end() || etag->second.find_first_of("<>&") != std::string::npos) {
        return internal_error("the bucket of the server's checkpoints took a part without an ETag", "bucket_refused");
      }
      list += "<Part><PartNumber>" + text + "</PartNumber><ETag>" + etag->second + "</ETag></Part>";
    }
    list += "</CompleteMultipartUpload>";
    TUFT_ASSIGN(
        const HttpAnswer ended,
        requests_.send(
            {.operation = "put", .method = "POST", .key = key_of(name), .query = {{"uploadId", id}}, .body = list}));
    return {};
  }

  // The end of an upload whose answer was lost is refused when it is asked for again.
  Status check_ended(std::string_view name, const std::string& sha256) {
    TUFT_ASSIGN(const Version version, version_of(name));
    if (version.sha256 == sha256) return {};
    return internal_error("the bucket of the server's checkpoints lost an upload", "bucket_refused");
  }

  Status abort_upload(const std::string& key, const std::string& id) {
    Result<HttpAnswer> answer =
        requests_.send({.operation = "delete", .method = "DELETE", .key = key, .query = {{"uploadId", id}}});
    if (!answer.ok() && answer.error().code != ErrorCode::kNotFound) return std::move(answer).error();
    return {};
  }

  Status abort_uploads(std::string_view prefix) {
    std::string key_marker;
    std::string id_marker;
    for (int page = 0; page < kListPagesMax; ++page) {
      std::map<std::string, std::string> query = {
          {"encoding-type", "url"}, {"prefix", key_of(prefix)}, {"uploads", ""}};
      if (!key_marker.empty()) query["key-marker"] = key_marker;
      if (!id_marker.empty()) query["upload-id-marker"] = id_marker;
      TUFT_ASSIGN(const HttpAnswer answer, requests_.send({.operation = "list",
                                                           .method = "GET",
                                                           .key = "",
                                                           .query = query,
                                                           .answer_bytes_max = kListPageBytesMax}));
      TUFT_ASSIGN(const UploadsPage found, parse_uploads(answer.body));
      for (const auto& [key, id] : found.uploads) {
        if (key.starts_with(key_of(prefix))) TUFT_TRY(abort_upload(key, id));
      }
      if (found.next_key.empty()) return {};
      key_marker = found.next_key;
      id_marker = found.next_id;
    }
    return internal_error("the list of the bucket of checkpoints does not end", "bucket_refused");
  }

  Result<Version> version_of(std::string_view name) {
    TUFT_ASSIGN(const HttpAnswer answer, requests_.send({.operation = "get", .method = "HEAD", .key = key_of(name)}));
    const auto header = [&answer](const char* field) {
      const auto found = answer.headers.find(field);
      return found == answer.headers.end() ? std::string() : found->second;
    };
    Version version{-1, header("etag"), header(kShaHeader)};
    try {
      version.size_bytes = std::stoll(header("content-length"));
    } catch (const std::exception&) {
    }
    if (version.size_bytes >= 0 && !version.etag.empty()) return version;
    return internal_error("the bucket of the server's checkpoints does not say the size or the ETag of an object",
                          "bucket_refused");
  }

  Result<std::string> part_of(std::string_view name, const Version& version, int64_t offset, int64_t size_bytes,
                              Measured& measured) {
    if (size_bytes == 0) return std::string();
    const std::string range = "bytes=" + std::to_string(offset) + "-" + std::to_string(offset + size_bytes - 1);
    Result<HttpAnswer> answer = requests_.send({.operation = "get",
                                                .method = "GET",
                                                .key = key_of(name),
                                                .headers = {{"range", range}, {"if-match", version.etag}},
                                                .answer_bytes_max = static_cast<size_t>(size_bytes)});
    if (!answer.ok()) return std::move(answer).error();
    measured.transferred(static_cast<int64_t>(answer->body.size()));
    if (answer->body.size() != static_cast<size_t>(size_bytes)) return damaged();
    return std::move(answer->body);
  }

  Result<std::string> get_whole(std::string_view name, size_t size_bytes_max, Measured& measured) {
    Result<HttpAnswer> answer =
        requests_.send({.operation = "get", .method = "GET", .key = key_of(name), .answer_bytes_max = size_bytes_max});
    if (!answer.ok()) return std::move(answer).error();
    measured.transferred(static_cast<int64_t>(answer->body.size()));
    const auto sum = answer->headers.find(kShaHeader);
    if (sum != answer->headers.end() && sum->second != sha256_hex(answer->body)) return damaged();
    return std::move(answer->body);
  }

  Status get_to(std::string_view name, const std::filesystem::path& path, Measured& measured) {
    TUFT_ASSIGN(const Version version, version_of(name));
    TUFT_ASSIGN(OutputFile file, OutputFile::create(path));
    RunningSha256 sha256;
    for (int64_t offset = 0; offset < version.size_bytes;) {
      const int64_t size = std::min(settings_.part_bytes, version.size_bytes - offset);
      TUFT_ASSIGN(const std::string part, part_of(name, version, offset, size, measured));
      sha256.add(part);
      TUFT_TRY(file.write(part));
      offset += size;
    }
    if (version.sha256 != sha256.hex()) return damaged();
    return file.keep();
  }

  Status list_pages(std::string_view prefix, const std::function<void(Object)>& found) {
    std::string token;
    for (int page = 0; page < kListPagesMax; ++page) {
      std::map<std::string, std::string> query = {
          {"encoding-type", "url"}, {"list-type", "2"}, {"prefix", key_of(prefix)}};
      if (!token.empty()) query["continuation-token"] = token;
      TUFT_ASSIGN(const HttpAnswer answer, requests_.send({.operation = "list",
                                                           .method = "GET",
                                                           .key = "",
                                                           .query = query,
                                                           .answer_bytes_max = kListPageBytesMax}));
      TUFT_ASSIGN(ListPage list, parse_list(answer.body));
      for (Object& object : list.objects) {
        if (!object.name.starts_with(key_of(prefix))) continue;
        object.name.erase(0, settings_.prefix.size());
        found(std::move(object));
      }
      if (list.next.empty()) return {};
      token = std::move(list.next);
    }
    return internal_error("the list of the bucket of checkpoints does not end", "bucket_refused");
  }

  const Settings settings_;
  Requests requests_;
};

}  // namespace

Result<std::unique_ptr<Bucket>> open_s3(const Settings& settings) {
  TUFT_TRY(check(settings));
  return std::unique_ptr<Bucket>(std::make_unique<S3Bucket>(settings));
}

}  // namespace tuft::bucket
