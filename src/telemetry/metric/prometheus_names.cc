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

std::string unit_word(std::string_view ucum) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 20> kWords{{
      {"d", "days"},          {"h", "hours"},        {"min", "minutes"}, {"s", "seconds"},      {"ms", "milliseconds"},
      {"us", "microseconds"}, {"ns", "nanoseconds"}, {"By", "bytes"},    {"KiBy", "kibibytes"}, {"MiBy", "mebibytes"},
      {"GiBy", "gibibytes"},  {"m", "meters"},       {"V", "volts"},     {"A", "amperes"},      {"J", "joules"},
      {"W", "watts"},         {"Cel", "celsius"},    {"Hz", "hertz"},    {"%", "percent"},      {"1", ""},
  }};
  for (const auto& [symbol, word] : kWords) {
    if (symbol == ucum) return std::string(word);
  }
  return join(words_of(ucum));
}

// Returns the unit without annotations: "" for "{token}", "/s" for "{token}/s".
std::string without_annotations(std::string_view unit) {
  std::string out;
  int depth = 0;
  for (const char c : unit) {
    if (c == '{') ++depth;
    if (depth == 0) out.push_back(c);
    if (c == '}') --depth;
  }
  return out;
}

bool contains(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

void append_unit(Words& words, std::string_view unit) {
  const size_t slash = unit.find('/');
  const std::string main = unit_word(unit.substr(0, slash));
  if (!main.empty() && !contains(words, main)) words.push_back(main);
  if (slash == std::string_view::npos) return;
  std::string per = unit_word(unit.substr(slash + 1));
  if (per.ends_with('s')) per.pop_back();
  if (per.empty() || contains(words, per)) return;
  words.emplace_back("per");
  words.push_back(std::move(per));
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
  const std::string unit = without_annotations(info.unit);
  append_unit(words, unit);
  if (info.kind != InstrumentKind::kUpDownCounter && name.type == "gauge" && unit == "1") {
    std::erase(words, "ratio");
    words.emplace_back("ratio");
  }
  // series() appends it.
  if (name.type == "counter") std::erase(words, "total");
  const std::string main = unit == "1" ? "ratio" : unit_word(unit.substr(0, unit.find('/')));
  if (unit.find('/') == std::string::npos && !main.empty() && words.size() > 1 && words.back() == main)
    name.unit = main;
  name.family = join(words);
  return name;
}

std::string prometheus_label(std::string_view key) {
  std::string out;
  for (const char c : key) out.push_back(is_letter(c) || is_digit(c) ? c : '_');
  if (out.empty() || is_digit(out.front())) out.insert(0, "_");
  return out;
}

}  // namespace tuft::telemetry::internal
