#include "store/testing/contract_test.h"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace tuft::store {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreContract);

void StoreContract::SetUp() {
  if (const std::string why = GetParam().why_skipped(); !why.empty()) GTEST_SKIP() << why;
  storage_ = GetParam().make_storage();
  reopen();
}

void StoreContract::reopen() {
  store_.reset();
  auto opened = storage_->open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  store_ = std::move(*opened);
}

Status StoreContract::put(const std::string& key, const std::string& value) {
  return write_and_wait(store(), {.changes = {{key, value}}});
}

std::string StoreContract::get(const std::string& key) {
  const auto found = get_and_wait(store(), key);
  EXPECT_TRUE(found.ok()) << found.error().message;
  return found.ok() && *found ? **found : "<none>";
}

TEST_P(StoreContract, ReadsWhatWasWritten) {
  EXPECT_EQ(get("absent"), "<none>");
  ASSERT_TRUE(put("a", "1").ok());
  EXPECT_EQ(get("a"), "1");
  ASSERT_TRUE(put("a", "2").ok());
  EXPECT_EQ(get("a"), "2");
  ASSERT_TRUE(write_and_wait(store(), {.changes = {{"a", std::nullopt}, {"never", std::nullopt}}}).ok());
  EXPECT_EQ(get("a"), "<none>");
}

TEST_P(StoreContract, ValuesAreAnyBytes) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  ASSERT_TRUE(put("bytes", bytes).ok());
  EXPECT_EQ(get("bytes"), bytes);
  ASSERT_TRUE(put("empty", "").ok());
  EXPECT_EQ(get("empty"), "");
  const std::string large(5 << 20, 'x');
  ASSERT_TRUE(put("large", large).ok());
  EXPECT_EQ(get("large"), large);
}

TEST_P(StoreContract, ScanReturnsThePrefixSorted) {
  for (const char* key : {"ns::run::b", "ns::run::a", "ns::runs", "ns2::run::c", "ns::run::[*?]", "ns::ru*::x"}) {
    ASSERT_TRUE(put(key, std::string("of ") + key).ok());
  }
  const auto found = scan_and_wait(store(), {"ns::run::"});
  ASSERT_TRUE(found.ok()) << found.error().message;
  std::vector<std::string> keys;
  for (const Entry& entry : *found) {
    keys.push_back(entry.key);
    EXPECT_EQ(entry.value, "of " + entry.key);
  }
  EXPECT_EQ(keys, (std::vector<std::string>{"ns::run::[*?]", "ns::run::a", "ns::run::b"}));
  // These characters are special in the patterns of some stores, but not here.
  const auto star = scan_and_wait(store(), {"ns::ru*"});
  ASSERT_TRUE(star.ok());
  ASSERT_EQ(star->size(), 1U);
  EXPECT_TRUE(scan_and_wait(store(), {"nothing"})->empty());
  const auto several = scan_and_wait(store(), {"ns::run::", "ns2::", "ns::ru*", "nothing"});
  ASSERT_TRUE(several.ok());
  keys.clear();
  for (const Entry& entry : *several) keys.push_back(entry.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"ns2::run::c", "ns::ru*::x", "ns::run::[*?]", "ns::run::a", "ns::run::b"}));
}

