// $TUFT_HOME/tuft_current_server: where local clients find the running server.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace tuft::app {

// Holds "http://host:port" from write() until it is destroyed, unless another server has written its own since.
class AddressFile {
 public:
  explicit AddressFile(std::filesystem::path path) : path_(std::move(path)) {}
  ~AddressFile();
  AddressFile(const AddressFile&) = delete;
  AddressFile& operator=(const AddressFile&) = delete;

  Status write(const std::string& address);
  void remove();

 private:
  std::filesystem::path path_;
  std::string address_;
};

// "http://127.0.0.1:10610", "http://[::1]:10610".
std::string http_address(const std::string& host, uint16_t port, bool is_tls = false);

}  // namespace tuft::app
