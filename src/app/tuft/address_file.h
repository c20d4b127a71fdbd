// The file $TUFT_HOME/tuft_current_server, in which local clients find the address of the running server.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace tuft::app {

// The file holds "http://host:port" from write() until remove() or destruction, unless another server has overwritten
// it.
class AddressFile {
 public:
  explicit AddressFile(std::filesystem::path path) : path_(std::move(path)) {}
  ~AddressFile();
  AddressFile(const AddressFile&) = delete;
  AddressFile& operator=(const AddressFile&) = delete;

  // Also removes what servers that were killed while they wrote it left beside it.
  Status write(const std::string& address);
  void remove();

 private:
  std::filesystem::path path_;
  std::string address_;
};

// Returns, for instance, "http://127.0.0.1:10610" or "http://[::1]:10610".
std::string http_address(const std::string& host, uint16_t port, bool is_tls = false);

}  // namespace tuft::app
