#include "tokenizer/decoder.h"

#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tokenizer/byte_level.h"

namespace tuft::tokenizer {
namespace {

using Json = nlohmann::json;

constexpr size_t kFileBytesMax = 256 << 20;
constexpr int64_t kIdMax = (1 << 24) - 1;
constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581

enum class Style : uint8_t { kByteLevel, kSentencePiece };

Error malformed(std::string_view origin, const std::string& what) {
  return invalid_argument(std::string(origin) + ": " + what, "bad_tokenizer");
}
Error unimplemented(std::string_view origin, const std::string& what) {
  return {ErrorCode::kUnimplemented, std::string(origin) + ": " + what, "unsupported_tokenizer"};
}

std::string type_of(const Json& part) {
  if (!part.is_object()) return "";
  const auto type = part.find("type");
  return type != part.end() && type->is_string() ? type->get<std::string>() : "";
}

// The style of one decoder, or of the first in a sequence that has one.
std::optional<Style> find_style(const Json& decoder) {
  const std::string type = type_of(decoder);
  if (type == "ByteLevel") return Style::kByteLevel;
  if (type == "Metaspace") return Style::kSentencePiece;
  if (type == "Replace") {
    const Json pattern = decoder.value("pattern", Json::object());
    const bool spaces = pattern.is_object() && pattern.contains("String") && pattern["String"] == kMetaspace;
    return spaces ? std::optional(Style::kSentencePiece) : std::nullopt;
  }
  if (type != "Sequence") return std::nullopt;
  const auto parts = decoder.find("decoders");
  if (parts == decoder.end() || !parts->is_array()) return std::nullopt;
  for (const Json& part : *parts) {
    if (type_of(part) == "Sequence") continue;
    if (const auto style = find_style(part)) return style;
  }
  return std::nullopt;
}

// The next character of valid UTF-8, which JSON strings are.
char32_t next_character(std::string_view text, size_t& at) {
  const auto lead = static_cast<uint8_t>(text[at++]);
  const int more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t character = more == 0 ? lead : lead & (0x3F >> more);
  for (int i = 0; i < more && at < text.size(); ++i)
    character = character << 6 | (static_cast<uint8_t>(text[at++]) & 0x3F);
  return character;
}

std::string decode_byte_level(const std::string& token) {
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const std::optional<uint8_t> byte = character_to_byte(next_character(token, at));
    if (!byte) return token;  // not written in the alphabet: it is text
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

// Without the merges, which are most of the file and only encoding needs.
Json parse_without_merges(std::string_view text) {
  const auto keep = [](int depth, Json::parse_event_t event, Json& value) {
    return !(event == Json::parse_event_t::key && depth == 2 && value == "merges");
  };
  return Json::parse(text, keep, /*allow_exceptions=*/false);
}

bool to_id(const Json& value, size_t* id) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() ? value.get<uint64_t>() > kIdMax : true) return false;
  *id = value.get<size_t>();
  return true;
}

void store(std::vector<std::string>& bytes, size_t id, std::string value) {
  if (bytes.size() <= id) bytes.resize(id + 1);
  bytes[id] = std::move(value);
}

Status read_vocabulary(const Json& file, Style style, std::string_view origin, std::vector<std::string>& bytes) {
  const auto model = file.find("model");
  if (model == file.end() || !model->is_object()) return malformed(origin, "model is missing");
  if (const std::string type = type_of(*model); type != "BPE") {
    return unimplemented(origin, "model type '" + type + "' is not read; BPE is");
  }
  const auto vocabulary = model->find("vocab");
  if (vocabulary == model->end() || !vocabulary->is_object()) return malformed(origin, "model.vocab must be an object");
  for (const auto& [token, value] : vocabulary->items()) {
    size_t id = 0;
    if (!to_id(value, &id)) return malformed(origin, "model.vocab holds an id that is not one");
    store(bytes, id, style == Style::kByteLevel ? decode_byte_level(token) : decode_metaspace(token));
  }
  return {};
}

Status read_added_tokens(const Json& file, Style style, std::string_view origin, std::vector<std::string>& bytes) {
  const auto added = file.find("added_tokens");
  if (added == file.end() || added->is_null()) return {};
  if (!added->is_array()) return malformed(origin, "added_tokens must be a list");
  for (const Json& token : *added) {
    size_t id = 0;
    if (!token.is_object() || !token.contains("id") || !to_id(token["id"], &id) || !token.contains("content") ||
        !token["content"].is_string()) {
      return malformed(origin, "each of added_tokens must have an id and a content");
    }
    const auto content = token["content"].get<std::string>();
    // Some converters list the byte tokens here as well.
    store(bytes, id, style == Style::kSentencePiece ? decode_metaspace(content) : content);
  }
  return {};
}

}  // namespace

Result<Decoder> Decoder::parse(std::string_view tokenizer_json, std::string_view origin) {
  const Json file = parse_without_merges(tokenizer_json);
  if (file.is_discarded() || !file.is_object()) return malformed(origin, "it is not a JSON object");
  const Json none;
  const auto decoder = file.find("decoder");
  const std::optional<Style> style = find_style(decoder == file.end() ? none : *decoder);
  if (!style) {
    return unimplemented(origin, "decoder '" + type_of(decoder == file.end() ? none : *decoder) +
                                     "' is not read; ByteLevel and Metaspace are");
  }
  Decoder out;
  TUFT_TRY(read_vocabulary(file, *style, origin, out.bytes_));
  TUFT_TRY(read_added_tokens(file, *style, origin, out.bytes_));
  return out;
}

Result<Decoder> Decoder::load(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "tokenizer.json";
  TUFT_ASSIGN(const std::string text, read_file(path, kFileBytesMax));
  return parse(text, path.string());
}

std::string Decoder::token_bytes(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  return bytes_[static_cast<size_t>(id)];
}

}  // namespace tuft::tokenizer
