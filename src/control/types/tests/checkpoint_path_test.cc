#include "control/types/checkpoint_path.h"

#include <gtest/gtest.h>

#include "control/types/checkpoint.h"

namespace tuft::control {
namespace {

TEST(CheckpointPath, ValidPathsRoundTrip) {
  for (const std::string path :
       {"tinker://0a1b-2c:train:0/weights/checkpoint-0001", "tinker://s:train:12/sampler_weights/a",
        "tinker://r/external_weights/final", "tinker://r/weights/A.b_c-9"}) {
    const auto parsed = parse_checkpoint_path(path);
    ASSERT_TRUE(parsed.ok()) << path;
    EXPECT_EQ(parsed->str(), path);
  }
}

TEST(CheckpointPath, PathsAreParsedIntoParts) {
  const auto parsed = parse_checkpoint_path("tinker://s:train:3/sampler_weights/final");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->run, RunId("s:train:3"));
  EXPECT_EQ(parsed->kind, CheckpointKind::kSampler);
  EXPECT_EQ(parsed->name, "final");
}

TEST(CheckpointPath, MalformedPathsAreRefused) {
  const std::string long_name(129, 'a');
  for (const std::string& path : {std::string(),
                                  std::string("tinker://"),
                                  std::string("weights/x"),
                                  std::string("/etc/passwd"),
                                  std::string("file:///etc/passwd"),
                                  std::string("tinker://run"),
                                  std::string("tinker://run/weights"),
                                  std::string("tinker://run/weights/"),
                                  std::string("tinker:///weights/x"),
                                  std::string("tinker://../weights/x"),
                                  std::string("tinker://./weights/x"),
                                  std::string("tinker://run/../x"),
                                  std::string("tinker://run/other/x"),
                                  std::string("tinker://run/weights/.."),
                                  std::string("tinker://run/weights/."),
                                  std::string("tinker://run/weights/.hidden"),
                                  std::string("tinker://run/weights/a/b"),
                                  std::string("tinker://run/weights/../../x"),
                                  std::string("tinker://run/weights/a b"),
                                  std::string("tinker://run/weights/a%2fb"),
                                  std::string("tinker://run/weights/\xc3\xa4"),
                                  std::string("tinker://run/weights/a\0b", 24),
                                  std::string("tinker://run/weights/a\n"),
                                  std::string("tinker://ru n/weights/a"),
                                  "tinker://run/weights/" + long_name,
                                  "tinker://" + long_name + "/weights/a",
                                  std::string("TINKER://run/weights/a"),
                                  std::string("tinker://run\\x/weights/a")}) {
    const auto parsed = parse_checkpoint_path(path);
    ASSERT_FALSE(parsed.ok()) << path;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(CheckpointName, ValidAndInvalidNames) {
  EXPECT_TRUE(check_checkpoint_name("a").ok());
  EXPECT_TRUE(check_checkpoint_name("step-10_final.v2").ok());
  EXPECT_TRUE(check_checkpoint_name(std::string(128, 'x')).ok());
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../x"), std::string("/abs"),
        std::string("a/b"), std::string("a\\b"), std::string("a:b"), std::string("\xe2\x82\xac"), std::string("a b"),
        std::string("a\0", 2), std::string(129, 'x'), std::string(".tuft-x")}) {
    EXPECT_FALSE(check_checkpoint_name(name).ok()) << name;
  }
}

TEST(RunFolder, HasNoColonAndNoSeparator) {
  EXPECT_EQ(run_folder(RunId("ab-12:train:0")), "ab-12_train_0");
}

TEST(Metadata, RoundTrips) {
  Checkpoint checkpoint;
  checkpoint.path = {RunId("s:train:0"), CheckpointKind::kSampler, "n"};
  checkpoint.owner = UserId("alice");
  checkpoint.base_model = "m";
  checkpoint.created_at = iso_time(1'700'000'000 * kSecond + 5 * kMicrosecond);
  checkpoint.lora_rank = 4;
  checkpoint.lora_alpha = 8;
  checkpoint.train_mlp = false;
  checkpoint.optimizer = Optimizer::kDimuon;
  checkpoint.target_modules = {"q_proj"};
  checkpoint.seq_id = 9;
  const auto again = from_metadata_json(to_metadata_json(checkpoint));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->path, checkpoint.path);
  EXPECT_EQ(again->created_at, "2023-11-14T22:13:20.000005+00:00");
  EXPECT_EQ(again->target_modules, checkpoint.target_modules);
  EXPECT_FALSE(again->train_mlp);
  EXPECT_EQ(again->optimizer, Optimizer::kDimuon);
  EXPECT_EQ(again->seq_id, 9);
  std::string text = to_metadata_json(checkpoint);
  const std::string line = "  \"optimizer\": \"dimuon\",\n";
  const size_t at = text.find(line);
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(from_metadata_json(std::string(text).erase(at, line.size()))->optimizer, Optimizer::kAdamW);
  EXPECT_FALSE(from_metadata_json(text.replace(text.find("dimuon"), 6, "newton")).ok());
}

TEST(Metadata, AMemberThatMustBeAWholeNumberAndIsNoneIsDataLoss) {
  Checkpoint checkpoint;
  checkpoint.path = parse_checkpoint_path("tinker://s:train:0/weights/a").value();
  checkpoint.lora_alpha = 8.5;
  const std::string text = to_metadata_json(checkpoint);
  EXPECT_EQ(from_metadata_json(text)->lora_alpha, 8.5);
  const auto with = [&text](const std::string& key, const char* number) {
    std::string changed = text;
    const size_t at = changed.find(": ", changed.find('"' + key + '"')) + 2;
    return from_metadata_json(changed.replace(at, changed.find(',', at) - at, number));
  };
  for (const char* key : {"format_version", "lora_rank", "size_bytes", "future_id"}) {
    const auto read = with(key, "1e74");
    ASSERT_FALSE(read.ok()) << key;
    EXPECT_NE(read.error().message.find(key), std::string::npos) << read.error().message;
  }
  EXPECT_FALSE(with("lora_rank", "1099511627776").ok());
  EXPECT_FALSE(with("future_id", "-1").ok());
  EXPECT_TRUE(from_metadata_json(R"({"score": 0.5,)" + text.substr(1)).ok()) << "what others add is theirs";
}

TEST(Metadata, TruncatedOrForeignTextIsDataLoss) {
  for (const std::string text :
       {"", "{", "[]", "{}", R"({"tinker_path": 3})", R"({"tinker_path": "tinker://../weights/x"})"}) {
    EXPECT_FALSE(from_metadata_json(text).ok()) << text;
  }
}

}  // namespace
}  // namespace tuft::control
