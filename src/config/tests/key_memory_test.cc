// Checks that no API key that was read from a file is left in the memory of the process.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "config/config.h"
#include "config/key_hash.h"
#include "config/tests/model_directory.h"
#include "config/wiped_memory.h"

namespace tuft::config {
namespace {

// Backwards, so that the test itself does not hold the key.
constexpr std::string_view kKeyBackwards = "eb-ton-tsum-yromem-ni-tsuj-yek-siht-lmt";

std::string make_key() {
  return {kKeyBackwards.rbegin(), kKeyBackwards.rend()};
}

// Writes the text byte by byte, with the key in place of "@".
void write_with_key(const std::filesystem::path& path, std::string_view text) {
  const int file = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  const auto put = [file](char c) { ASSERT_EQ(::write(file, &c, 1), 1); };
  for (const char c : text) {
    if (c == '@') {
      std::for_each(kKeyBackwards.rbegin(), kKeyBackwards.rend(), put);
    } else {
      put(c);
    }
  }
  ::close(file);
}

size_t count_keys(std::string_view memory) {
  size_t count = 0;
  for (auto at = memory.begin();; ++at) {
    at = std::search(at, memory.end(), kKeyBackwards.rbegin(), kKeyBackwards.rend());
    if (at == memory.end()) return count;
    ++count;
  }
}

// Returns how often the key is in memory that this process can write.
size_t keys_in_memory() {
  constexpr size_t kPart = 1 << 20;
  const auto buffer = std::make_unique<char[]>(kPart);
  const auto buffer_begin = reinterpret_cast<uintptr_t>(buffer.get());
  const int memory = ::open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  EXPECT_GE(memory, 0);
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" rw") == line.npos) continue;
    char* dash = nullptr;
    uintptr_t at = std::strtoull(line.c_str(), &dash, 16);
    const uintptr_t end = std::strtoull(dash + 1, nullptr, 16);
    while (at < end) {
      // Not the buffer itself, which holds a copy of what was read before.
      if (at >= buffer_begin && at < buffer_begin + kPart) {
        at = buffer_begin + kPart;
        continue;
      }
      const uintptr_t stop = at < buffer_begin && buffer_begin < end ? buffer_begin : end;
      const size_t want = std::min<size_t>(kPart, stop - at);
      const ssize_t got = ::pread(memory, buffer.get(), want, static_cast<off_t>(at));
      if (got <= 0) break;
      count += count_keys({buffer.get(), static_cast<size_t>(got)});
      const bool overlaps = static_cast<size_t>(got) == kPart;
      at += static_cast<size_t>(got) - (overlaps ? kKeyBackwards.size() - 1 : 0);
    }
  }
  ::close(memory);
  explicit_bzero(buffer.get(), kPart);  // a later search would find what this one has copied
  return count;
}

class KeyMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!WipesFreedMemory::is_possible()) GTEST_SKIP() << "a sanitizer has its own memory functions";
  }
  TempDir directory_;
};

TEST_F(KeyMemory, TheSearchFindsAKey) {
  const auto key = std::make_unique<std::string>(make_key());
  EXPECT_GE(keys_in_memory(), 1U);
  // Later tests look for what is left, so this one leaves nothing.
  explicit_bzero(key->data(), key->size());
  EXPECT_EQ(keys_in_memory(), 0U);
}

TEST_F(KeyMemory, NoKeyOfTheConfigurationStays) {
  const auto path = directory_ / "tuft.yaml";
  write_with_key(path, one_model() + "checkpoint_dir: " + (directory_ / "checkpoints").string() +
                           "\nauthorized_users:\n  @: alice\n  \"@-2\": bob\n");
  Overrides overrides;
  overrides.config_path = path.string();
  const Result<Loaded> loaded = load_config(overrides);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->config.authorized_users.size(), 2U);
  EXPECT_EQ(keys_in_memory(), 0U);
}

// Writes the key far below the frame of its caller.
[[gnu::noinline]] void leave_on_stack() {
  char below[32 << 10];
  std::copy(kKeyBackwards.rbegin(), kKeyBackwards.rend(), below);
  asm volatile("" : : "r"(below) : "memory");
}

TEST_F(KeyMemory, NoKeyStaysOnTheStack) {
  {
    const WipesFreedMemory wipes;
    leave_on_stack();
    EXPECT_EQ(keys_in_memory(), 1U);
  }
  EXPECT_EQ(keys_in_memory(), 0U);
}

TEST_F(KeyMemory, NoKeyOfTheUsersFileStays) {
  const auto path = directory_ / "users.yaml";
  write_with_key(path, "# @\n@: alice\n");
  {
    const auto file = read_users_file(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_EQ(file->users.size(), 1U);
    EXPECT_THAT(file->users.begin()->first, ::testing::StartsWith("sha256:"));
  }
  EXPECT_EQ(keys_in_memory(), 0U);
  write_with_key(path, "@: [alice\n");
  EXPECT_FALSE(read_users_file(path).ok());
  EXPECT_EQ(keys_in_memory(), 0U);
}

TEST(KeyHash, AKeptKeyIsAHashThatOpensWithTheKeyOnly) {
  const std::string kept = kept_form_of_key("tml-key");
  EXPECT_EQ(kept, kept_form_of_key("tml-key"));
  EXPECT_EQ(kept, kept_form_of_key(kept)) << "a hash is kept as it is";
  const auto parsed = parse_key_hash(kept);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->hash, hash_of_key(parsed->salt, "tml-key"));
  EXPECT_NE(parsed->hash, hash_of_key(parsed->salt, "tml-kez"));
  for (const char* text : {"sha256:00:11", "sha256::", "tml-key", "", "sha256:0g:"}) EXPECT_FALSE(parse_key_hash(text));
}

}  // namespace
}  // namespace tuft::config
