#include "tokenizer/decoder.h"

#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/json.h"
#include "tokenizer/utf8.h"

namespace tuft::tokenizer {
namespace {

constexpr size_t kTokenizerBytesMax = 256 << 20;
constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581

enum class Style : uint8_t { kByteLevel, kSentencePiece };

// Returns the style of the first part that has one.
std::optional<Style> find_style(const Json& decoder) {
  for (const Json* part : parts_of(decoder, "decoders")) {
    const std::string type = type_of(*part);
    if (type == "ByteLevel") return Style::kByteLevel;
    if (type == "Metaspace") return Style::kSentencePiece;
    if (type == "Replace" && text(member(*part, "pattern"), "String") == kMetaspace) return Style::kSentencePiece;
  }
  return std::nullopt;
}

std::string decode_byte_level(const std::string& token) {
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const std::optional<uint8_t> byte = character_to_byte(next_character(token, at));
    if (!byte) return token;  // the token is not in the byte alphabet, so it is text
    out.push_back(static_cast<char>(*byte));
  }
  return out;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::string decode_metaspace(const std::string& token) {
  if (token.size() == 6 && token.starts_with("<0x") && token[5] == '>') {
    const int high = hex_digit(token[3]);
    const int low = hex_digit(token[4]);
    if (high >= 0 && low >= 0) return std::string(1, static_cast<char>(high * 16 + low));
  }
  std::string out;
  size_t at = 0;
  for (size_t next = 0; (next = token.find(kMetaspace, at)) != std::string::npos; at = next + kMetaspace.size()) {
    out.append(token, at, next - at).push_back(' ');
  }
  return out.append(token, at);
}

// Skips the merges: they are most of the file, and only encoding needs them.
Json parse_without_merges(std::string_view text) {
  const auto keep = [](int depth, Json::parse_event_t event, Json& value) {
    return !(event == Json::parse_event_t::key && depth == 2 && value == "merges");
  };
  return Json::parse(text, keep, /*allow_exceptions=*/false);
}

void store(std::vector<std::string>& bytes, int32_t id, std::string value) {
  const auto at = static_cast<size_t>(id);
  if (bytes.size() <= at) bytes.resize(at + 1);
  bytes[at] = std::move(value);
}

Status read_vocabulary(const Json& file, Style style, std::string_view origin, std::vector<std::string>& bytes) {
  const Json& model = member(file, "model");
  if (!model.is_object()) return malformed(origin, "model is missing");
  if (const std::string type = type_of(model); type != "BPE")
    return unsupported(origin, "model type '" + type + "' is not read; BPE is");
  const Json& vocabulary = member(model, "vocab");
  if (!vocabulary.is_object()) return malformed(origin, "model.vocab must be an object");
  for (const auto& [token, value] : vocabulary.items()) {
    int32_t id = 0;
    if (!to_id(value, &id)) return malformed(origin, "model.vocab has an invalid id");
    store(bytes, id, style == Style::kByteLevel ? decode_byte_level(token) : decode_metaspace(token));
  }
  return {};
}

}  // namespace

Result<Decoder> Decoder::parse(std::string_view tokenizer_json, std::string_view origin) {
  const Json file = parse_without_merges(tokenizer_json);
  if (file.is_discarded() || !file.is_object()) return malformed(origin, "it is not a JSON object");
  return read(file, origin);
}

Result<Decoder> Decoder::read(const Json& file, std::string_view origin) {
  const Json& decoder = member(file, "decoder");
  const std::optional<Style> style = find_style(decoder);
  if (!style) return unsupported(origin, "decoder '" + type_of(decoder) + "' is not read; ByteLevel and Metaspace are");
  Decoder out;
  TUFT_TRY(read_vocabulary(file, *style, origin, out.bytes_));
  TUFT_ASSIGN(const std::vector<AddedToken> added, read_added_tokens(file, origin));
  for (const AddedToken& token : added) {
    // Some converters list the byte tokens here as well.
    store(out.bytes_, token.id, style == Style::kSentencePiece ? decode_metaspace(token.content) : token.content);
  }
  return out;
}

Result<Decoder> Decoder::load(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "tokenizer.json";
  TUFT_ASSIGN(const std::string text, read_file(path, kTokenizerBytesMax));
  return parse(text, path.string());
}

std::string Decoder::token_bytes(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  return bytes_[static_cast<size_t>(id)];
}

}  // namespace tuft::tokenizer
