#include "bucket/bucket.h"

#include <atomic>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/testing/temp_dir.h"
#include "bucket/answers.h"
#include "bucket/testing/fake_s3.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::bucket {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

std::string bytes_of(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 2654435761U >> 13);
  return bytes;
}

class BucketTest : public ::testing::Test {
 protected:
  std::unique_ptr<Bucket> open(Nanos timeout = 10 * kSecond) {
    Settings settings = server_.settings();
    settings.timeout = timeout;
    auto bucket = open_s3(settings);
    TUFT_CHECK(bucket.ok(), "the settings are usable");
    return std::move(bucket).value();
  }

  std::filesystem::path file_with(const std::string& bytes) {
    const auto path = folder_.path() / ("file-" + std::to_string(++files_));
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  std::string content_of(const std::filesystem::path& path) { return read_file(path, 100 << 20).value(); }

  FakeS3 server_;
  TempDir folder_;
  int files_ = 0;
  std::unique_ptr<Bucket> bucket_ = open();
};

TEST_F(BucketTest, WhatIsPutIsFoundAndCanBeRemoved) {
  ASSERT_TRUE(bucket_->put("a/one", "first").ok());
  ASSERT_TRUE(bucket_->put("a/one", "second").ok());
  ASSERT_TRUE(bucket_->put("a/t wo+\xc3\xa9&", "").ok());
  ASSERT_TRUE(bucket_->put("b", "other").ok());
  EXPECT_EQ(bucket_->get("a/one", 100).value(), "second");
  EXPECT_EQ(bucket_->get("a/t wo+\xc3\xa9&", 100).value(), "");
  std::vector<std::pair<std::string, int64_t>> found;
  server_.set_page_size(1);
  ASSERT_TRUE(
      bucket_->list("a/", [&](const Bucket::Object& object) { found.emplace_back(object.name, object.size_bytes); })
          .ok());
  EXPECT_THAT(found, ElementsAre(Pair("a/one", 6), Pair("a/t wo+\xc3\xa9&", 0)));
  ASSERT_TRUE(bucket_->remove("a/one").ok());
  ASSERT_TRUE(bucket_->remove("a/one").ok());
  EXPECT_EQ(bucket_->get("a/one", 100).error().reason, "object_missing");
}

TEST_F(BucketTest, ALargeFileGoesInPartsAndComesBack) {
  const std::string bytes = bytes_of((11 << 20) + 7);  // two whole parts and a rest
  ASSERT_TRUE(bucket_->put_file("large", file_with(bytes)).ok());
  EXPECT_EQ(server_.unfinished_uploads(), 0U);
  EXPECT_EQ(server_.objects().at("p/large"), bytes);
  const auto target = folder_.path() / "target";
  ASSERT_TRUE(bucket_->get_file("large", target).ok());
  EXPECT_EQ(content_of(target), bytes);
  const auto version = bucket_->head("large");
  ASSERT_TRUE(version.ok());
  EXPECT_EQ(version->size_bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(bucket_->get_part("large", *version, 5 << 20, 100).value(), bytes.substr(5 << 20, 100));
}

TEST_F(BucketTest, AnEmptyFileComesBack) {
  ASSERT_TRUE(bucket_->put_file("empty", file_with("")).ok());
  ASSERT_TRUE(bucket_->get_file("empty", folder_.path() / "target").ok());
  EXPECT_EQ(content_of(folder_.path() / "target"), "");
}

TEST_F(BucketTest, WhatCanSucceedLaterIsTriedAgain) {
  for (const Fault::Kind kind : {Fault::Kind::kStatus, Fault::Kind::kReset, Fault::Kind::kResetAfterwards}) {
    server_.fail({.kind = kind, .times = 2});
    EXPECT_TRUE(bucket_->put("one", "bytes").ok()) << static_cast<int>(kind);
    server_.fail({.kind = kind});
    EXPECT_EQ(bucket_->get("one", 100).value(), "bytes") << static_cast<int>(kind);
  }
  server_.fail({.kind = Fault::Kind::kShortBody});
  EXPECT_EQ(bucket_->get("one", 100).value(), "bytes");
  server_.fail({.status = 500, .code = "InternalError", .method = "DELETE"});
  EXPECT_TRUE(bucket_->remove("one").ok());
}

TEST_F(BucketTest, ALargeFileSurvivesFaultsOfEachRequest) {
  const std::string bytes = bytes_of(12 << 20);
  for (const char* method : {"POST", "PUT", "PUT", "POST"}) {
    server_.fail({.kind = Fault::Kind::kResetAfterwards, .method = method});
  }
  ASSERT_TRUE(bucket_->put_file("large", file_with(bytes)).ok());
  EXPECT_EQ(server_.objects().at("p/large"), bytes);
  server_.fail({.kind = Fault::Kind::kReset, .method = "HEAD"});
  server_.fail({.kind = Fault::Kind::kShortBody, .times = 2, .method = "GET"});
  ASSERT_TRUE(bucket_->get_file("large", folder_.path() / "target").ok());
  EXPECT_EQ(content_of(folder_.path() / "target"), bytes);
}

TEST_F(BucketTest, AServerThatStaysAwayIsUnavailable) {
  bucket_ = open(kSecond);
  server_.fail({.times = 1000});
  const Status status = bucket_->put("one", "bytes");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(status.error().reason, "bucket_unavailable");
  EXPECT_THAT(status.error().message, HasSubstr("SlowDown"));
  EXPECT_THAT(status.error().message, Not(HasSubstr("127.0.0.1")));
  const int tries = server_.requests();
  EXPECT_GE(tries, 2);
  EXPECT_FALSE(bucket_->put("one", "bytes").ok());
  EXPECT_LT(server_.requests(), 2 * tries) << "those who wait are told sooner";
  server_.heal();
  EXPECT_TRUE(bucket_->put("one", "bytes").ok());
}

TEST_F(BucketTest, AServerThatHangsIsUnavailableAfterTheTimeout) {
  bucket_ = open(kSecond);
  server_.fail({.kind = Fault::Kind::kHang, .times = 1000});
  EXPECT_EQ(bucket_->get("one", 100).error().code, ErrorCode::kUnavailable);
}

TEST_F(BucketTest, RefusalsAreNotTriedAgain) {
  struct Case {
    int status;
    const char* code;
    ErrorCode expected;
    const char* reason;
  };
  for (const Case& each : {Case{403, "AccessDenied", ErrorCode::kInternal, "bucket_access"},
                           Case{403, "InvalidAccessKeyId", ErrorCode::kInternal, "bucket_access"},
                           Case{404, "NoSuchBucket", ErrorCode::kInternal, "bucket_access"},
                           Case{507, "XMinioStorageFull", ErrorCode::kResourceExhausted, "disk_full"},
                           Case{403, "QuotaExceeded", ErrorCode::kResourceExhausted, "disk_full"},
                           Case{301, "PermanentRedirect", ErrorCode::kInternal, "bucket_refused"},
                           Case{400, "InvalidArgument", ErrorCode::kInternal, "bucket_refused"}}) {
    const int before = server_.requests();
    server_.fail({.status = each.status, .code = each.code});
    const Status status = bucket_->put("one", "bytes");
    ASSERT_FALSE(status.ok()) << each.code;
    EXPECT_EQ(status.error().code, each.expected) << each.code;
    EXPECT_EQ(status.error().reason, each.reason) << each.code;
    EXPECT_EQ(server_.requests(), before + 1) << each.code;
  }
}

TEST_F(BucketTest, WrongKeysAreRefusedAndNotShown) {
  Settings settings = server_.settings();
  settings.credentials.secret_access_key = "another-secret";
  const Status status = open_s3(settings).value()->put("one", "bytes");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().reason, "bucket_access");
  EXPECT_THAT(status.error().message, HasSubstr("SignatureDoesNotMatch"));
  EXPECT_THAT(status.error().message, Not(HasSubstr("secret")));
}

TEST_F(BucketTest, AnInterruptedUploadLeavesNothing) {
  server_.fail({.status = 507, .code = "XMinioStorageFull", .method = "PUT"});
  EXPECT_EQ(bucket_->put_file("large", file_with(bytes_of(6 << 20))).error().reason, "disk_full");
  EXPECT_EQ(server_.unfinished_uploads(), 0U);
  EXPECT_THAT(server_.objects(), IsEmpty());
}

TEST_F(BucketTest, OnlyBytesThatWereTransferredAreCounted) {
  const telemetry::testing::RecordedMetrics metrics;
  const auto counted = [&](const char* operation, const char* result) {
    return metrics.counter("tuft.bucket.bytes", {{"operation", operation}, {"result", result}});
  };
  ASSERT_TRUE(bucket_->put("one", "bytes").ok());
  EXPECT_EQ(counted("put", "ok"), 5);
  const auto version = bucket_->head("one");
  ASSERT_TRUE(version.ok());
  server_.fail({.status = 403, .code = "AccessDenied", .times = 3});
  EXPECT_FALSE(bucket_->put("two", "bytes").ok());
  EXPECT_FALSE(bucket_->put_file("large", file_with(bytes_of(6 << 20))).ok());
  EXPECT_FALSE(bucket_->get_part("one", *version, 0, 5).ok());
  EXPECT_EQ(counted("put", "internal"), 0);
  EXPECT_EQ(counted("get", "internal"), 0);
  EXPECT_EQ(bucket_->get_part("one", *version, 1, 3).value(), "yte");
  EXPECT_EQ(counted("get", "ok"), 3);
  ASSERT_TRUE(bucket_->put_file("large", file_with(bytes_of(6 << 20))).ok());
  EXPECT_EQ(counted("put", "ok"), 5 + (6 << 20));
}

TEST_F(BucketTest, PartsThatAKilledProcessLeftAreRemoved) {
  // The upload and its abort fail, as if the process had been killed.
  server_.fail({.status = 400, .code = "InvalidPart", .method = "PUT"});
  server_.fail({.status = 403, .code = "AccessDenied", .method = "DELETE"});
  EXPECT_FALSE(bucket_->put_file("a/large", file_with(bytes_of(6 << 20))).ok());
  EXPECT_EQ(server_.unfinished_uploads(), 1U);
  ASSERT_TRUE(bucket_->remove_unfinished("b/").ok());
  EXPECT_EQ(server_.unfinished_uploads(), 1U);
  ASSERT_TRUE(bucket_->remove_unfinished("a/").ok());
  EXPECT_EQ(server_.unfinished_uploads(), 0U);
}

TEST_F(BucketTest, DamageIsFoundAndLeavesNoFile) {
  const std::string bytes = bytes_of(6 << 20);
  ASSERT_TRUE(bucket_->put_file("large", file_with(bytes)).ok());
  ASSERT_TRUE(bucket_->put("small", "bytes").ok());
  const auto target = folder_.path() / "target";
  server_.fail({.kind = Fault::Kind::kCorrupt, .method = "GET"});
  EXPECT_EQ(bucket_->get_file("large", target).error().reason, "object_damaged");
  EXPECT_FALSE(std::filesystem::exists(target));
  EXPECT_TRUE(bucket_->get_file("large", target).ok());
  server_.tamper("p/small", "bytez");
  EXPECT_EQ(bucket_->get("small", 100).error().reason, "object_damaged");
  const auto version = bucket_->head("large");
  server_.tamper("p/large", bytes.substr(1));
  EXPECT_EQ(bucket_->get_part("large", *version, 0, 10).error().reason, "object_damaged");
  EXPECT_EQ(bucket_->get_file("large", folder_.path() / "other").error().reason, "object_damaged");
}

TEST_F(BucketTest, AFileThatCannotBeWrittenIsSaidWithoutItsDirectory) {
  ASSERT_TRUE(bucket_->put("one", "bytes").ok());
  const Status status = bucket_->get_file("one", folder_.path() / "none" / "target");
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("target"));
  EXPECT_THAT(status.error().message, Not(HasSubstr(folder_.path().string())));
}

