#include "engine/weights/safetensors.h"

#include <cmath>
#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "engine/weights/float_convert.h"

namespace tuft::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string length_prefix(uint64_t length) {
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out;
}

std::string file_of(const std::string& header, size_t data_bytes) {
  return length_prefix(header.size()) + header + std::string(data_bytes, '\1');
}

template <typename T>
std::span<const std::byte> bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<float> floats(const TensorFiles& files, const std::string& name) {
  const auto view = files.find(name);
  EXPECT_TRUE(view.ok());
  auto values = view->to_float();
  EXPECT_TRUE(values.ok());
  const auto read = files.read(name);
  EXPECT_TRUE(read.ok() && *read == *values) << name;
  return *values;
}

TEST(Safetensors, WrittenThenReadBackBitwise) {
  const TempDir dir;
  const std::vector<float> wide = {1.5F, -0.0F, 3e38F, 1e-40F, -2.0F, 7.0F};
  const std::vector<uint16_t> brain = {0x3FC0, 0xC000, 0x7F80};
  const std::vector<uint16_t> half = {0x3E00, 0x0001, 0xFC00};
  const std::vector<int64_t> ids = {1, -2};
  const std::vector<NamedTensor> tensors = {{"b", Dtype::kBfloat16, {3}, bytes(brain)},
                                            {"w", Dtype::kFloat32, {2, 3}, bytes(wide)},
                                            {"h", Dtype::kFloat16, {3, 1}, bytes(half)},
                                            {"i", Dtype::kInt64, {2}, bytes(ids)},
                                            {"empty", Dtype::kFloat32, {0, 4}, {}}};
  ASSERT_TRUE(write_safetensors(dir / "x.safetensors", tensors, {{"format", "pt"}}).ok());
  const auto files = TensorFiles::open_file(dir / "x.safetensors");
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_THAT((*files)->names(), ElementsAre("b", "empty", "h", "i", "w"));
  EXPECT_EQ((*files)->metadata().at("format"), "pt");

  const auto view = (*files)->find("w");
  ASSERT_TRUE(view.ok());
  EXPECT_THAT(view->shape, ElementsAre(2, 3));
  EXPECT_EQ(std::memcmp(view->data.data(), wide.data(), view->data.size()), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view->data.data()) % alignof(float), 0U);
  EXPECT_THAT(floats(**files, "b"), ElementsAre(1.5F, -2.0F, INFINITY));
  EXPECT_THAT(floats(**files, "h"), ElementsAre(1.5F, 0x1p-24F, -INFINITY));
  EXPECT_TRUE(floats(**files, "empty").empty());
  EXPECT_FALSE((*files)->find("i")->to_float().ok());
  EXPECT_FALSE((*files)->read("i").ok());
}

