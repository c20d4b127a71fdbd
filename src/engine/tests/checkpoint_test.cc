#include "engine/checkpoint/checkpoint.h"

#include <cstring>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/testing/temp_dir.h"
#include "engine/tests/tiny_model.h"
#include "engine/weights/float_convert.h"
#include "engine/weights/safetensors.h"

namespace tuft::engine {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

AdapterState trained_adapter(bool with_optimizer) {
  AdapterState state = make_adapter(tiny_model(), tiny_lora());
  float value = 0.0F;
  for (LoraTensor& tensor : state.tensors) {
    for (float& x : tensor.b) x = (value += 0.37F);
  }
  if (with_optimizer) {
    state.has_optimizer = true;
    state.moments.step = 123456789012345;
    state.moments.first = state.tensors;
    state.moments.second = state.tensors;
    state.moments.second[3].b[1] = 1e-40F;
  }
  return state;
}

void expect_same(const std::vector<LoraTensor>& left, const std::vector<LoraTensor>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].module, right[i].module);
    EXPECT_EQ(left[i].layer, right[i].layer);
    ASSERT_EQ(left[i].a.size(), right[i].a.size());
    ASSERT_EQ(left[i].b.size(), right[i].b.size());
    EXPECT_EQ(std::memcmp(left[i].a.data(), right[i].a.data(), left[i].a.size() * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(left[i].b.data(), right[i].b.data(), left[i].b.size() * sizeof(float)), 0);
  }
}

size_t entries(const std::filesystem::path& directory) {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator()));
}

AdapterState with_momentum() {
  AdapterState state = trained_adapter(true);
  state.optimizer = Optimizer::kDimuon;
  state.moments.second.clear();
  return state;
}

class Checkpoint : public ::testing::Test {
 protected:
  Result<int64_t> write(const AdapterState& state) { return write_checkpoint(path_, tiny_model(), state, "org/model"); }
  Result<AdapterState> read(bool with_optimizer = false) const {
    return read_checkpoint(path_, tiny_model(), with_optimizer);
  }
  void expect_read_fails(ErrorCode code, const std::string& message, bool with_optimizer = false) const {
    const auto state = read(with_optimizer);
    ASSERT_FALSE(state.ok());
    EXPECT_EQ(state.error().code, code) << state.error().message;
    EXPECT_THAT(state.error().message, HasSubstr(message));
    EXPECT_THAT(state.error().message, Not(HasSubstr(dir_.path().string())));
  }
  // Changes adapter_config.json as `edit` says.
  template <typename Edit>
  void edit_config(Edit edit) const {
    json config = json::parse(read_text(path_ / "adapter_config.json"));
    edit(config);
    write_text(path_ / "adapter_config.json", config.dump());
  }
  // Writes the adapter's tensors again, each changed by `edit`, which returns false to drop it.
  template <typename Edit>
  void edit_tensors(const char* file, Edit edit) const {
    std::vector<NamedTensor> tensors;
    const auto files = TensorFiles::open_file(path_ / file);
    ASSERT_TRUE(files.ok());
    std::vector<std::vector<std::byte>> kept;
    for (const std::string& name : (*files)->names()) {
      const auto view = (*files)->find(name);
      kept.emplace_back(view->data.begin(), view->data.end());
      NamedTensor tensor{name, view->dtype, view->shape, kept.back()};
      if (edit(tensor)) tensors.push_back(tensor);
    }
    ASSERT_TRUE(write_safetensors(path_ / "edited", tensors, (*files)->metadata()).ok());
    std::filesystem::rename(path_ / "edited", path_ / file);
  }

  TempDir dir_;
  std::filesystem::path path_ = dir_ / "runs/7/step-1";
};

TEST_F(Checkpoint, MomentumOfDimuonThenWrittenWithItsNameAndVersion) {
  const AdapterState state = with_momentum();
  ASSERT_TRUE(write(state).ok());
  const auto files = TensorFiles::open_file(path_ / "optimizer.safetensors").value();
  EXPECT_EQ(files->metadata().at("format"), "tuft.dimuon.v1");
  EXPECT_EQ(files->names().size(), 2 * state.tensors.size());
  EXPECT_TRUE(files->names().front().starts_with("momentum.base_model.model."));
  const auto back = read(true);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->optimizer, Optimizer::kDimuon);
  EXPECT_EQ(back->moments.step, state.moments.step);
  expect_same(back->moments.first, state.moments.first);
  EXPECT_TRUE(back->moments.second.empty());
}

