#include "tokenizer/tokenizer.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/utf8.h"
#include "tokenizer/utf8.h"

namespace tuft::tokenizer {
namespace {

constexpr size_t kFileBytesMax = 256 << 20;

std::string replace_invalid(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text.substr(at));
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      ++at;
      // A truncated character becomes one U+FFFD, no matter how many of its bytes exist.
      while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) ++at;
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out;
}

bool strips_first_space(const Json& decoder) {
  for (const Json* part : parts_of(decoder, "decoders")) {
    if (type_of(*part) == "Strip" && text(*part, "content") == " " && member(*part, "start").is_number_integer())
      return member(*part, "start").get<int64_t>() == 1;
    if (type_of(*part) == "Metaspace")
      return text(*part, "prepend_scheme", flag(*part, "add_prefix_space", true) ? "always" : "never") != "never";
  }
  return false;
}

}  // namespace

Status Tokenizer::read_template(const Json& processor, std::string_view origin) {
  for (const Json* part : parts_of(processor, "processors")) {
    const std::string type = type_of(*part);
    if (type == "ByteLevel") continue;
    if (type != "TemplateProcessing") return unsupported(origin, "post-processor '" + type + "' is not read");
    bool seen_text = false;
    for (const Json& item : member(*part, "single")) {
      if (member(item, "Sequence").is_object()) {
        seen_text = true;
        continue;
      }
      const std::string name = text(member(item, "SpecialToken"), "id");
      const Json& ids = member(member(member(*part, "special_tokens"), name.c_str()), "ids");
      if (name.empty() || !ids.is_array()) return malformed(origin, "a template uses a token that is not in its list");
      for (const Json& value : ids) {
        int32_t number = 0;
        if (!to_id(value, &number)) return malformed(origin, "a template has an invalid id");
        (seen_text ? suffix_ : prefix_).push_back(number);
      }
    }
  }
  return {};
}

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json, std::string_view origin) {
  const Json file = Json::parse(tokenizer_json, nullptr, /*allow_exceptions=*/false);
  if (file.is_discarded() || !file.is_object()) return malformed(origin, "it is not a JSON object");
  Tokenizer out;
  TUFT_ASSIGN(out.normalizer_, Normalizer::read(member(file, "normalizer"), origin));
  TUFT_ASSIGN(out.splitter_, Splitter::read(member(file, "pre_tokenizer"), origin));
  TUFT_ASSIGN(out.model_, Bpe::read(member(file, "model"), origin));
  TUFT_ASSIGN(out.decoder_, Decoder::read(file, origin));
  TUFT_TRY(out.read_template(member(file, "post_processor"), origin));
  out.strip_first_space_ = strips_first_space(member(file, "decoder"));
  TUFT_ASSIGN(const std::vector<AddedToken> added, read_added_tokens(file, origin));
  for (const AddedToken& token : added) {
    out.added_.emplace(token.content, token.id);
    if (token.special) out.special_.insert(token.id);
    if (!token.normalized) {
      out.raw_tokens_.add(token, token.content);
      continue;
    }
    TUFT_ASSIGN(std::string content, out.normalizer_.apply(token.content));
    out.normalized_tokens_.add(token, std::move(content));
  }
  return out;
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "tokenizer.json";
  TUFT_ASSIGN(const std::string text, read_file(path, kFileBytesMax));
  return parse(text, path.string());
}

std::optional<int32_t> Tokenizer::id(std::string_view token) const {
  const auto found = added_.find(std::string(token));
  return found != added_.end() ? std::optional(found->second) : model_.id(token);
}

// Called after each word, so that the rest of a text that is too long takes neither time nor memory.
Status Encoding::check() const {
  if (tokens_.size() + others_.size() - passed_ <= tokens_max_) return {};
  return invalid_argument("the text has more than " + std::to_string(tokens_max_) + " tokens",
                          std::string(kTooManyTokens));
}

void Encoding::pass_others(size_t end) {
  const auto begin = others_.begin();
  tokens_.insert(tokens_.end(), begin + static_cast<ptrdiff_t>(passed_), begin + static_cast<ptrdiff_t>(end));
  passed_ = end;
}

Result<bool> Encoding::advance(size_t steps) {
  for (; merged_ < long_words_.size(); ++merged_) {
    LongWord& next = long_words_[merged_];
    if (!word_) {
      pass_others(next.place);
      word_ = model_->start(std::move(next.text));
    }
    if (!model_->advance(*word_, steps, tokens_)) return false;
    word_.reset();
    TUFT_TRY(check());
  }
  if (tokens_.empty()) {
    tokens_.swap(others_);
  } else {
    pass_others(others_.size());
  }
  return true;
}

Status Tokenizer::encode_piece(std::string_view text, bool at_start, Encoding& out) const {
  return splitter_.split(text, at_start, [&](std::string_view word) {
    if (word.size() < kLongWordBytes) {
      model_.encode(word, out.others_);
    } else {
      out.long_words_.push_back({out.others_.size(), std::string(word)});
    }
    return out.check();
  });
}

Status Tokenizer::encode_text(std::string_view text, bool at_start, const EncodeOptions& options, Encoding& out) const {
  TUFT_ASSIGN(const std::string normalized, normalizer_.apply(text));
  if (options.charge && normalized.size() > text.size()) TUFT_TRY(options.charge(normalized.size() - text.size()));
  return normalized_tokens_.cut(normalized, [&](const Piece& piece) {
    if (!piece.token) {
      const std::string_view rest = std::string_view(normalized).substr(piece.begin, piece.end - piece.begin);
      return encode_piece(rest, at_start && piece.begin == 0, out);
    }
    out.others_.push_back(*piece.token);
    return out.check();
  });
}

Result<Encoding> Tokenizer::start(std::string_view text, const EncodeOptions& options) const {
  if (!is_utf8(text)) return invalid_argument("the text is not valid UTF-8", "bad_text");
  Encoding out(model_, options.tokens_max);
  if (options.add_special_tokens) out.others_ = prefix_;
  TUFT_TRY(raw_tokens_.cut(text, [&](const Piece& piece) {
    if (!piece.token) {
      return encode_text(text.substr(piece.begin, piece.end - piece.begin), piece.begin == 0, options, out);
    }
    out.others_.push_back(*piece.token);
    return out.check();
  }));
  if (options.add_special_tokens) out.others_.insert(out.others_.end(), suffix_.begin(), suffix_.end());
  TUFT_TRY(out.check());
  return out;
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  TUFT_ASSIGN(Encoding encoding, start(text, options));
  TUFT_TRY(encoding.advance(std::numeric_limits<size_t>::max()));
  return encoding.take();
}

std::string Tokenizer::decode(std::span<const int32_t> tokens, bool skip_special_tokens) const {
  std::string bytes;
  bool first = true;
  for (const int32_t token : tokens) {
    if (skip_special_tokens && is_special(token)) continue;
    std::string piece = decoder_.token_bytes(token);
    if (first && strip_first_space_ && piece.starts_with(' ')) piece.erase(0, 1);
    first = false;
    bytes += piece;
  }
  return replace_invalid(bytes);
}

}  // namespace tuft::tokenizer