TEST_F(BucketTest, AnObjectOverTheLimitIsRefused) {
  ASSERT_TRUE(bucket_->put("one", "12345").ok());
  EXPECT_EQ(bucket_->get("one", 5).value(), "12345");
  EXPECT_EQ(bucket_->get("one", 4).error().code, ErrorCode::kPayloadTooLarge);
}

TEST_F(BucketTest, CancelEndsARequestThatWaits) {
  server_.fail({.kind = Fault::Kind::kHang, .times = 1000});
  bucket_ = open(60 * kSecond);
  std::atomic<bool> is_answered{false};
  std::thread canceller([&] {
    while (server_.requests() == 0 && !is_answered) std::this_thread::yield();
    bucket_->cancel(0);
  });
  const Status status = bucket_->put("one", "bytes");
  is_answered = true;
  canceller.join();
  EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(bucket_->put("one", "bytes").error().code, ErrorCode::kCancelled);
}

TEST_F(BucketTest, AnAnswerThatIsNotThatOfAnS3ServerIsRefused) {
  const std::string deep = [] {
    std::string xml;
    for (int i = 0; i < 100'000; ++i) xml += "<a>";
    return xml;
  }();
  server_.fail({.status = 200, .code = deep, .method = "GET"});
  EXPECT_EQ(bucket_->list("", [](const Bucket::Object&) {}).error().reason, "bucket_refused");
  server_.fail({.status = 200, .code = "<<>", .method = "GET"});
  EXPECT_EQ(bucket_->list("", [](const Bucket::Object&) {}).error().reason, "bucket_refused");
}

TEST(BucketAnswers, OfRealServersAreRead) {
  const auto page = parse_list(
      "\xef\xbb\xbf<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix/>"
      "<KeyCount >1</KeyCount ><IsTruncated>false</IsTruncated><Contents>\n  <Key>a&gt;b > c</Key>"
      "<ETag>&quot;1&quot;</ETag><Size>6</Size>"
      "<Owner xsi:type='a/>b' xmlns:xsi = \"x\" ><ID/></Owner></Contents></ListBucketResult>\n");
  ASSERT_TRUE(page.ok());
  ASSERT_EQ(page->objects.size(), 1U);
  EXPECT_EQ(page->objects[0].name, "a>b > c");
  EXPECT_EQ(page->objects[0].size_bytes, 6);
}

// The parser calls itself for each level, and would end the process at some tens of thousands of them.
TEST(BucketAnswers, NothingHidesALevel) {
  const auto list_of = [](const std::string& begin, const std::string& end, int levels) {
    std::string xml = "<ListBucketResult>";
    for (int i = 0; i < levels; ++i) xml += begin;
    for (int i = 0; i < levels; ++i) xml += end;
    return xml + "</ListBucketResult>";
  };
  EXPECT_TRUE(parse_list(list_of("<a>", "</a>", 15)).ok());
  EXPECT_TRUE(parse_list(list_of("<a x=\"/>\">", "</a>", 15)).ok());
  EXPECT_TRUE(parse_list(list_of("<a/>", "", 100)).ok());
  for (const char* begin : {"<a>", "<a x=\"/>\">", "<a x='/>'>", "<a x=\"'/>\">", "<!-- </b></b> --><a>", "<a\">\"/>",
                            "<a=\">\"/>", "<a b\"c=\">\"/>", "<![CDATA[</b></b>]]><a>", "<?b </b></b>?><a>"}) {
    EXPECT_FALSE(parse_list(list_of(begin, "</a>", 20)).ok()) << begin;
  }
  for (const char* text : {"<a></a></a>", "<a", "<a x", "<a x=", "<a x=\"", "<a x=\"<\"/>", "<a/b/>", "</>", "<",
                           "</a b>", "<!DOCTYPE a>", "<!-- b -->", "<?b?>"}) {
    EXPECT_FALSE(parse_list("<ListBucketResult></ListBucketResult>" + std::string(text)).ok()) << text;
  }
  std::string unended;
  for (int i = 0; i < 200'000; ++i) unended += "<a";
  EXPECT_EQ(error_code_of(unended), "");
}

}  // namespace
}  // namespace tuft::bucket
