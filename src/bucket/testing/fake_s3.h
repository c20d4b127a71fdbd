// An S3 server for tests, in this process: what the client of this module uses of S3, in memory, and faults on demand.
// It checks the signature and the checksum of each request.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "bucket/settings.h"

namespace tuft::bucket {

// What happens to the next `times` requests with this method whose key contains `key`; empty: any.
struct Fault {
  enum class Kind : uint8_t {
    kStatus,           // is refused with `status` and `code`
    kReset,            // the connection ends without an answer
    kResetAfterwards,  // the request is obeyed, and the connection ends without an answer
    kShortBody,        // the connection ends in the middle of the answer's body
    kCorrupt,          // a byte of the answer's body is another one
    kHang,             // no answer until the server ends
  };
  Kind kind = Kind::kStatus;
  int status = 503;
  std::string code = "SlowDown";
  int times = 1;
  std::string method = {};
  std::string key = {};
};

// Thread-safe. Listens on a port of the loopback interface from its construction to its end.
class FakeS3 {
 public:
  FakeS3();
  ~FakeS3();
  FakeS3(const FakeS3&) = delete;
  FakeS3& operator=(const FakeS3&) = delete;

  // Of its only bucket, with parts of 5 MiB, a short timeout, and the prefix "p/".
  Settings settings() const;

  void fail(Fault fault) TUFT_EXCLUDES(mutex_);
  void heal() TUFT_EXCLUDES(mutex_);  // forgets all faults

  // The objects by their keys, which begin with the prefix.
  std::map<std::string, std::string> objects() const TUFT_EXCLUDES(mutex_);
  // Changes the bytes of an object, and not its metadata.
  void tamper(const std::string& key, std::string bytes) TUFT_EXCLUDES(mutex_);
  void erase(const std::string& key) TUFT_EXCLUDES(mutex_);
  size_t unfinished_uploads() const TUFT_EXCLUDES(mutex_);
  int requests() const { return requests_; }
  void set_page_size(int keys) { page_size_ = keys; }

 private:
  struct Object {
    std::string bytes, sha256;
  };
  struct Upload {
    std::string key, sha256;
    std::map<int, std::string> parts;
  };
  struct Request;
  struct Answer;

  void accept_connections();
  void serve(int fd);
  bool answer_one(int fd, std::string& buffered);
  Answer obey(const Request& request) TUFT_EXCLUDES(mutex_);
  Answer obey_upload(const Request& request) TUFT_REQUIRES(mutex_);
  Answer list(const Request& request) TUFT_REQUIRES(mutex_);
  Answer read(const Request& request, bool with_body) TUFT_REQUIRES(mutex_);
  bool take_fault(const Request& request, Fault& fault) TUFT_EXCLUDES(mutex_);

  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> requests_{0};
  std::atomic<int> page_size_{1000};
  mutable Mutex mutex_;
  CondVar ended_;
  bool ends_ TUFT_GUARDED_BY(mutex_) = false;
  std::list<Fault> faults_ TUFT_GUARDED_BY(mutex_);
  std::map<std::string, Object> objects_ TUFT_GUARDED_BY(mutex_);
  std::map<std::string, Upload> uploads_ TUFT_GUARDED_BY(mutex_);
  int last_upload_ TUFT_GUARDED_BY(mutex_) = 0;
  std::list<std::pair<int, std::thread>> connections_ TUFT_GUARDED_BY(mutex_);
  std::thread accepting_;
};

}  // namespace tuft::bucket
