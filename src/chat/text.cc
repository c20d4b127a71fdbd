#include "chat/text.h"

#include <array>
#include <charconv>
#include <cmath>

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

class TextWriter {
 public:
  TextWriter(Budget& budget, std::string& out) : budget_(budget), out_(out) {}

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
    return unsupported_here("printing a " + std::string(value.type_name()));
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

  Budget& budget_;
  std::string& out_;
};

}  // namespace

Result<std::string> to_text(Budget& budget, const Value& value) {
  std::string out;
  if (const auto* text = value.text()) {
    TUFT_TRY(budget.allocate(text->size()));
    out = *text;
  } else if (!value.is<Undefined>()) {
    TUFT_TRY(TextWriter(budget, out).repr(value));
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

// Removes white space at both ends and a plus sign. Returns nothing if the rest does not start as a number.
std::optional<std::string_view> number_part(std::string_view text) {
  text = strip(text, Side::kBoth);
  const bool has_plus = text.starts_with('+');
  if (has_plus) text.remove_prefix(1);
  const std::string_view digits = !has_plus && text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || digits[0] < '0' || digits[0] > '9') return std::nullopt;
  return text;
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  const auto number = number_part(text);
  if (!number) return std::nullopt;
  Number value = 0;
  const auto read = std::from_chars(number->data(), number->data() + number->size(), value);
  if (read.ptr != number->data() + number->size() || read.ec != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) {
  return parse_number<int64_t>(text);
}

std::optional<double> parse_float(std::string_view text) {
  return parse_number<double>(text);
}

}  // namespace tuft::chat
