#include "chat/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "chat/unicode.h"

namespace tuft::chat {
namespace {

void append_hex(std::string& out, char32_t value, int digits) {
  static constexpr char kDigits[] = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kDigits[(value >> shift) & 0xF];
}

void append_escaped(std::string& out, char32_t c, std::string_view bytes, char quote) {
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == '\t') {
    out += "\\t";
  } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
    out += '\\';
    out += static_cast<char>(c);
  } else if (is_printable(c)) {
    out += bytes;
  } else if (c < 0x100) {
    append_hex(out += "\\x", c, 2);
  } else if (c < 0x10000) {
    append_hex(out += "\\u", c, 4);
  } else {
    append_hex(out += "\\U", c, 8);
  }
}

void append_string_repr(std::string& out, std::string_view text) {
  const bool only_single = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = only_single ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    append_escaped(out, c, text.substr(at, bytes), quote);
    at += bytes;
  }
  out += quote;
}

// Writes reprs; the depth of namespaces, which may hold themselves, is counted.
class Writer {
 public:
  Writer(Budget& budget, std::string& out) : budget_(budget), out_(out) {}

  Status repr(const Value& value) {
    TUFT_TRY(budget_.step());
    if (const auto* text = value.text()) {
      TUFT_TRY(budget_.allocate(text->size()));
      append_string_repr(out_, *text);
      return {};
    }
    if (value.is<Undefined>()) return put("Undefined");
    if (value.is<None>()) return put("None");
    if (const auto* flag = value.as<bool>()) return put(*flag ? "True" : "False");
    if (const auto* integer = value.as<int64_t>()) return put(std::to_string(*integer));
    if (const auto* number = value.as<double>()) return put(float_text(*number));
    if (value.is<List>()) return items(*value.sequence(), "[", "]");
    if (value.is<Tuple>()) return items(*value.sequence(), "(", value.sequence()->size() == 1 ? ",)" : ")");
    if (const auto* dict = value.dict()) return entries(*dict);
    return rare(value);
  }

 private:
  Status put(std::string_view text) {
    out_ += text;
    return {};
  }

  Status items(const Values& values, std::string_view open, std::string_view close) {
    out_ += open;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_ += ", ";
      TUFT_TRY(repr(values[i]));
    }
    return put(close);
  }

  Status entries(const Dict& dict) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!first) out_ += ", ";
      first = false;
      TUFT_TRY(repr(key));
      out_ += ": ";
      TUFT_TRY(repr(value));
    }
    return put("}");
  }

  Status attributes(const Namespace& object) {
    if (++namespaces_ > 1) return unsupported_here("printing a namespace inside a namespace");
    out_ += "<Namespace {";
    for (size_t i = 0; i < object.attributes.size(); ++i) {
      if (i > 0) out_ += ", ";
      append_string_repr(out_, object.attributes[i].first);
      out_ += ": ";
      TUFT_TRY(repr(object.attributes[i].second));
    }
    --namespaces_;
    return put("}>");
  }

  Status rare(const Value& value) {
    if (const auto* view = value.as<DictView>()) {
      Values shown;
      for (size_t i = 0; i < view->dict->entries().size(); ++i) shown.push_back(view_item(*view, i));
      TUFT_TRY(budget_.allocate(shown.size() * sizeof(Value)));
      return items(shown, std::string(value.type_name()) + "([", "])");
    }
    if (const auto* range = value.as<Range>()) {
      const std::string step = range->step == 1 ? "" : ", " + std::to_string(range->step);
      return put("range(" + std::to_string(range->start) + ", " + std::to_string(range->stop) + step + ")");
    }
    if (const auto* object = value.as<Namespace*>()) return attributes(**object);
    const auto* callable = value.as<std::shared_ptr<const Callable>>();
    if (callable != nullptr && (*callable)->kind == Callable::Kind::kMacro)
      return put("<Macro '" + (*callable)->name + "'>");
    return unsupported_here("printing a " + std::string(value.type_name()));
  }

  Budget& budget_;
  std::string& out_;
  int namespaces_ = 0;
};

}  // namespace