TEST_F(Checkpoint, WrittenThenReadBackBitwise) {
  const AdapterState state = trained_adapter(true);
  const auto bytes = write(state);
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  EXPECT_GT(*bytes, 0);
  const auto back = read(true);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->spec.rank, 3);
  EXPECT_EQ(back->spec.alpha, 6.0F);
  EXPECT_EQ(back->spec.seed, state.spec.seed);
  EXPECT_TRUE(back->spec.train_attn && back->spec.train_mlp && back->spec.train_unembed);
  expect_same(back->tensors, state.tensors);
  EXPECT_TRUE(back->has_optimizer);
  EXPECT_EQ(back->moments.step, state.moments.step);
  expect_same(back->moments.first, state.moments.first);
  expect_same(back->moments.second, state.moments.second);
}

TEST_F(Checkpoint, WrittenThenPeftsFilesAndNothingElse) {
  ASSERT_TRUE(write(trained_adapter(false)).ok());
  EXPECT_EQ(entries(path_), 3U);
  EXPECT_EQ(entries(path_.parent_path()), 1U) << "a temporary directory was left behind";
  EXPECT_EQ(std::filesystem::file_size(path_ / "checkpoint_complete"), 0U);
  const json config = json::parse(read_text(path_ / "adapter_config.json"));
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["task_type"], "CAUSAL_LM");
  EXPECT_EQ(config["r"], 3);
  EXPECT_EQ(config["lora_alpha"], 6);
  EXPECT_TRUE(config["lora_alpha"].is_number_integer());
  EXPECT_EQ(config["bias"], "none");
  EXPECT_EQ(config["lora_dropout"], 0.0);
  EXPECT_EQ(config["base_model_name_or_path"], "org/model");
  EXPECT_EQ(config["target_modules"],
            json({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"}));
  const auto files = TensorFiles::open_file(path_ / "adapter_model.safetensors");
  ASSERT_TRUE(files.ok());
  EXPECT_TRUE((*files)->contains("base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"));
  EXPECT_TRUE((*files)->contains("base_model.model.model.layers.0.mlp.down_proj.lora_B.weight"));
  EXPECT_TRUE((*files)->contains("base_model.model.lm_head.lora_B.weight"));
}

TEST_F(Checkpoint, TrainFlagsThenTheyComeBack) {
  LoraSpec spec = tiny_lora();
  spec.train_mlp = false;
  spec.train_unembed = false;
  spec.alpha = 2.5F;
  ASSERT_TRUE(write(make_adapter(tiny_model(), spec)).ok());
  const auto back = read();
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(back->spec.train_attn);
  EXPECT_FALSE(back->spec.train_mlp || back->spec.train_unembed);
  EXPECT_EQ(back->spec.alpha, 2.5F);
  EXPECT_EQ(back->tensors.size(), 8U);
}

TEST_F(Checkpoint, NameTakenThenAlreadyExistsAndTheOldOneStays) {
  ASSERT_TRUE(write(trained_adapter(false)).ok());
  const auto again = write(trained_adapter(true));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kAlreadyExists);
  EXPECT_FALSE(std::filesystem::exists(path_ / "optimizer.safetensors"));
  EXPECT_EQ(entries(path_.parent_path()), 1U);
}

TEST_F(Checkpoint, StateOfAnotherModelThenNothingIsWritten) {
  AdapterState state = trained_adapter(false);
  state.tensors[2].a.pop_back();
  const auto written = write(state);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(written.error().message, HasSubstr("layers.0.self_attn.v_proj"));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(Checkpoint, DirectoryCannotBeCreatedThenErrorWithoutPath) {
  write_text(dir_ / "runs", "a file");
  const auto written = write(trained_adapter(false));
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().message, Not(HasSubstr(dir_.path().string())));
}

TEST_F(Checkpoint, MissingPartsThenEachIsNamed) {
  expect_read_fails(ErrorCode::kNotFound, "no such checkpoint");
  ASSERT_TRUE(write(trained_adapter(false)).ok());
  expect_read_fails(ErrorCode::kNotFound, "no optimizer state", true);
  std::filesystem::remove(path_ / "adapter_model.safetensors");
  expect_read_fails(ErrorCode::kDataLoss, "adapter_model.safetensors");
  std::filesystem::remove(path_ / "adapter_config.json");
  expect_read_fails(ErrorCode::kDataLoss, "adapter_config.json");
}

TEST_F(Checkpoint, LinkInsteadOfAFileThenItIsRefused) {
  ASSERT_TRUE(write(trained_adapter(true)).ok());
  for (const char* file : {"adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors"}) {
    std::filesystem::rename(path_ / file, dir_ / "elsewhere");
    std::filesystem::create_symlink(dir_ / "elsewhere", path_ / file);
    expect_read_fails(ErrorCode::kInvalidArgument, std::string(file) + " is a link", true);
    std::filesystem::remove(path_ / file);
    std::filesystem::rename(dir_ / "elsewhere", path_ / file);
  }
  EXPECT_TRUE(read(true).ok());
}

TEST_F(Checkpoint, TornAtAnyByteThenDataLoss) {
  ASSERT_TRUE(write(trained_adapter(true)).ok());
  const std::string whole = read_text(path_ / "adapter_model.safetensors");
  for (size_t size = 0; size < whole.size(); size += 97) {
    write_text(path_ / "adapter_model.safetensors", whole.substr(0, size));
    expect_read_fails(ErrorCode::kDataLoss, "torn");
  }
  write_text(path_ / "adapter_model.safetensors", whole);
  write_text(path_ / "optimizer.safetensors", read_text(path_ / "optimizer.safetensors").substr(0, 5000));
  expect_read_fails(ErrorCode::kDataLoss, "optimizer.safetensors", true);
  EXPECT_TRUE(read().ok());
  write_text(path_ / "adapter_config.json", "{\"r\": 3");
  expect_read_fails(ErrorCode::kDataLoss, "adapter_config.json");
}

TEST_F(Checkpoint, OptimizerOfAnotherFormatThenDataLoss) {
  ASSERT_TRUE(write(trained_adapter(true)).ok());
  std::filesystem::copy_file(path_ / "adapter_model.safetensors", path_ / "optimizer.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  expect_read_fails(ErrorCode::kDataLoss, "format and step", true);
}

TEST_F(Checkpoint, OtherRankThenBothShapesAreNamed) {
  ASSERT_TRUE(write(trained_adapter(false)).ok());
  edit_config([](json& config) { config["r"] = 4; });
  expect_read_fails(ErrorCode::kInvalidArgument,
                    "shape [3, 8]; this model and the rank in adapter_config.json need [4, 8]");
}

TEST_F(Checkpoint, OtherModelThenMessageSaysHow) {
  ASSERT_TRUE(write(trained_adapter(false)).ok());
  ModelSpec wider = tiny_model();
  wider.intermediate_size = 16;
  auto state = read_checkpoint(path_, wider, false);
  ASSERT_FALSE(state.ok());
  EXPECT_THAT(state.error().message, HasSubstr("gate_proj.lora_B.weight has shape [12, 3]"));
  ModelSpec deeper = tiny_model();
  deeper.layers = 3;
  state = read_checkpoint(path_, deeper, false);
  ASSERT_FALSE(state.ok());
  EXPECT_THAT(state.error().message, HasSubstr("no tensor base_model.model.model.layers.2"));
  ModelSpec flatter = tiny_model();
  flatter.layers = 1;
  state = read_checkpoint(path_, flatter, false);
  ASSERT_FALSE(state.ok());
  EXPECT_EQ(state.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(state.error().message, HasSubstr("no place for"));
}

TEST_F(Checkpoint, SomeAttentionLayersOnlyThenInvalidArgument) {
  ASSERT_TRUE(write(trained_adapter(false)).ok());
  edit_tensors("adapter_model.safetensors",
               [](const NamedTensor& tensor) { return tensor.name.find("o_proj") == std::string::npos; });
  expect_read_fails(ErrorCode::kInvalidArgument, "trains q_proj, k_proj, v_proj but not o_proj");
}

TEST_F(Checkpoint, UnknownModuleThenItIsNamed) {
  ASSERT_TRUE(write(trained_adapter(false)).ok());
  edit_tensors("adapter_model.safetensors", [](NamedTensor& tensor) {
    if (tensor.name == "base_model.model.lm_head.lora_A.weight") tensor.name = "base_model.model.score.lora_A.weight";
    return tensor.name != "base_model.model.lm_head.lora_B.weight";
  });
  expect_read_fails(ErrorCode::kInvalidArgument, "base_model.model.score.lora_A.weight");
}

TEST_F(Checkpoint, FrozenCopyOfTheHeadThenIgnored) {
  ASSERT_TRUE(write(trained_adapter(false)).ok());
  std::vector<NamedTensor> tensors;
  const auto files = TensorFiles::open_file(path_ / "adapter_model.safetensors");
  for (const std::string& name : (*files)->names()) {
    const auto view = (*files)->find(name);
    tensors.push_back({name, view->dtype, view->shape, view->data});
  }
  const std::vector<float> head(400);
  tensors.push_back(
      {"base_model.model.lm_head.base_layer.weight", Dtype::kFloat32, {50, 8}, std::as_bytes(std::span(head))});
  ASSERT_TRUE(write_safetensors(path_ / "new", tensors).ok());
  std::filesystem::rename(path_ / "new", path_ / "adapter_model.safetensors");
  const auto state = read();
  ASSERT_TRUE(state.ok()) << state.error().message;
  EXPECT_EQ(state->spec.seed, 0U);
}

TEST_F(Checkpoint, HalfWidthTensorsThenWidened) {
  const AdapterState state = trained_adapter(false);
  ASSERT_TRUE(write(state).ok());
  std::vector<std::vector<uint16_t>> halves;
  edit_tensors("adapter_model.safetensors", [&](NamedTensor& tensor) {
    std::vector<uint16_t> half(tensor.data.size() / sizeof(float));
    for (size_t i = 0; i < half.size(); ++i) {
      float value = 0;
      std::memcpy(&value, tensor.data.data() + i * sizeof value, sizeof value);
      half[i] = float_to_bfloat16(value);
    }
    halves.push_back(std::move(half));
    tensor.dtype = Dtype::kBfloat16;
    tensor.data = std::as_bytes(std::span(halves.back()));
    return true;
  });
  const auto back = read();
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->tensors[0].b[2], bfloat16_to_float(float_to_bfloat16(state.tensors[0].b[2])));
}

TEST_F(Checkpoint, UnsupportedPeftFeaturesAreNamed) {
  ASSERT_TRUE(write(trained_adapter(false)).ok());
  const std::string original = read_text(path_ / "adapter_config.json");
  const std::pair<const char*, json> table[] = {{"use_dora", true},
                                                {"use_rslora", true},
                                                {"bias", "all"},
                                                {"peft_type", "IA3"},
                                                {"modules_to_save", {"norm"}},
                                                {"rank_pattern", {{"q_proj", 8}}},
                                                {"alpha_pattern", {{"q_proj", 8}}},
                                                {"layers_to_transform", {0}},
                                                {"fan_in_fan_out", true},
                                                {"target_parameters", {"w"}}};
  for (const auto& [key, value] : table) {
    edit_config([key = key, &value = value](json& config) { config[key] = value; });
    expect_read_fails(ErrorCode::kInvalidArgument, key);
    write_text(path_ / "adapter_config.json", original);
  }
  for (const json& rank : {json(0), json(-1), json("8"), json(nullptr), json(1 << 20)}) {
    edit_config([&](json& config) { config["r"] = rank; });
    expect_read_fails(ErrorCode::kInvalidArgument, "adapter_config.json: r ");
  }
}

TEST_F(Checkpoint, ConfigAsPeftWritesItThenRead) {
  ASSERT_TRUE(write(trained_adapter(false)).ok());
  edit_config([](json& config) {
    config["target_modules"] = ".*_proj|lm_head";
    config["lora_dropout"] = 0.05;
    config["lora_alpha"] = 6;
    config["peft_version"] = "0.21.2";
    config["trainable_token_indices"] = nullptr;
    config["loftq_config"] = json::object();
  });
  EXPECT_TRUE(read().ok());
}

}  // namespace
}  // namespace tuft::engine
