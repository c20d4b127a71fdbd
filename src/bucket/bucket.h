// A bucket of an S3-compatible object store, in which a server and its workers keep checkpoints.
//
// The module bucket/ is a small client of the S3 REST API: it signs requests (signature.h), sends them with libcurl
// (connection.h), and tries again what can succeed later (requests.h). An object is put completely or not at all, and
// its SHA-256 is kept in its metadata, so that a get never returns damaged bytes.
//
// Errors, whose messages a client may read (no endpoint, bucket, key or credential is in them; the log event
// bucket.failed has more):
//   kUnavailable "bucket_unavailable"  the store did not answer, or answered that it is busy, within settings.timeout
//   kResourceExhausted "disk_full"     the store or the bucket's quota is full
//   kNotFound "object_missing"         there is no such object
//   kDataLoss "object_damaged"         an object is not what was put
//   kInternal "bucket_access"          the credentials are refused, or the bucket does not exist
//   kInternal "bucket_refused"         any other refusal
//   kCancelled "bucket_cancelled"      after cancel()
//
// Each call makes a span (bucket.put, bucket.get, bucket.list, bucket.delete) below the current context, and records
// metrics::bucket().
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "bucket/settings.h"

namespace tuft::bucket {

// Names of objects are relative to settings.prefix. They are UTF-8 without control characters.
//
// Thread-safe. Calls block for as long as the transfer takes; each request of it, with its repetitions, takes at most
// settings.timeout.
class Bucket {
 public:
  struct Object {
    std::string name;
    int64_t size_bytes = 0;
  };
  // One version of an object.
  struct Version {
    int64_t size_bytes = 0;
    std::string etag;
    std::string sha256;  // in hexadecimal; empty: another program has put the object
  };

  virtual ~Bucket() = default;

  // Puts an object, or replaces it. When a call fails with kUnavailable, the object may have been put all the same.
  virtual Status put(std::string_view name, std::string_view bytes) = 0;
  // The same for a file. One of more than settings.part_bytes is sent in parts; they are removed if the call fails.
  virtual Status put_file(std::string_view name, const std::filesystem::path& file) = 0;

  // Returns a whole object. kPayloadTooLarge above `size_bytes_max`.
  virtual Result<std::string> get(std::string_view name, size_t size_bytes_max) = 0;
  // Writes an object to the new file `file`, which is removed if the call fails.
  virtual Status get_file(std::string_view name, const std::filesystem::path& file) = 0;
  virtual Result<Version> head(std::string_view name) = 0;
  // Returns `size_bytes` bytes of an object; kDataLoss if it is not `version` any more. The bytes are not checked
  // against version.sha256: a caller who reads all of them can do that.
  virtual Result<std::string> get_part(std::string_view name, const Version& version, int64_t offset,
                                       int64_t size_bytes) = 0;

  // Calls `found` for each object whose name begins with `prefix`, in the order of their names.
  virtual Status list(std::string_view prefix, const std::function<void(Object)>& found) = 0;
  // Succeeds if there is no such object.
  virtual Status remove(std::string_view name) = 0;
  // Removes the parts that interrupted calls of put_file() left, of all objects whose names begin with `prefix`. A call
  // that is still running fails then.
  virtual Status remove_unfinished(std::string_view prefix) = 0;

  // Makes calls that still run after `grace`, and all later ones, fail with kCancelled within about a second.
  virtual void cancel(Nanos grace) = 0;
};

// Makes no request. Returns kInvalidArgument if the settings cannot be used.
Result<std::unique_ptr<Bucket>> open_s3(const Settings& settings);

}  // namespace tuft::bucket
