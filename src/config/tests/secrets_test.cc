// Checks that no message shows an API key, whatever is wrong with the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "config/tests/model_directory.h"

namespace tuft::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string everything_said(const std::string& yaml) {
  const Result<Loaded> loaded = parse_config(yaml, "tuft.yaml");
  if (!loaded.ok()) return loaded.error().message;
  std::string all;
  for (const std::string& warning : loaded->warnings) all += warning + "\n";
  return all;
}

class ConfigSecret : public ::testing::TestWithParam<const char*> {};

TEST_P(ConfigSecret, IsInNoMessage) {
  const ScopedVariable variable("TUFT_TEST_SECRET", "hunter2hunter2");
  const std::string said = everything_said(one_model() + GetParam());
  EXPECT_THAT(said, Not(::testing::IsEmpty()));
  for (const char* secret : {"tml-s3cret", "plainsecret", "hunter2"}) EXPECT_THAT(said, Not(HasSubstr(secret)));
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, ConfigSecret,
    ::testing::Values(
        "authorized_users: {tml-s3cret: [x]}\n", "authorized_users: {tml-s3cret: }\n",
        "authorized_users: {plainsecret: alice}\n", "authorized_users: {tml-s3cret: alice, tml-s3cret: bob}\n",
        "authorized_users: [tml-s3cret]\n", "authorized_users: tml-s3cret\n", "authorized_users:\ntml-s3cret: alice\n",
        "authorised_users: {tml-s3cret: alice}\n", "authorized_users: {plainsecret: alice}\nport: plainsecret\n",
        "authorized_users: {plainsecret: alice}\nplainsecret: 1\n", "port: tml-s3cret\n", "log_format: tml-s3cret\n",
        "tml-s3cret: 1\n", "telemetry: {tml-s3cret: alice}\n", "telemetry: {resource_attributes: {tml-s3cret: [1]}}\n",
        "port: ${oc.env:TUFT_TEST_SECRET}\n", "log_format: ${oc.env:TUFT_TEST_SECRET}\n",
        "authorized_users: {tml-s3cret: ${nowhere}}\n", "authorized_users: {tml-s3cret: alice\nport: [\n",
        "persistence: {mode: REDIS, redis_url: \"redis://:plainsecret@host\"}\n"));

}  // namespace
}  // namespace tuft::config
