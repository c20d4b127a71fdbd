#include "control/age/bech32.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tuft::control::age {
namespace {

constexpr std::string_view kAlphabet = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
constexpr size_t kChecksumCharacters = 6;
constexpr size_t kTextMax = 1024;
constexpr uint32_t kGood = 1;

// The remainder of a BCH code over GF(32), a symbol at a time.
class Checksum {
 public:
  void add(unsigned symbol) {
    constexpr std::array<uint32_t, 5> kGenerator = {0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3};
    const uint32_t top = value_ >> 25U;
    value_ = (value_ & 0x1ffffffU) << 5U ^ symbol;
    for (size_t bit = 0; bit < kGenerator.size(); ++bit) {
      if ((top >> bit & 1U) != 0) value_ ^= kGenerator.at(bit);
    }
  }
  uint32_t value() const { return value_; }

 private:
  uint32_t value_ = 1;
};

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}

// Returns the text in lower case; nothing if it has both cases or unprintable characters.
std::optional<std::string> in_lower_case(std::string_view text) {
  std::string lower(text);
  bool has_lower = false;
  bool has_upper = false;
  for (char& c : lower) {
    if (c < 33 || c > 126) return std::nullopt;
    has_lower = has_lower || is_lower(c);
    has_upper = has_upper || is_upper(c);
    if (is_upper(c)) c = static_cast<char>(c - 'A' + 'a');
  }
  if (has_lower && has_upper) return std::nullopt;
  return lower;
}

// Joins groups of five bits to bytes; nothing if the rest is not less than five bits of zeros.
std::optional<std::string> bytes_of(const std::vector<unsigned>& symbols) {
  std::string bytes;
  unsigned bits = 0;
  unsigned count = 0;
  for (const unsigned symbol : symbols) {
    bits = bits << 5U | symbol;
    count += 5;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xffU);
    }
    bits &= (1U << count) - 1U;
  }
  if (count >= 5 || bits != 0) return std::nullopt;
  return bytes;
}

}  // namespace

std::optional<Bech32> decode_bech32(std::string_view text) {
  if (text.size() > kTextMax) return std::nullopt;
  const auto lower = in_lower_case(text);
  if (!lower) return std::nullopt;
  const size_t separator = lower->rfind('1');
  if (separator == std::string::npos || separator == 0) return std::nullopt;
  if (lower->size() - separator - 1 < kChecksumCharacters) return std::nullopt;
  Bech32 decoded{lower->substr(0, separator), {}};
  Checksum checksum;
  for (const char c : decoded.prefix) checksum.add(static_cast<unsigned char>(c) >> 5U);
  checksum.add(0);
  for (const char c : decoded.prefix) checksum.add(static_cast<unsigned char>(c) & 31U);
  std::vector<unsigned> symbols;
  for (const char c : std::string_view(*lower).substr(separator + 1)) {
    const size_t symbol = kAlphabet.find(c);
    if (symbol == std::string_view::npos) return std::nullopt;
    symbols.push_back(static_cast<unsigned>(symbol));
    checksum.add(symbols.back());
  }
  if (checksum.value() != kGood) return std::nullopt;
  symbols.resize(symbols.size() - kChecksumCharacters);
  auto bytes = bytes_of(symbols);
  if (!bytes) return std::nullopt;
  decoded.data = std::move(*bytes);
  return decoded;
}

}  // namespace tuft::control::age