// Reading the mapping there would be a signal that ends the process, as where the disk fails.
TEST(Safetensors, BytesThatCannotBeReadThenAnErrorAndNoSignal) {
  const TempDir dir;
  const std::vector<float> first(2000, 1.5F);
  const std::vector<float> second(50'000, 2.5F);
  const std::vector<NamedTensor> tensors = {{"first", Dtype::kFloat32, {2000}, bytes(first)},
                                            {"second", Dtype::kFloat32, {50'000}, bytes(second)}};
  ASSERT_TRUE(write_safetensors(dir / "x.safetensors", tensors).ok());
  const auto files = TensorFiles::open_file(dir / "x.safetensors");
  ASSERT_TRUE(files.ok()) << files.error().message;
  std::filesystem::resize_file(dir / "x.safetensors", 20'000);
  EXPECT_EQ(floats(**files, "first"), first);
  const auto cut = (*files)->read("second");
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(cut.error().message, HasSubstr("shorter"));
  EXPECT_EQ((*files)->read("third").error().code, ErrorCode::kNotFound);
}

TEST(Safetensors, UnknownTensorThenNotFoundNamesIt) {
  const TempDir dir;
  const std::vector<float> values = {1};
  ASSERT_TRUE(
      write_safetensors(dir / "model.safetensors", std::vector<NamedTensor>{{"w", Dtype::kFloat32, {1}, bytes(values)}})
          .ok());
  const auto files = TensorFiles::open_model(dir.path());
  ASSERT_TRUE(files.ok());
  EXPECT_TRUE((*files)->contains("w"));
  const auto missing = (*files)->find("model.norm.weight");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("model.norm.weight"));
}

TEST(Safetensors, UnsupportedDtypeFailsOnlyWhenRead) {
  const TempDir dir;
  write_text(dir / "x", file_of(R"({"q":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                R"("w":{"dtype":"F32","shape":[],"data_offsets":[3,7]}})",
                                7));
  const auto files = TensorFiles::open_file(dir / "x");
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_EQ(floats(**files, "w").size(), 1U);
  EXPECT_EQ((*files)->find("q").error().code, ErrorCode::kUnimplemented);
}

struct Hostile {
  const char* what;
  std::string content;
  const char* message;
};

class SafetensorsHostile : public ::testing::TestWithParam<Hostile> {};

TEST_P(SafetensorsHostile, FileThenDataLossWithTheReason) {
  const TempDir dir;
  write_text(dir / "x.safetensors", GetParam().content);
  const auto files = TensorFiles::open_file(dir / "x.safetensors");
  ASSERT_FALSE(files.ok()) << GetParam().what;
  EXPECT_EQ(files.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(files.error().message, HasSubstr(GetParam().message));
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets, size_t data) {
  return file_of(R"({"w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", data);
}

INSTANTIATE_TEST_SUITE_P(
    Table, SafetensorsHostile,
    ::testing::Values(Hostile{"empty", "", "empty"}, Hostile{"short length", "abc", "8-byte length"},
                      Hostile{"huge header", length_prefix(UINT64_MAX) + "{}", "100 MiB"},
                      Hostile{"header beyond the end", length_prefix(100) + "{}", "beyond its end"},
                      Hostile{"no header", length_prefix(0), "begin with '{'"},
                      Hostile{"header is no object", file_of("[1]", 0), "begin with '{'"},
                      Hostile{"bad JSON", file_of("{\"w\":", 0), "JSON"},
                      Hostile{"not UTF-8", file_of("{\"\xff\":1}", 0), "JSON"},
                      Hostile{"deep nesting", file_of("{\"w\":" + std::string(100000, '['), 0), "JSON"},
                      Hostile{"entry is no object", file_of(R"({"w":3})", 0), "must have dtype"},
                      Hostile{"entry without shape", file_of(R"({"w":{"dtype":"F32","data_offsets":[0,0]}})", 0),
                              "must have dtype"},
                      Hostile{"unknown dtype", one("\"F31\"", "[1]", "[0,4]", 4), "dtype is unknown"},
                      Hostile{"dtype is a number", one("3", "[1]", "[0,4]", 4), "dtype is unknown"},
                      Hostile{"negative shape", one("\"F32\"", "[-1]", "[0,4]", 4), "shape"},
                      Hostile{"fractional shape", one("\"F32\"", "[1.5]", "[0,4]", 4), "shape"},
                      Hostile{"shape overflows",
                              one("\"F32\"", "[4611686018427387904,4611686018427387904]", "[0,4]", 4), "too large"},
                      Hostile{"shape is a string", one("\"F32\"", "\"1\"", "[0,4]", 4), "shape must be a list"},
                      Hostile{"one offset", one("\"F32\"", "[1]", "[4]", 4), "data_offsets"},
                      Hostile{"offset beyond the data", one("\"F32\"", "[2]", "[0,8]", 4), "outside"},
                      Hostile{"offsets reversed", one("\"F32\"", "[1]", "[4,0]", 4), "outside"},
                      Hostile{"length against shape", one("\"F32\"", "[2]", "[0,4]", 4), "need 8"},
                      Hostile{"torn at the end", one("\"F32\"", "[2]", "[0,8]", 7), "outside"},
                      Hostile{"something appended", one("\"F32\"", "[1]", "[0,4]", 5), "belong to no tensor"},
                      Hostile{"hole", one("\"F32\"", "[1]", "[4,8]", 8), "hole"},
                      Hostile{"name twice",
                              file_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                      R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                                      4),
                              "twice"},
                      Hostile{"overlap",
                              file_of(R"({"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                      R"("w":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                                      6),
                              "overlaps"},
                      Hostile{"metadata of numbers", file_of(R"({"__metadata__":{"step":3}})", 0), "__metadata__"}));

TEST(Safetensors, DirectoryGivenAsFileThenDataLoss) {
  const TempDir dir;
  const auto files = TensorFiles::open_file(dir.path());
  ASSERT_FALSE(files.ok());
}

class ShardedModel : public ::testing::Test {
 protected:
  ShardedModel() {
    write("one.safetensors", "a", 1.0F);
    write("two.safetensors", "b", 2.0F);
  }
  void write(const std::string& file, const std::string& name, float value) const {
    const std::vector<float> values = {value};
    ASSERT_TRUE(
        write_safetensors(dir_ / file, std::vector<NamedTensor>{{name, Dtype::kFloat32, {1}, bytes(values)}}).ok());
  }
  Result<std::unique_ptr<TensorFiles>> open(const std::string& index) const {
    write_text(dir_ / "model.safetensors.index.json", index);
    return TensorFiles::open_model(dir_.path());
  }
  TempDir dir_;
};

TEST_F(ShardedModel, IndexThenTensorsComeFromTheirShards) {
  const auto files =
      open(R"({"metadata":{"total_size":8},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_THAT((*files)->names(), ElementsAre("a", "b"));
  EXPECT_THAT(floats(**files, "a"), ElementsAre(1.0F));
  EXPECT_THAT(floats(**files, "b"), ElementsAre(2.0F));
}

TEST_F(ShardedModel, IndexOutsideTheDirectoryThenDataLoss) {
  for (const char* file : {"../one.safetensors", "/etc/passwd", "", "..", "sub/one.safetensors", "a\\\\b"}) {
    const auto files = open(std::string(R"({"weight_map":{"a":")") + file + "\"}}");
    ASSERT_FALSE(files.ok()) << file;
    EXPECT_EQ(files.error().code, ErrorCode::kDataLoss);
    EXPECT_THAT(files.error().message, HasSubstr("not a file beside it"));
  }
}

TEST_F(ShardedModel, BrokenIndexThenDataLossWithTheReason) {
  const std::pair<const char*, const char*> table[] = {
      {"{", "JSON"},
      {R"({"weight_map":{}})", "missing or empty"},
      {R"({"weight_map":{"a":3}})", "not a file beside it"},
      {R"({"weight_map":{"a":"three.safetensors"}})", "three.safetensors, which is not there"},
      {R"({"weight_map":{"a":"two.safetensors"}})", "it does not"},
      {R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})", "twice"}};
  for (const auto& [index, message] : table) {
    const auto files = open(index);
    ASSERT_FALSE(files.ok()) << index;
    EXPECT_EQ(files.error().code, ErrorCode::kDataLoss) << index;
    EXPECT_THAT(files.error().message, HasSubstr(message));
  }
}

TEST(Safetensors, DirectoryWithoutWeightsThenNotFoundNamesTheFormats) {
  const TempDir dir;
  const auto files = TensorFiles::open_model(dir.path());
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(files.error().message, HasSubstr("model.safetensors"));
}

TEST(FloatConvert, Bfloat16ThenNearestEvenAndNanKept) {
  EXPECT_EQ(float_to_bfloat16(1.0F), 0x3F80);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3F808000U)), 0x3F80);  // tie to even: down
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3F818000U)), 0x3F82);  // tie to even: up
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3F808001U)), 0x3F81);
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(0x7F800001U)))));
  EXPECT_EQ(float_to_bfloat16(-INFINITY), 0xFF80);
}

TEST(FloatConvert, EveryHalfThenItsValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>((bits >> 10) & 0x1F);
    const int fraction = static_cast<int>(bits & 0x3FF);
    const float got = float16_to_float(static_cast<uint16_t>(bits));
    EXPECT_EQ(std::signbit(got), (bits & 0x8000) != 0);
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(got), fraction != 0);
      EXPECT_EQ(std::isinf(got), fraction == 0);
      continue;
    }
    const double want = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    EXPECT_EQ(std::fabs(got), static_cast<float>(want)) << bits;
  }
}

}  // namespace
}  // namespace tuft::engine
