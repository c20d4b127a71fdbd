// Tests of the encryption with age, against its published form and with an independent decryption.
#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/base64.h"
#include "base/testing/temp_dir.h"
#include "control/age/bech32.h"
#include "control/age/encryption.h"
#include "control/age/sealed_files.h"

namespace tuft::control::age {
namespace {

constexpr const char* kRecipient = "age1pwgd5aztyfdygx9mnmxs9amp7uycfrj4k7tzsgwd5q8ccq3j0d4s6wy6mu";
constexpr const char* kIdentity = "AGE-SECRET-KEY-10EJNZZXEVFQZXM0WSCL8DDTSUUY5GUZC0WLGVDZQ8DJRHN0TE3XSZ3F6X0";

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

const unsigned char* data_of(const std::string& bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

// ---- a decryption that shares nothing with the code under test

std::string hkdf(const std::string& secret, const std::string& salt, const std::string& info) {
  unsigned char first[32];
  unsigned char second[32];
  HMAC(EVP_sha256(), salt.data(), static_cast<int>(salt.size()), data_of(secret), secret.size(), first, nullptr);
  const std::string text = info + '\x01';
  HMAC(EVP_sha256(), first, sizeof first, data_of(text), text.size(), second, nullptr);
  return {reinterpret_cast<const char*>(second), sizeof second};
}

std::optional<std::string> open(const std::string& key, const std::string& nonce, const std::string& sealed) {
  if (sealed.size() < 16) return std::nullopt;
  const std::string tag = sealed.substr(sealed.size() - 16);
  std::string plain(sealed.size() - 16, '\0');
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  int length = 0;
  int rest = 0;
  auto* out = reinterpret_cast<unsigned char*>(plain.data());
  EVP_DecryptInit_ex(context, EVP_chacha20_poly1305(), nullptr, data_of(key), data_of(nonce));
  EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, 16, const_cast<char*>(tag.data()));
  EVP_DecryptUpdate(context, out, &length, data_of(sealed), static_cast<int>(plain.size()));
  const bool good = EVP_DecryptFinal_ex(context, out + length, &rest) == 1;
  EVP_CIPHER_CTX_free(context);
  return good ? std::optional(plain) : std::nullopt;
}

std::string x25519(const std::string& secret, const std::string& other) {
  EVP_PKEY* own = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, data_of(secret), 32);
  EVP_PKEY* peer = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, data_of(other), 32);
  EVP_PKEY_CTX* context = EVP_PKEY_CTX_new(own, nullptr);
  std::string shared(32, '\0');
  size_t length = shared.size();
  EVP_PKEY_derive_init(context);
  EVP_PKEY_derive_set_peer(context, peer);
  EVP_PKEY_derive(context, reinterpret_cast<unsigned char*>(shared.data()), &length);
  EVP_PKEY_CTX_free(context);
  EVP_PKEY_free(peer);
  EVP_PKEY_free(own);
  return shared;
}

std::string from_unpadded(std::string text) {
  while (text.size() % 4 != 0) text += '=';
  return from_base64(text).value_or("");
}

// Returns nothing if the identity opens no stanza, or anything was changed.
std::optional<std::string> decrypt(const std::string& file, const std::string& secret, const std::string& recipient) {
  std::istringstream lines(file);
  std::string line;
  std::getline(lines, line);
  if (line != "age-encryption.org/v1") return std::nullopt;
  std::optional<std::string> file_key;
  while (std::getline(lines, line) && line.starts_with("-> X25519 ")) {
    const std::string share = from_unpadded(line.substr(10));
    std::string body;
    std::getline(lines, body);
    const std::string key = hkdf(x25519(secret, share), share + recipient, "age-encryption.org/v1/X25519");
    if (!file_key) file_key = open(key, std::string(12, '\0'), from_unpadded(body));
  }
  if (!file_key || !line.starts_with("--- ")) return std::nullopt;
  const auto payload = static_cast<size_t>(lines.tellg());
  const std::string covered = file.substr(0, payload - line.size() - 1 + 3);
  const std::string mac_key = hkdf(*file_key, "", "header");
  unsigned char mac[32];
  HMAC(EVP_sha256(), mac_key.data(), 32, data_of(covered), covered.size(), mac, nullptr);
  if (from_unpadded(line.substr(4)) != std::string(reinterpret_cast<char*>(mac), 32)) return std::nullopt;
  const std::string key = hkdf(*file_key, file.substr(payload, 16), "payload");
  std::string plain;
  constexpr size_t kSealed = kChunkBytes + 16;
  uint64_t number = 0;
  for (size_t at = payload + 16; at < file.size(); at += kSealed) {
    const std::string chunk = file.substr(at, kSealed);
    std::string nonce(12, '\0');
    for (size_t i = 0; i < 4; ++i) nonce[10 - i] = static_cast<char>(number >> 8 * i & 0xff);
    nonce[11] = at + kSealed >= file.size() ? 1 : 0;
    ++number;
    const auto part = open(key, nonce, chunk);
    if (!part) return std::nullopt;
    plain += *part;
  }
  return plain;
}

