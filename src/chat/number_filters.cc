// Filters that make numbers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "chat/filters.h"
#include "chat/operators.h"
#include "chat/text.h"
#include "chat/unicode.h"

namespace tuft::chat {
namespace {

Error too_large() {
  return unsupported_here("an integer beyond 64 bits");
}

bool is_long_integer(std::string_view text) {
  text = strip(text, Side::kBoth);
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return text.size() > 18 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

Result<Value> integer_of_text(std::string_view text, int64_t base, const Value& fallback) {
  if (const auto value = parse_integer(text, static_cast<int>(std::clamp<int64_t>(base, -1, 99)))) return Value(*value);
  if (is_long_integer(text)) return too_large();
  const auto number = parse_float(text);
  if (!number || !std::isfinite(*number)) return fallback;
  const auto whole = truncate(*number);
  return whole ? Result<Value>(Value(*whole)) : Result<Value>(too_large());
}

Result<Value> integer(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values,
              bind("int", arguments, {{"default", Value(int64_t{0})}, {"base", Value(int64_t{10})}}));
  TUFT_ASSIGN(const int64_t base, integer_argument(values[1], "int: base"));
  if (const auto* missing = input.as<Undefined>()) return template_error(*missing->why);
  if (const auto* text = input.text()) {
    TUFT_TRY(budget.scan(text->size()));
    return integer_of_text(*text, base, values[0]);
  }
  if (const auto value = input.integer()) return Value(*value);
  const auto* number = input.as<double>();
  if (number == nullptr || std::isnan(*number)) return values[0];
  if (std::isinf(*number)) return template_error("cannot convert float infinity to integer");
  const auto whole = truncate(*number);
  return whole ? Result<Value>(Value(*whole)) : Result<Value>(too_large());
}

Result<Value> floating(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("float", arguments, {{"default", Value(0.0)}}));
  if (const auto* missing = input.as<Undefined>()) return template_error(*missing->why);
  if (const auto number = input.number()) return Value(*number);
  const auto* text = input.text();
  if (text == nullptr) return values[0];
  TUFT_TRY(budget.scan(text->size()));
  const auto number = parse_float(*text);
  return number ? Value(*number) : values[0];
}

Result<Value> absolute(Budget&, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("abs", arguments, {}));
  if (const auto value = input.integer()) {
    return *value < 0 ? apply_unary(ast::UnaryOperator::kMinus, Value(*value)) : Value(*value);
  }
  if (const auto* number = input.as<double>()) return Value(std::fabs(*number));
  if (const auto* missing = input.as<Undefined>()) return template_error(*missing->why);
  return template_error("bad operand type for abs(): '" + std::string(input.type_name()) + "'");
}

// To the nearest, as decimal digits say it; a tie goes to the even digit.
double round_decimal(double value, int64_t precision) {
  if (!std::isfinite(value)) return value;
  char digits[400];
  std::snprintf(digits, sizeof digits, "%.*f", static_cast<int>(precision), value);
  return std::strtod(digits, nullptr);
}

Result<Value> round(Budget&, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values,
              bind("round", arguments, {{"precision", Value(int64_t{0})}, {"method", string_value("common")}}));
  TUFT_ASSIGN(const int64_t precision, integer_argument(values[0], "round: precision"));
  TUFT_ASSIGN(const auto method, text_argument(values[1], "round: method"));
  if (method != "common" && method != "ceil" && method != "floor") {
    return template_error("method must be common, ceil or floor");
  }
  if (const auto* missing = input.as<Undefined>()) return template_error(*missing->why);
  const auto number = input.number();
  if (!number) return template_error("round of a " + std::string(input.type_name()));
  if (precision < 0 || precision > 22) return unsupported_here("round with such a precision");
  if (method == "common") {
    if (const auto whole = input.integer()) return Value(*whole);
    return Value(round_decimal(*number, precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *number * scale;
  if (!std::isfinite(scaled)) return template_error("round of a number that is not finite");
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr FilterEntry kFilters[] = {{"abs", absolute}, {"float", floating}, {"int", integer}, {"round", round}};

}  // namespace

std::span<const FilterEntry> number_filters() {
  return kFilters;
}

}  // namespace tuft::chat
