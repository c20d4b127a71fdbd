#include "telemetry/metric/prometheus_names.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace tuft::telemetry::internal {
namespace {

using Words = std::vector<std::string>;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Returns the runs of letters and digits. Dots, underscores and characters foreign to Prometheus separate them.
Words words_of(std::string_view text) {
  Words words;
  bool inside = false;
  for (const char c : text) {
    const bool part = is_letter(c) || is_digit(c) || c == ':';
    if (part && !inside) words.emplace_back();
    if (part) words.back().push_back(c);
    inside = part;
  }
  return words;
}

std::string join(const Words& words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out.push_back('_');
    out += word;
  }
  if (!out.empty() && is_digit(out.front())) out.insert(0, "_");
  return out;
}

using UnitWords = std::pair<std::string_view, std::string_view>;

// What Prometheus calls a unit: before a slash, and after one. Other units keep their symbol.
constexpr std::array<UnitWords, 26> kUnits{{
    {"d", "days"},          {"h", "hours"},
    {"min", "minutes"},     {"s", "seconds"},
    {"ms", "milliseconds"}, {"us", "microseconds"},
    {"ns", "nanoseconds"},  {"By", "bytes"},
    {"KiBy", "kibibytes"},  {"MiBy", "mebibytes"},
    {"GiBy", "gibibytes"},  {"TiBy", "tibibytes"},
    {"KBy", "kilobytes"},   {"MBy", "megabytes"},
    {"GBy", "gigabytes"},   {"TBy", "terabytes"},
    {"m", "meters"},        {"V", "volts"},
    {"A", "amperes"},       {"J", "joules"},
    {"W", "watts"},         {"g", "grams"},
    {"Cel", "celsius"},     {"Hz", "hertz"},
    {"%", "percent"},       {"1", ""},
}};
constexpr std::array<UnitWords, 7> kPerUnits{{
    {"s", "second"},
    {"m", "minute"},
    {"h", "hour"},
    {"d", "day"},
    {"w", "week"},
    {"mo", "month"},
    {"y", "year"},
}};

// A part with an annotation, such as "{token}", has no word.
template <size_t kSize>
std::string unit_word(const std::array<UnitWords, kSize>& table, std::string_view symbol) {
  if (symbol.find_first_of("{}") != std::string_view::npos) return "";
  for (const auto& [known, word] : table) {
    if (known == symbol) return std::string(word);
  }
  return join(words_of(symbol));
}

std::string main_unit(std::string_view unit) {
  return unit_word(kUnits, unit.substr(0, unit.find('/')));
}

bool contains(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Prometheus looks for each part of the unit among the name's words. "per_second" is no single word, so it is appended
// even to a name that ends in it.
void append_unit(Words& words, std::string_view unit) {
  if (std::string main = main_unit(unit); !main.empty() && !contains(words, main)) words.push_back(std::move(main));
  const size_t slash = unit.find('/');
  if (slash == std::string_view::npos) return;
  if (const std::string per = unit_word(kPerUnits, unit.substr(slash + 1)); !per.empty()) words.push_back("per_" + per);
}

std::string_view type_of(InstrumentKind kind) {
  switch (kind) {
    case InstrumentKind::kCounter:
    case InstrumentKind::kObservableCounter:
      return "counter";
    case InstrumentKind::kHistogram:
      return "histogram";
    case InstrumentKind::kUpDownCounter:
    case InstrumentKind::kGauge:
    case InstrumentKind::kObservableGauge:
      break;
  }
  return "gauge";
}

}  // namespace

PrometheusName prometheus_name(const InstrumentInfo& info) {
  PrometheusName name{.family = "", .type = std::string(type_of(info.kind)), .unit = ""};
  Words words = words_of(info.name);
  const std::string_view unit = info.unit;
  append_unit(words, unit);
  if (info.kind != InstrumentKind::kUpDownCounter && name.type == "gauge" && unit == "1") {
    std::erase(words, "ratio");
    words.emplace_back("ratio");
  }
  // series() appends it.
  if (name.type == "counter") std::erase(words, "total");
  const std::string main = unit == "1" ? "ratio" : main_unit(unit);
  if (unit.find('/') == std::string_view::npos && !main.empty() && words.size() > 1 && words.back() == main)
    name.unit = main;
  name.family = join(words);
  return name;
}

std::string prometheus_label(std::string_view key) {
  std::string out;
  for (const char c : key) {
    const bool inside_character = (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;  // of UTF-8
    if (!inside_character) out.push_back(is_letter(c) || is_digit(c) ? c : '_');
  }
  if (out.empty()) return "_";
  if (is_digit(out.front())) return "key_" + out;
  return out.front() == '_' && !out.starts_with("__") ? "key" + out : out;
}

}  // namespace tuft::telemetry::internal