const std::string& identity() {
  static const std::string key = decode_bech32(kIdentity)->data;
  return key;
}
const std::string& recipient_key() {
  static const std::string key = decode_bech32(kRecipient)->data;
  return key;
}

// ---- tests

TEST(Bech32Text, GoodOnesAreReadInBothCases) {
  EXPECT_EQ(decode_bech32("A12UEL5L")->prefix, "a");
  EXPECT_EQ(decode_bech32("a12uel5l")->data, "");
  EXPECT_EQ(decode_bech32("split1checkupstagehandshakeupstreamerranterredcaperred2y9e3w")->prefix, "split");
  EXPECT_EQ(decode_bech32(kRecipient)->data.size(), 32U);
  EXPECT_EQ(decode_bech32(kIdentity)->prefix, "age-secret-key-");
}

TEST(Bech32Text, DamagedOnesAreNot) {
  for (const char* bad :
       {"", "1", "a1", "a12uel5", "A12uEL5L", "A1G7SGD8", "a12uel5m", "10a06t8", "1qzzfhee", "x1b4n0q5v", "li1dgmt3",
        "\x20"
        "1nwldj5",
        "age1", "split1cheo2y9e2w"}) {
    EXPECT_FALSE(decode_bech32(bad)) << bad;
  }
  const std::string good = kRecipient;
  for (size_t i = 0; i < good.size(); ++i) {
    std::string changed = good;
    changed[i] = changed[i] == 'q' ? 'p' : 'q';
    EXPECT_FALSE(decode_bech32(changed)) << i;
  }
  EXPECT_FALSE(decode_bech32(std::string(5000, 'a')));
}

TEST(AgeRecipients, OthersThanX25519AreRefusedByName) {
  EXPECT_TRUE(parse_recipient(kRecipient).ok());
  const auto reason = [](const std::string& text) { return parse_recipient(text).error().message; };
  EXPECT_NE(reason("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ me@host").find("SSH"), std::string::npos);
  EXPECT_NE(reason("ssh-rsa AAAA").find("SSH"), std::string::npos);
  EXPECT_NE(reason(kIdentity).find("secret"), std::string::npos);
  EXPECT_EQ(reason(kIdentity).find("10EJN"), std::string::npos);
  EXPECT_NE(reason("age1xyz").find("checksum"), std::string::npos);
  EXPECT_NE(reason("a12uel5l").find("other kinds"), std::string::npos);
  EXPECT_EQ(parse_recipients({}).error().reason, "invalid_age_recipient");
  EXPECT_TRUE(parse_recipients(std::vector<std::string>(10, kRecipient)).ok());
  EXPECT_FALSE(parse_recipients(std::vector<std::string>(11, kRecipient)).ok());
  EXPECT_NE(parse_recipients({kRecipient, "ssh-rsa A"}).error().message.find("[1]"), std::string::npos);
}

// The identity element of the curve: every shared secret with it is zero.
TEST(AgeRecipients, AKeyOfSmallOrderIsRefused) {
  const auto refused = parse_recipient("age1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq5cu47z");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "invalid_age_recipient");
}

TEST(AgeFile, TheDeterministicVectorIsReproduced) {
  Secrets secrets;
  secrets.ephemeral.resize(1);
  for (size_t i = 0; i < 32; ++i) secrets.ephemeral[0][i] = static_cast<unsigned char>(i);
  auto encryption = Encryption::begin({*parse_recipient(kRecipient)}, secrets);
  ASSERT_TRUE(encryption.ok()) << encryption.error().message;
  const std::string file = encryption->header() + *encryption->seal("hi", true);
  EXPECT_EQ(file,
            from_hex("6167652d656e6372797074696f6e2e6f72672f76310a2d3e20583235353139206a304446726261504a574a4b35624955"
                     "366e5a3662736c4e677030396531346130627076506945344b46380a703530636d63397a44615136513975424c5a2f37"
                     "524a7770526d5977766c506c622b7571344e67752b69380a2d2d2d2057745564556e6654384f353454686f615a354868"
                     "387169754a48375649383346346a346e42706448424c510a000000000000000000000000000000003"
                     "2ebef88076fcc0c034c8543740c20f55099"));
  EXPECT_EQ(decrypt(file, identity(), recipient_key()), "hi");
}

