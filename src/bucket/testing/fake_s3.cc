#include "bucket/testing/fake_s3.h"

#include <algorithm>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/text.h"
#include "bucket/signature.h"

namespace tuft::bucket {
namespace {

constexpr const char* kName = "checkpoints";
const Credentials kKeys = {"fake-id", "fake-secret", ""};

std::string url_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      decoded += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

std::string error_body(const std::string& code) {
  return "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>m</Message></Error>";
}

}  // namespace

struct FakeS3::Request {
  std::string method, path, key;
  std::map<std::string, std::string> query, headers;
  std::string body;
};

struct FakeS3::Answer {
  int status = 200;
  std::string body = {};
  std::map<std::string, std::string> headers = {};
  bool body_is_left_out = false;  // of an answer to HEAD
};

FakeS3::FakeS3() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  TUFT_CHECK(::bind(listener_, generic, size) == 0 && ::listen(listener_, 64) == 0 &&
                 ::getsockname(listener_, generic, &size) == 0,
             "a port of the loopback interface");
  port_ = ntohs(address.sin_port);
  accepting_ = std::thread([this] { accept_connections(); });
}

FakeS3::~FakeS3() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
    for (const auto& [fd, thread] : connections_) ::shutdown(fd, SHUT_RDWR);
  }
  ended_.notify_all();
  ::shutdown(listener_, SHUT_RDWR);
  accepting_.join();
  ::close(listener_);
  std::list<std::pair<int, std::thread>> connections;
  {
    MutexLock lock(mutex_);
    connections.swap(connections_);
  }
  for (auto& [fd, thread] : connections) {
    thread.join();
    ::close(fd);
  }
}

Settings FakeS3::settings() const {
  Settings settings;
  settings.endpoint = "http://127.0.0.1:" + std::to_string(port_);
  settings.name = kName;
  settings.prefix = "p/";
  settings.credentials = kKeys;
  settings.part_bytes = kPartBytesMin;
  settings.timeout = 10 * kSecond;
  return settings;
}

void FakeS3::fail(Fault fault) {
  MutexLock lock(mutex_);
  faults_.push_back(std::move(fault));
}

void FakeS3::heal() {
  MutexLock lock(mutex_);
  faults_.clear();
}

std::map<std::string, std::string> FakeS3::objects() const {
  std::map<std::string, std::string> all;
  MutexLock lock(mutex_);
  for (const auto& [key, object] : objects_) all.emplace(key, object.bytes);
  return all;
}

void FakeS3::tamper(const std::string& key, std::string bytes) {
  MutexLock lock(mutex_);
  objects_[key].bytes = std::move(bytes);
}

void FakeS3::erase(const std::string& key) {
  MutexLock lock(mutex_);
  objects_.erase(key);
}

size_t FakeS3::unfinished_uploads() const {
  MutexLock lock(mutex_);
  return uploads_.size();
}

void FakeS3::accept_connections() {
  while (true) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    MutexLock lock(mutex_);
    if (ends_) {
      ::close(fd);
      return;
    }
    connections_.emplace_back(fd, std::thread([this, fd] { serve(fd); }));
  }
}

void FakeS3::serve(int fd) {
  std::string buffered;
  while (answer_one(fd, buffered)) {
  }
  ::shutdown(fd, SHUT_RDWR);
}

bool FakeS3::take_fault(const Request& request, Fault& fault) {
  MutexLock lock(mutex_);
  for (auto each = faults_.begin(); each != faults_.end(); ++each) {
    if (!each->method.empty() && each->method != request.method) continue;
    if (request.key.find(each->key) == std::string::npos) continue;
    fault = *each;
    if (--each->times == 0) faults_.erase(each);
    return true;
  }
  return false;
}

