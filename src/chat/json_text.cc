#include "chat/json_text.h"

#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "chat/text.h"
#include "chat/unicode.h"

namespace tuft::chat {
namespace {

using Json = nlohmann::ordered_json;

class Reader {
 public:
  explicit Reader(Budget& budget) : budget_(budget) {}

  Result<Value> read(const Json& json, int depth) {
    if (depth > kMaxValueDepth) {
      return invalid_argument("lists and objects in the conversation are nested more than " +
                              std::to_string(kMaxValueDepth) + " deep");
    }
    switch (json.type()) {
      case Json::value_t::boolean:
        return Value(json.get<bool>());
      case Json::value_t::number_integer:
        return Value(json.get<int64_t>());
      case Json::value_t::number_unsigned:
        if (json.get<uint64_t>() > INT64_MAX) return Value(json.get<double>());
        return Value(json.get<int64_t>());
      case Json::value_t::number_float:
        return Value(json.get<double>());
      case Json::value_t::string:
        return text(json.get_ref<const std::string&>());
      case Json::value_t::array:
        return array(json, depth);
      case Json::value_t::object:
        return object(json, depth);
      default:
        return Value(None{});
    }
  }

 private:
  Result<Value> text(const std::string& text) {
    if (!is_utf8(text)) return invalid_argument("a string in the conversation is not UTF-8");
    return make_string(budget_, text);
  }

  Result<Value> array(const Json& json, int depth) {
    Values items;
    for (const Json& item : json) {
      TUFT_ASSIGN(auto value, read(item, depth + 1));
      items.push_back(std::move(value));
    }
    return make_list(budget_, std::move(items));
  }

  Result<Value> object(const Json& json, int depth) {
    Dict dict;
    for (const auto& [key, item] : json.items()) {
      TUFT_ASSIGN(Value name, text(key));
      TUFT_ASSIGN(auto value, read(item, depth + 1));
      TUFT_TRY(dict.insert(budget_, std::move(name), std::move(value)));
    }
    return make_dict(budget_, std::move(dict));
  }

  Budget& budget_;
};

void append_unit(std::string& out, unsigned unit) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[(unit >> shift) & 0xF];
}

void append_json_string(std::string& out, std::string_view text, bool ascii_only) {
  static constexpr std::string_view kShort = "\b\t\n\f\r\"\\";
  static constexpr std::string_view kLetters = "btnfr\"\\";
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    const size_t found = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
    if (found != std::string_view::npos) {
      out += '\\';
      out += kLetters[found];
    } else if (c < 0x20 || (ascii_only && c >= 0x7F && c < 0x10000)) {
      append_unit(out, c);
    } else if (ascii_only && c >= 0x10000) {
      append_unit(out, 0xD800 + ((c - 0x10000) >> 10));
      append_unit(out, 0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out += text.substr(at, bytes);
    }
    at += bytes;
  }
  out += '"';
}

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_text(value);
}

class JsonTextWriter {
 public:
  JsonTextWriter(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style) {}

  Status write(const Value& value, int level) {
    TUFT_TRY(budget_.step());
    if (const auto* text = value.text()) {
      TUFT_TRY(budget_.allocate(2 * text->size()));
      append_json_string(out_, *text, style_.ascii_only);
      return {};
    }
    if (value.is<None>()) return put("null");
    if (const auto* flag = value.as<bool>()) return put(*flag ? "true" : "false");
    if (const auto* integer = value.as<int64_t>()) return put(std::to_string(*integer));
    if (const auto* number = value.as<double>()) return put(json_number(*number));
    if (const auto* items = value.sequence()) return array(*items, level);
    if (const auto* dict = value.dict()) return object(*dict, level);
    return template_error("Object of type " + std::string(value.type_name()) + " is not JSON serializable");
  }

  std::string take() { return std::move(out_); }

 private:
  Status put(std::string_view text) {
    out_ += text;
    return {};
  }

  Status start_line(int level) {
    if (!style_.pretty) return {};
    TUFT_TRY(budget_.allocate(1 + style_.indent.size() * static_cast<size_t>(level)));
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += style_.indent;
    return {};
  }

  Status array(const Values& items, int level) {
    if (items.empty()) return put("[]");
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) TUFT_TRY(separate());
      TUFT_TRY(start_line(level + 1));
      TUFT_TRY(write(items[i], level + 1));
    }
    TUFT_TRY(start_line(level));
    return put("]");
  }

  Status object(const Dict& dict, int level) {
    if (dict.entries().empty()) return put("{}");
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!first) TUFT_TRY(separate());
      first = false;
      TUFT_TRY(start_line(level + 1));
      const std::string name = key.text() ? *key.text() : std::to_string(*key.integer());
      TUFT_TRY(budget_.allocate(2 * name.size() + style_.key_separator.size()));
      append_json_string(out_, name, style_.ascii_only);
      out_ += style_.key_separator;
      TUFT_TRY(write(value, level + 1));
    }
    TUFT_TRY(start_line(level));
    return put("}");
  }

  Status separate() {
    TUFT_TRY(budget_.allocate(style_.item_separator.size()));
    return put(style_.item_separator);
  }

  Budget& budget_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

Result<Value> value_of_json(Budget& budget, const Json& json) {
  return Reader(budget).read(json, 0);
}

Result<std::string> to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  JsonTextWriter writer(budget, style);
  TUFT_TRY(writer.write(value, 0));
  return writer.take();
}

}  // namespace tuft::chat
