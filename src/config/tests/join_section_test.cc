#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "config/config.h"
#include "config/tests/model_directory.h"

namespace tuft::config {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTls = "tls: {certificate: /c.pem, private_key: /c.key}\n";

Result<Loaded> parsed_join(const std::string& yaml, const std::string& of_model = {}) {
  return parse_config(one_model(of_model) + kUsers + yaml, "tuft.yaml");
}

std::string error_of(const std::string& yaml, const std::string& of_model = {}) {
  const Result<Loaded> loaded = parsed_join(yaml, of_model);
  return loaded.ok() ? "" : loaded.error().message;
}

TEST(JoinSection, NothingSaidThenNobodyCanJoin) {
  const auto loaded = parsed_join("");
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->config.join.port, 0);
  EXPECT_EQ(loaded->config.supported_models[0].worker, WorkerKind::kLocal);
}

TEST(JoinSection, ReadsEveryKey) {
  const auto loaded = parsed_join(R"(
host: 10.0.0.1
join: {host: 10.0.0.2, port: 10620, certificate: /a.pem, private_key: /a.key, token_file: /token, worker_authority: /w.pem,
       lease_seconds: 5, keep_seconds: 7}
)",
                                  "    worker: joined\n");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const JoinConfig& join = loaded->config.join;
  EXPECT_EQ(join.host, "10.0.0.2");
  EXPECT_EQ(join.port, 10620);
  EXPECT_EQ(join.certificate, "/a.pem");
  EXPECT_EQ(join.private_key, "/a.key");
  EXPECT_EQ(join.token_file, "/token");
  EXPECT_EQ(join.worker_authority, "/w.pem");
  EXPECT_EQ(join.lease_seconds, 5);
  EXPECT_EQ(join.keep_seconds, 7);
  EXPECT_EQ(loaded->config.supported_models[0].worker, WorkerKind::kJoined);
}

TEST(JoinSection, TakesHostAndCertificateFromTheServer) {
  const auto loaded = parsed_join(std::string(kTls) + "host: 10.0.0.1\njoin: {port: 10620, token_file: /token}\n");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->config.join.host, "10.0.0.1");
  EXPECT_EQ(loaded->config.join.certificate, "/c.pem");
  EXPECT_EQ(loaded->config.join.private_key, "/c.key");
  EXPECT_EQ(loaded->config.join.lease_seconds, 30);
  EXPECT_EQ(loaded->config.join.keep_seconds, 60);
}

TEST(JoinSection, SaysWhatIsMissing) {
  EXPECT_THAT(error_of("join: {port: 7, token_file: /t}\n"), HasSubstr("join.certificate: is missing"));
  EXPECT_THAT(error_of("join: {port: 7, certificate: /c, token_file: /t}\n"),
              HasSubstr("join.private_key: is missing"));
  EXPECT_THAT(error_of(std::string(kTls) + "join: {port: 7}\n"), HasSubstr("openssl rand"));
  EXPECT_THAT(error_of("", "    worker: joined\n"), HasSubstr("join.port: is missing"));
  EXPECT_THAT(error_of("", "    worker: remote\n"), HasSubstr("supported_models[0].worker"));
  EXPECT_THAT(error_of(std::string(kTls) + "port: 7\njoin: {port: 7, token_file: /t}\n"),
              HasSubstr("must differ from port"));
  EXPECT_THAT(error_of(std::string(kTls) + "join: {port: 7, token_file: /t, lease_seconds: 1}\n"),
              HasSubstr("join.lease_seconds"));
}

TEST(JoinSection, WarnsOfATokenThatOthersCanRead) {
  const TempDir directory;
  const auto token = directory / "token";
  write_text(token, "a token of sufficient length\n");
  const std::string text = std::string(kTls) + "join: {port: 7, token_file: " + token.string() + "}\n";
  std::filesystem::permissions(token, std::filesystem::perms::owner_read);
  EXPECT_THAT(parsed_join(text)->warnings, ::testing::Not(::testing::Contains(HasSubstr("join.token_file"))));
  std::filesystem::permissions(token, std::filesystem::perms::others_read, std::filesystem::perm_options::add);
  EXPECT_THAT(parsed_join(text)->warnings, ::testing::Contains(HasSubstr("join.token_file: can be read by others")));
}

}  // namespace
}  // namespace tuft::config
