// Tests where the configuration is read from, and what overrides it.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "config/config.h"
#include "config/tests/model_directory.h"

namespace tuft::config {
namespace {

using ::testing::HasSubstr;

class ConfigFile : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(home_ / "configs"); }
  void write(const std::string& yaml) const { std::ofstream(home_ / "configs" / "tuft_config.yaml") << yaml; }

  TempDir home_;
  ScopedVariable variable_{"TUFT_HOME", home_.path().c_str()};
  ScopedVariable config_{"TUFT_CONFIG", nullptr};
};

TEST_F(ConfigFile, FlagOverridesVariableOverridesFile) {
  write(one_model() + kUsers +
        "port: 1\nhost: file\nlog_level: error\ncheckpoint_dir: " + (home_ / "from_file").string() + "\n");
  EXPECT_EQ(load_config({}).value().config.port, 1);
  EXPECT_TRUE(std::filesystem::is_directory(home_ / "from_file"));

  const ScopedVariable port("TUFT_PORT", "2"), host("TUFT_HOST", "variable"), level("TUFT_LOG_LEVEL", "critical"),
      checkpoints("TUFT_CHECKPOINT_DIR", (home_ / "from_variable").c_str());
  const ServerConfig by_variable = load_config({}).value().config;
  EXPECT_EQ(by_variable.port, 2);
  EXPECT_EQ(by_variable.host, "variable");
  EXPECT_EQ(by_variable.log_level, "error");
  EXPECT_EQ(by_variable.checkpoint_dir, home_ / "from_variable");

  Overrides flags;
  flags.port = "3";
  flags.host = "flag";
  flags.log_level = "debug";
  flags.log_format = "json";
  flags.checkpoint_dir = (home_ / "from_flag").string();
  const ServerConfig by_flag = load_config(flags).value().config;
  EXPECT_EQ(by_flag.port, 3);
  EXPECT_EQ(by_flag.host, "flag");
  EXPECT_EQ(by_flag.log_level, "debug");
  EXPECT_EQ(by_flag.log_format, "json");
  EXPECT_TRUE(std::filesystem::is_directory(home_ / "from_flag"));
}

TEST_F(ConfigFile, WrongOverrideNamesItsSource) {
  write(one_model() + kUsers);
  Overrides flags;
  flags.log_level = "loud";
  EXPECT_THAT(load_config(flags).error().message, HasSubstr("--log-level must be debug"));
  const ScopedVariable port("TUFT_PORT", "many");
  EXPECT_THAT(load_config({}).error().message, HasSubstr("TUFT_PORT must be a port"));
}

TEST_F(ConfigFile, IsFoundByFlagVariableOrHomeElseAnError) {
  const Error none = load_config({}).error();
  EXPECT_EQ(none.reason, "no_config");
  EXPECT_THAT(none.message, HasSubstr((home_ / "configs" / "tuft_config.yaml").string()));
  const auto other = home_ / "other.yaml";
  std::ofstream(other) << one_model() << kUsers << "port: 7\n";
  const ScopedVariable variable("TUFT_CONFIG", other.c_str());
  EXPECT_EQ(load_config({}).value().config.port, 7);
  Overrides flags;
  flags.config_path = (home_ / "nothing.yaml").string();
  EXPECT_THAT(load_config(flags).error().message, HasSubstr("nothing.yaml"));
}

TEST_F(ConfigFile, ACheckpointDirectoryThatCannotBeMadeIsAnError) {
  std::ofstream(home_ / "a_file") << "x";
  write(one_model() + kUsers + "checkpoint_dir: " + (home_ / "a_file" / "below").string() + "\n");
  EXPECT_THAT(load_config({}).error().message, HasSubstr("checkpoint_dir: cannot make"));
}

}  // namespace
}  // namespace tuft::config
