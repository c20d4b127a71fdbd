// Reads and checks the fields of a JSON object. The first problem is kept with the name of its field. A field that is
// null counts as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "openai/json_tree.h"

namespace tuft::openai {

struct Problem {
  Status status;
  std::string param;

  void note(std::string field, const std::string& rule) {
    if (!status.ok()) return;
    status = invalid_argument(field + " " + rule, "invalid_value");
    param = std::move(field);
  }
};

class Fields {
 public:
  // Both references must outlive this. `prefix` is put before names in messages, e.g. "stream_options.".
  Fields(const Json& object, Problem& problem, std::string prefix = {})
      : object_(object), problem_(problem), prefix_(std::move(prefix)) {}

  // Returns null if the field is absent.
  const Json* find(std::string_view name) const;
  void wrong(std::string_view name, const std::string& rule) const { problem_.note(prefix_ + std::string(name), rule); }

  std::optional<int64_t> integer(std::string_view name, int64_t min, int64_t max) const;
  std::optional<double> number(std::string_view name, double min, double max) const;
  bool boolean(std::string_view name, bool absent) const;
  std::optional<std::string> string(std::string_view name) const;

  // Notes "is not supported" unless the field is absent or has the value `harmless`, which has no effect.
  void refuse(std::string_view name, const Json& harmless = nullptr) const;

 private:
  const Json& object_;
  Problem& problem_;
  const std::string prefix_;
};

// Parses an object whose containers are nested at most `depth_max` deep.
Result<Json> parse_object(std::string_view text, int depth_max);

}  // namespace tuft::openai
