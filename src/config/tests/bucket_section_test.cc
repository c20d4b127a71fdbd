#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/testing/temp_dir.h"
#include "config/config.h"
#include "config/tests/model_directory.h"
#include "config/tests/variables.h"

namespace tuft::config {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kLeast = "endpoint: http://127.0.0.1:9000, name: checkpoints";

Result<Loaded> parsed_bucket(const std::string& section) {
  return parse_config(one_model("") + kUsers + "bucket: {" + section + "}\n", "tuft.yaml");
}

std::string bucket_error(const std::string& section) {
  const Result<Loaded> loaded = parsed_bucket(section);
  return loaded.ok() ? "" : loaded.error().message;
}

TEST(BucketSection, NothingSaidThenThereIsNone) {
  const auto loaded = parse_config(one_model("") + kUsers, "tuft.yaml");
  ASSERT_TRUE(loaded.ok());
  EXPECT_FALSE(loaded->config.bucket.has_value());
}

TEST(BucketSection, ReadsEveryKey) {
  const auto loaded = parsed_bucket(
      "endpoint: https://s3.example.com, region: eu-1, name: checkpoints, prefix: tuft/, path_style: false, "
      "credentials_file: /keys, ca_file: /ca.pem, timeout_seconds: 9, part_bytes: 6000000, cache_bytes: 7");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_THAT(loaded->warnings, IsEmpty());
  const BucketConfig& bucket = *loaded->config.bucket;
  EXPECT_EQ(bucket.settings.endpoint, "https://s3.example.com");
  EXPECT_EQ(bucket.settings.region, "eu-1");
  EXPECT_EQ(bucket.settings.name, "checkpoints");
  EXPECT_EQ(bucket.settings.prefix, "tuft/");
  EXPECT_FALSE(bucket.settings.path_style);
  EXPECT_EQ(bucket.credentials_file, "/keys");
  EXPECT_EQ(bucket.ca_file, "/ca.pem");
  EXPECT_EQ(bucket.settings.timeout, 9 * kSecond);
  EXPECT_EQ(bucket.settings.part_bytes, 6'000'000);
  EXPECT_EQ(bucket.settings.cache_bytes, 7);
}

TEST(BucketSection, SaysWhatIsWrong) {
  EXPECT_EQ(bucket_error(kLeast), "");
  EXPECT_THAT(bucket_error("name: checkpoints"), HasSubstr("bucket.endpoint: must be https://HOST"));
  EXPECT_THAT(bucket_error("endpoint: http://127.0.0.1:9000"), HasSubstr("bucket.name: must be the name of a bucket"));
  EXPECT_THAT(bucket_error(std::string(kLeast) + ", prefix: /x"), HasSubstr("bucket.prefix: must be like"));
  EXPECT_THAT(bucket_error(std::string(kLeast) + ", part_bytes: 1000"), HasSubstr("bucket.part_bytes"));
  EXPECT_THAT(bucket_error(std::string(kLeast) + ", secret: x"), HasSubstr("unknown key 'secret' in bucket"));
}

TEST(BucketSection, WarnsOfPlainHttpToAnotherMachine) {
  EXPECT_THAT(parsed_bucket(kLeast)->warnings, IsEmpty());
  const auto loaded = parsed_bucket("endpoint: http://store.example.com, name: checkpoints");
  ASSERT_EQ(loaded->warnings.size(), 1U);
  EXPECT_THAT(loaded->warnings[0], HasSubstr("use https"));
}

TEST(BucketSettingsFiles, KeysComeFromTheFileElseFromTheEnvironment) {
  const TempDir folder;
  BucketConfig config = *parsed_bucket(kLeast)->config.bucket;
  ::unsetenv("AWS_ACCESS_KEY_ID");
  EXPECT_THAT(load_bucket_settings(config).error().message, HasSubstr("bucket.credentials_file: is missing"));
  {
    const WithVariables keys({{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "s3cret"}});
    EXPECT_EQ(load_bucket_settings(config)->credentials.secret_access_key, "s3cret");
  }
  config.credentials_file = folder.path() / "keys";
  EXPECT_THAT(load_bucket_settings(config).error().message, HasSubstr("bucket.credentials_file: "));
  ASSERT_TRUE(write_file_atomically(config.credentials_file,
                                    "[default]\naws_access_key_id = of file\naws_secret_access_key = s3cret\n")
                  .ok());
  const auto blank = load_bucket_settings(config);
  ASSERT_FALSE(blank.ok());
  EXPECT_THAT(blank.error().message, HasSubstr("access_key_id"));
  EXPECT_THAT(blank.error().message, Not(HasSubstr("s3cret")));
  ASSERT_TRUE(write_file_atomically(config.credentials_file,
                                    "[default]\naws_access_key_id = id\naws_secret_access_key = s3cret\n")
                  .ok());
  EXPECT_EQ(load_bucket_settings(config)->credentials.access_key_id, "id");
  config.ca_file = folder.path() / "none.pem";
  EXPECT_THAT(load_bucket_settings(config).error().message, HasSubstr("bucket.ca_file: "));
}

}  // namespace
}  // namespace tuft::config
