// Bech32, the encoding of age's recipients (BIP 173, without its limit of 90 characters).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tuft::control::age {

struct Bech32 {
  std::string prefix;  // in lower case
  std::string data;    // bytes
};

// Returns nothing unless the checksum is right, the characters are in one case, and the last bits are padding of zeros.
std::optional<Bech32> decode_bech32(std::string_view text);

}  // namespace tuft::control::age