TEST(AgeFile, EachRecipientDecryptsAndNobodyElse) {
  std::vector<Recipient> recipients(3, *parse_recipient(kRecipient));
  const Secrets others = Secrets::draw(2);
  for (size_t i = 0; i < 2; ++i) {
    EVP_PKEY* key = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, others.ephemeral[i].data(), 32);
    size_t length = 32;
    EVP_PKEY_get_raw_public_key(key, recipients[i].key.data(), &length);
    EVP_PKEY_free(key);
  }
  auto encryption = Encryption::begin(recipients, Secrets::draw(3));
  ASSERT_TRUE(encryption.ok());
  std::string file = encryption->header() + *encryption->seal("secret", true);
  const auto text = [](const Key& key) { return std::string(reinterpret_cast<const char*>(key.data()), 32); };
  EXPECT_EQ(decrypt(file, identity(), recipient_key()), "secret");
  EXPECT_EQ(decrypt(file, text(others.ephemeral[0]), text(recipients[0].key)), "secret");
  EXPECT_EQ(decrypt(file, text(others.ephemeral[1]), text(recipients[1].key)), "secret");
  EXPECT_FALSE(decrypt(file, std::string(32, 'x'), text(recipients[1].key)));
  file[file.size() - 20] ^= 1;
  EXPECT_FALSE(decrypt(file, identity(), recipient_key()));
}

class Sealing : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) {
    std::ofstream(directory_.path() / name, std::ios::binary) << content;
  }
  std::string read(const std::string& name) {
    std::ifstream file(directory_.path() / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool exists(const std::string& name) { return std::filesystem::exists(directory_.path() / name); }
  // Returns the number of steps; 0: it failed.
  int seal(std::vector<std::string> names) {
    SealedFiles files(directory_.path(), std::move(names), {*parse_recipient(kRecipient)});
    for (int steps = 1;; ++steps) {
      const auto done = files.advance();
      growth = files.growth();
      if (!done.ok()) return 0;
      if (*done) return steps;
    }
  }
  int64_t growth = 0;
  TempDir directory_;
};

TEST_F(Sealing, FilesOfEveryLengthAreReplaced) {
  for (const size_t size : {size_t{0}, size_t{1}, kChunkBytes - 1, kChunkBytes, kChunkBytes + 1, 3 * kChunkBytes}) {
    std::string content(size, '\0');
    for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 31 >> 3);
    write("x", content);
    ASSERT_EQ(seal({"x"}), 1) << size;
    EXPECT_FALSE(exists("x"));
    const std::string sealed = read("x.age");
    EXPECT_EQ(decrypt(sealed, identity(), recipient_key()), content) << size;
    EXPECT_EQ(static_cast<int64_t>(sealed.size() - size), growth);
    std::filesystem::remove(directory_.path() / "x.age");
  }
}

TEST_F(Sealing, LongFilesTakeSteps) {
  const std::string content(9 << 20, 'w');
  write("long", content);
  write("short", "s");
  EXPECT_EQ(seal({"short", "long"}), 4);
  EXPECT_EQ(decrypt(read("long.age"), identity(), recipient_key()), content);
  EXPECT_EQ(decrypt(read("short.age"), identity(), recipient_key()), "s");
}

TEST_F(Sealing, TwoFilesHaveDifferentKeys) {
  write("a", "same");
  write("b", "same");
  ASSERT_GT(seal({"a", "b"}), 0);
  EXPECT_NE(read("a.age").substr(0, 200), read("b.age").substr(0, 200));
}

TEST_F(Sealing, AMissingFileAndOneInTheWayAreErrors) {
  EXPECT_EQ(seal({"nothing"}), 0);
  write("y", "content");
  write("y.age", "in the way");
  EXPECT_EQ(seal({"y"}), 0);
  EXPECT_EQ(read("y"), "content");
}

}  // namespace
}  // namespace tuft::control::age
