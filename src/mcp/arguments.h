// Reads and checks the arguments of a tool. The first problem is kept, in words that a model can act on. An argument
// that is null counts as absent.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "mcp/json.h"
#include "telemetry_store/query.h"

namespace tuft::mcp {

class Arguments {
 public:
  // `object` must outlive this and be an object or null.
  Arguments(const Input& object, const Clock& clock) : object_(object), clock_(clock) {}

  // The getters return `absent`, or nothing, if the argument is absent or wrong.
  std::string text(std::string_view name);
  int64_t integer(std::string_view name, int64_t absent, int64_t min, int64_t max);
  bool flag(std::string_view name, bool absent);
  std::optional<double> number(std::string_view name, double min, double max);
  std::string word(std::string_view name, std::string_view absent, std::initializer_list<std::string_view> words);
  std::vector<std::string> texts(std::string_view name, size_t count_max);
  std::map<std::string, std::string> text_by_name(std::string_view name, size_t count_max);

  // Reads `from` and `until`: "-15m" (s, m, h, d before now) or a time of RFC 3339. The default is the last hour.
  telemetry_store::TimeRange times();

  void require(std::string_view name, bool is_there);
  // Returns the first problem, or that of an argument that nobody has asked for.
  Status finish();

 private:
  const Input* find(std::string_view name);
  void wrong(std::string_view name, std::string_view rule);
  std::optional<Nanos> time(std::string_view name);

  const Input& object_;
  const Clock& clock_;
  std::vector<std::string> known_;
  Status problem_;
};

}  // namespace tuft::mcp