// Returns false when the connection is to end.
bool FakeS3::answer_one(int fd, std::string& buffered) {
  const auto read_until = [&](auto is_complete) {
    std::array<char, 64 << 10> piece{};
    while (!is_complete()) {
      const ssize_t got = ::recv(fd, piece.data(), piece.size(), 0);
      if (got <= 0) return false;
      buffered.append(piece.data(), static_cast<size_t>(got));
    }
    return true;
  };
  if (!read_until([&] { return buffered.find("\r\n\r\n") != buffered.npos; })) return false;
  const size_t head_size = buffered.find("\r\n\r\n") + 4;
  Request request;
  std::string_view head(buffered.data(), head_size - 2);
  const std::string first(head.substr(0, head.find("\r\n")));
  request.method = first.substr(0, first.find(' '));
  std::string target = first.substr(request.method.size() + 1);
  target = target.substr(0, target.find(' '));
  request.path = url_decoded(target.substr(0, target.find('?')));
  const std::string root = std::string("/") + kName + "/";
  if (request.path.starts_with(root)) request.key = request.path.substr(root.size());
  if (const size_t mark = target.find('?'); mark != target.npos) {
    std::string_view rest = std::string_view(target).substr(mark + 1);
    while (!rest.empty()) {
      const std::string_view pair = rest.substr(0, rest.find('&'));
      const size_t equals = pair.find('=');
      request.query[url_decoded(pair.substr(0, equals))] =
          equals == pair.npos ? "" : url_decoded(pair.substr(equals + 1));
      rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    }
  }
  for (head.remove_prefix(first.size() + 2); !head.empty();) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    const size_t colon = line.find(':');
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    request.headers[name] = trimmed(line.substr(colon + 1));
    head.remove_prefix(std::min(line.size() + 2, head.size()));
  }
  const auto length = request.headers.find("content-length");
  const size_t body_size = length == request.headers.end() ? 0 : std::stoul(length->second);
  if (!read_until([&] { return buffered.size() >= head_size + body_size; })) return false;
  request.body = buffered.substr(head_size, body_size);
  buffered.erase(0, head_size + body_size);
  ++requests_;

  Fault fault;
  const bool fails = take_fault(request, fault);
  if (fails && fault.kind == Fault::Kind::kReset) return false;
  if (fails && fault.kind == Fault::Kind::kHang) {
    MutexLock lock(mutex_);
    while (!ends_) ended_.wait(mutex_);
    return false;
  }
  Answer answer =
      fails && fault.kind == Fault::Kind::kStatus ? Answer{fault.status, error_body(fault.code)} : obey(request);
  if (fails && fault.kind == Fault::Kind::kResetAfterwards) return false;
  if (fails && fault.kind == Fault::Kind::kCorrupt && !answer.body.empty()) answer.body.back() ^= 1;
  std::string text = "HTTP/1.1 " + std::to_string(answer.status) + " x\r\n";
  if (!answer.headers.contains("content-length")) {
    answer.headers["content-length"] = std::to_string(answer.body.size());
  }
  for (const auto& [name, value] : answer.headers) text += name + ": " + value + "\r\n";
  text += "\r\n";
  const bool is_short = fails && fault.kind == Fault::Kind::kShortBody;
  if (!answer.body_is_left_out) text += is_short ? answer.body.substr(0, answer.body.size() / 2) : answer.body;
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t sent = ::send(fd, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    rest.remove_prefix(static_cast<size_t>(sent));
  }
  return !is_short;
}

FakeS3::Answer FakeS3::obey(const Request& request) {
  SignedParts parts;
  parts.method = request.method;
  parts.path = request.path;
  parts.query = request.query;
  const auto header = [&request](const std::string& name) {
    const auto found = request.headers.find(name);
    return found == request.headers.end() ? std::string() : found->second;
  };
  const std::string given = header("authorization");
  const size_t begin = given.find("SignedHeaders=") + 14;
  std::string names = given.substr(begin, given.find(',', begin) - begin) + ";";
  while (!names.empty()) {
    const std::string name = names.substr(0, names.find(';'));
    parts.headers[name] = header(name);
    names.erase(0, name.size() + 1);
  }
  parts.payload_sha256 = header("x-amz-content-sha256");
  if (given != authorization(kKeys, "us-east-1", header("x-amz-date"), parts)) {
    return {403, error_body("SignatureDoesNotMatch")};
  }
  if (parts.payload_sha256 != sha256_hex(request.body)) return {400, error_body("XAmzContentSHA256Mismatch")};

  MutexLock lock(mutex_);
  if (request.query.contains("uploads") || request.query.contains("uploadId")) return obey_upload(request);
  if (request.key.empty()) return list(request);
  if (request.method == "PUT") {
    objects_[request.key] = {request.body, header("x-amz-meta-sha256")};
    return {};
  }
  if (request.method == "DELETE") {
    objects_.erase(request.key);
    return {204};
  }
  return read(request, request.method == "GET");
}

