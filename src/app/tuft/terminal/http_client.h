// HTTP and HTTPS to one server, over one connection that is kept.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "app/tuft/terminal/api.h"
#include "app/tuft/terminal/server.h"
#include "base/clock.h"
#include "base/result.h"

namespace tuft::terminal {

struct ClientOptions {
  Address address;
  std::string key;
  std::filesystem::path ca_file = {};  // PEM; empty: the authorities of the system
  std::string user_agent = "tuft";
  Nanos timeout = 10 * kSecond;  // of one request, with its connection
};

// Used by one thread, except for cancel(). The certificate of the server and its name are verified. Redirects are not
// followed, because the key would go with them.
class HttpClient final : public Api {
 public:
  // Returns kInvalidArgument if `ca_file` cannot be used.
  static Result<std::unique_ptr<HttpClient>> create(ClientOptions options);
  ~HttpClient() override;

  Result<Json> get(const std::string& target) override;

  // Ends a get() that is running, and all that follow, with kCancelled. Thread-safe.
  void cancel();

 private:
  struct Impl;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tuft::terminal