Result<std::string> to_text(Budget& budget, const Value& value) {
  std::string out;
  if (const auto* text = value.text()) {
    TUFT_TRY(budget.allocate(text->size()));
    out = *text;
  } else if (!value.is<Undefined>()) {
    TUFT_TRY(Writer(budget, out).repr(value));
  }
  return out;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer;
  const auto written =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  std::string_view text(buffer.data(), static_cast<size_t>(written.ptr - buffer.data()));
  const std::string sign = std::signbit(value) ? "-" : "";
  if (!sign.empty()) text.remove_prefix(1);
  const size_t e = text.find('e');
  const int exponent = std::stoi(std::string(text.substr(e + 1)));
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    const std::string magnitude = std::to_string(std::abs(exponent));
    return sign + digits[0] + (count > 1 ? "." + digits.substr(1) : "") + (exponent < 0 ? "e-" : "e+") +
           (magnitude.size() < 2 ? "0" : "") + magnitude;
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) return sign + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  return sign + digits.substr(0, static_cast<size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<size_t>(exponent) + 1);
}

namespace {

// "1_000" to "1000"; none where an underscore is not between two digits.
std::optional<std::string> without_underscores(std::string_view text, bool (*is_digit)(char)) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

bool is_decimal(char c) {
  return c >= '0' && c <= '9';
}

bool is_alphanumeric(char c) {
  return is_decimal(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool take_sign(std::string_view& text) {
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  return negative;
}

// Removes "0x" and the like where the base allows it; base 0 becomes what it says, 0 where it says nothing readable.
int take_prefix(std::string_view& text, int base) {
  static constexpr struct {
    char letter;
    int base;
  } kPrefixes[] = {{'b', 2}, {'o', 8}, {'x', 16}};
  for (const auto& prefix : kPrefixes) {
    if (text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == prefix.letter && (base == 0 || base == prefix.base)) {
      text.remove_prefix(text[2] == '_' ? 3 : 2);
      return prefix.base;
    }
  }
  if (base != 0) return base;
  return text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos ? 0 : 10;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text, int base) {
  text = strip(text, Side::kBoth);
  const bool negative = take_sign(text);
  base = take_prefix(text, base);
  if (base < 2 || base > 36) return std::nullopt;
  const auto digits = without_underscores(text, is_alphanumeric);
  if (!digits || digits->empty() || !is_alphanumeric((*digits)[0])) return std::nullopt;
  uint64_t magnitude = 0;
  const auto read = std::from_chars(digits->data(), digits->data() + digits->size(), magnitude, base);
  if (read.ec != std::errc() || read.ptr != digits->data() + digits->size()) return std::nullopt;
  constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
  if (magnitude > kLargest + (negative ? 1 : 0)) return std::nullopt;
  return static_cast<int64_t>(negative ? uint64_t{0} - magnitude : magnitude);
}

std::optional<double> parse_float(std::string_view text) {
  text = strip(text, Side::kBoth);
  const bool negative = take_sign(text);
  const auto digits = without_underscores(text, is_decimal);
  if (!digits || digits->empty()) return std::nullopt;
  std::string lower = *digits;
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c | 0x20) : c; });
  const bool named = lower == "inf" || lower == "infinity" || lower == "nan";
  if (!named && !is_decimal(lower[0]) && lower[0] != '.') return std::nullopt;
  double value = 0;
  const auto read = std::from_chars(lower.data(), lower.data() + lower.size(), value);
  if (read.ptr != lower.data() + lower.size() || read.ec == std::errc::invalid_argument) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) value = std::strtod(lower.c_str(), nullptr);
  return negative ? -value : value;
}

std::optional<int64_t> truncate(double value) {
  constexpr double kLimit = 9223372036854775808.0;
  if (!(value >= -kLimit && value < kLimit)) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace tuft::chat