FakeS3::Answer FakeS3::read(const Request& request, bool with_body) {
  const auto found = objects_.find(request.key);
  if (found == objects_.end()) return {404, with_body ? error_body("NoSuchKey") : ""};
  const std::string etag = "\"" + sha256_hex(found->second.bytes) + "\"";
  Answer answer{200, found->second.bytes, {{"etag", etag}}};
  if (!found->second.sha256.empty()) answer.headers["X-Amz-Meta-Sha256"] = found->second.sha256;
  if (!with_body) {
    answer.headers["content-length"] = std::to_string(answer.body.size());
    answer.body_is_left_out = true;
    return answer;
  }
  if (const auto wanted = request.headers.find("if-match"); wanted != request.headers.end() && wanted->second != etag) {
    return {412, error_body("PreconditionFailed")};
  }
  if (const auto range = request.headers.find("range"); range != request.headers.end()) {
    const size_t from = std::stoul(range->second.substr(6));
    const size_t to = std::stoul(range->second.substr(range->second.find('-') + 1));
    answer.status = 206;
    answer.body = answer.body.substr(from, to - from + 1);
  }
  return answer;
}

FakeS3::Answer FakeS3::list(const Request& request) {
  const auto value = [&request](const char* key) {
    const auto found = request.query.find(key);
    return found == request.query.end() ? std::string() : found->second;
  };
  std::string xml = "<?xml version=\"1.0\"?><ListBucketResult><EncodingType>url</EncodingType>";
  int count = 0;
  for (const auto& [key, object] : objects_) {
    if (!key.starts_with(value("prefix")) || key <= value("continuation-token")) continue;
    if (count == page_size_) {
      xml.insert(xml.find("<EncodingType>"), "<IsTruncated>true</IsTruncated>");
      break;
    }
    ++count;
    xml += "<Contents><Key>" + uri_encoded(key, true) + "</Key><Size>" + std::to_string(object.bytes.size()) +
           "</Size></Contents><NextContinuationToken>" + key + "</NextContinuationToken>";
  }
  // Only the last token counts.
  while (true) {
    const size_t first = xml.find("<NextContinuationToken>");
    if (first == xml.npos || xml.find("<NextContinuationToken>", first + 1) == xml.npos) break;
    xml.erase(first, xml.find("</NextContinuationToken>") + 24 - first);
  }
  return {200, xml + "</ListBucketResult>"};
}

FakeS3::Answer FakeS3::obey_upload(const Request& request) {
  if (request.key.empty()) {
    std::string xml = "<ListMultipartUploadsResult><EncodingType>url</EncodingType>";
    for (const auto& [id, upload] : uploads_) {
      xml += "<Upload><Key>" + uri_encoded(upload.key, true) + "</Key><UploadId>" + id + "</UploadId></Upload>";
    }
    return {200, xml + "</ListMultipartUploadsResult>"};
  }
  if (request.query.contains("uploads")) {
    const std::string id = "upload-" + std::to_string(++last_upload_);
    const auto sum = request.headers.find("x-amz-meta-sha256");
    uploads_[id] = {request.key, sum == request.headers.end() ? "" : sum->second, {}};
    return {200, "<InitiateMultipartUploadResult><UploadId>" + id + "</UploadId></InitiateMultipartUploadResult>"};
  }
  const auto upload = uploads_.find(request.query.at("uploadId"));
  if (upload == uploads_.end()) return {404, error_body("NoSuchUpload")};
  if (request.method == "DELETE") {
    uploads_.erase(upload);
    return {204};
  }
  if (request.method == "PUT") {
    upload->second.parts[std::stoi(request.query.at("partNumber"))] = request.body;
    return {200, "", {{"ETag", "\"" + sha256_hex(request.body) + "\""}}};
  }
  Object object{"", upload->second.sha256};
  for (const auto& [number, part] : upload->second.parts) {
    if (request.body.find(sha256_hex(part)) == std::string::npos) return {400, error_body("InvalidPart")};
    object.bytes += part;
  }
  objects_[upload->second.key] = std::move(object);
  uploads_.erase(upload);
  return {200, "<CompleteMultipartUploadResult/>"};
}

}  // namespace tuft::bucket