TEST_P(StoreContract, KeysAreScannedWithoutValues) {
  for (const char* key : {"ns::b", "ns::a", "other"}) ASSERT_TRUE(put(key, std::string(1 << 20, 'x')).ok());
  ASSERT_TRUE(write_and_wait(store(), {.changes = {{"ns::short", "1", kMillisecond}}}).ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (get("ns::short") != "<none>" && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  const auto found = scan_keys_and_wait(store(), "ns::");
  ASSERT_TRUE(found.ok()) << found.error().message;
  std::vector<std::string> keys;
  for (const Entry& entry : *found) {
    keys.push_back(entry.key);
    EXPECT_EQ(entry.value, "");
  }
  EXPECT_EQ(keys, (std::vector<std::string>{"ns::a", "ns::b"}));
}

TEST_P(StoreContract, ScanReturnsEachOfManyEntriesOnce) {
  Write write;
  for (int i = 0; i < 3000; ++i) write.changes.push_back({"many::" + std::to_string(i), std::to_string(i)});
  ASSERT_TRUE(write_and_wait(store(), write).ok());
  const auto found = scan_and_wait(store(), {"many::"});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->size(), 3000U);
}

TEST_P(StoreContract, AcknowledgedWritesSurviveReopening) {
  ASSERT_TRUE(write_and_wait(store(), {.changes = {{"kept", "1"}, {"gone", "1"}}}).ok());
  ASSERT_TRUE(write_and_wait(store(), {.changes = {{"gone", std::nullopt}}}).ok());
  reopen();
  EXPECT_EQ(get("kept"), "1");
  EXPECT_EQ(get("gone"), "<none>");
}

TEST_P(StoreContract, EntriesExpire) {
  ASSERT_TRUE(write_and_wait(store(), {.changes = {{"short", "1", kMillisecond}, {"long", "1", 3600 * kSecond}}}).ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (get("short") != "<none>" && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(get("short"), "<none>");
  EXPECT_EQ(get("long"), "1");
  EXPECT_TRUE(scan_and_wait(store(), {"short"})->empty());
  // A write without a time to live removes the previous one.
  ASSERT_TRUE(write_and_wait(store(), {.changes = {{"stays", "1", 50 * kMillisecond}}}).ok());
  ASSERT_TRUE(put("stays", "2").ok());
  ASSERT_TRUE(write_and_wait(store(), {.changes = {{"clock", "1", 60 * kMillisecond}}}).ok());
  while (get("clock") != "<none>" && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(get("stays"), "2");
}

TEST_P(StoreContract, WritesTakeEffectInTheOrderOfTheCalls) {
  constexpr int kWrites = 2000;
  Mutex mutex;
  std::vector<int> order;
  std::promise<void> all;
  for (int i = 0; i < kWrites; ++i) {
    const Status accepted = store().write({.changes = {{"last", std::to_string(i)}}}, [&, i](const Status& written) {
      EXPECT_TRUE(written.ok());
      bool complete = false;
      {
        MutexLock lock(mutex);
        order.push_back(i);
        complete = order.size() == kWrites;
      }
      if (complete) all.set_value();
    });
    ASSERT_TRUE(accepted.ok());
  }
  all.get_future().wait();
  EXPECT_EQ(get("last"), std::to_string(kWrites - 1));
  MutexLock lock(mutex);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_P(StoreContract, WritesAreAtomicForReaders) {
  std::atomic<bool> stop = false;
  ASSERT_TRUE(write_and_wait(store(), {.changes = {{"pair::a", "0"}, {"pair::b", "0"}}}).ok());
  std::thread writer([&] {
    for (int i = 1; !stop; ++i) {
      const std::string value = std::to_string(i);
      EXPECT_TRUE(write_and_wait(store(), {.changes = {{"pair::a", value}, {"pair::b", value}}}).ok());
    }
  });
  for (int i = 0; i < 100; ++i) {
    const auto found = scan_and_wait(store(), {"pair::"});
    ASSERT_TRUE(found.ok());
    ASSERT_EQ(found->size(), 2U);
    EXPECT_EQ((*found)[0].value, (*found)[1].value);
  }
  stop = true;
  writer.join();
}

TEST_P(StoreContract, ManyThreadsMayUseIt) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string key = "thread::" + std::to_string(t) + "::" + std::to_string(i);
        EXPECT_TRUE(put(key, key).ok());
        EXPECT_EQ(get(key), key);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(scan_and_wait(store(), {"thread::"})->size(), 400U);
}

TEST_P(StoreContract, WrongKeysAreRefused) {
  EXPECT_EQ(put("", "1").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(put(std::string(kKeyBytesMax + 1, 'k'), "1").error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(put(std::string(kKeyBytesMax, 'k'), "1").ok());
  EXPECT_TRUE(store().health().ok());
}

TEST_P(StoreContract, CloseAnswersQueuedCallsAndRefusesNewOnes) {
  std::atomic<int> answered = 0;
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(store().write({.changes = {{"k" + std::to_string(i), "v"}}}, [&](const Status&) { ++answered; }).ok());
  }
  store().close(5 * kSecond);
  EXPECT_EQ(answered, 500);
  EXPECT_EQ(put("late", "1").error().reason, "store_closed");
  reopen();
  EXPECT_EQ(get("k499"), "v");
}

}  // namespace tuft::store
