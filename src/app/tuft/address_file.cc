#include "app/tuft/address_file.h"

#include <cstdint>
#include <system_error>
#include <utility>

#include "base/file.h"

namespace tuft::app {

AddressFile::~AddressFile() {
  remove();
}

Status AddressFile::write(const std::string& address) {
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  remove_unfinished_writes(path_);
  TUFT_TRY(write_file_atomically(path_, address));
  address_ = address;
  return {};
}

void AddressFile::remove() {
  if (address_.empty()) return;
  const std::string address = std::exchange(address_, {});
  const Result<std::string> current = read_file(path_, 4096);
  std::error_code ignored;
  if (current.ok() && *current == address) std::filesystem::remove(path_, ignored);
}

std::string http_address(const std::string& host, uint16_t port, bool is_tls) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return (is_tls ? "https://" : "http://") + (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace tuft::app
