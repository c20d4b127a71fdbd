#include "join/digest.h"

#include <openssl/sha.h>

#include "base/file.h"
#include "base/text.h"

namespace tuft::join {
namespace {

constexpr size_t kConfigBytesMax = 1 << 20;

}  // namespace

Sha256 sha256(std::string_view text) {
  Sha256 digest{};
  ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

Result<std::string> config_sha256(const std::filesystem::path& model_directory) {
  TUFT_ASSIGN(const std::string text, read_file(model_directory / "config.json", kConfigBytesMax));
  const Sha256 digest = sha256(text);
  std::string hex;
  append_hex(hex, {reinterpret_cast<const char*>(digest.data()), digest.size()});
  return hex;
}

}  // namespace tuft::join
