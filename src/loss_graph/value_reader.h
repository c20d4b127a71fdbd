// Reads the arguments of a node from JSON. Internal to the module.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "loss_graph/limits.h"
#include "loss_graph/value.h"

namespace tuft::loss_graph {

class ValueReader {
 public:
  using Json = nlohmann::json;
  using Indices = std::unordered_map<std::string, int64_t>;

  // Everything outlives this. `values_left` counts down with each value.
  ValueReader(const Indices& nodes, const Limits& limits, size_t& values_left)
      : nodes_(nodes), limits_(limits), values_left_(values_left) {}

  // Returns kInvalidArgument or kPayloadTooLarge, to be put behind the name of a node.
  Result<Value> read(const Json& json) { return read(json, 0); }

 private:
  Result<Value> read(const Json& json, int depth);
  Result<Value> read_object(const std::string& kind, const Json& json, int depth);
  Result<std::vector<Value>> read_items(const Json& json, int depth);
  Result<Value> read_dict(const Json& json, int depth);

  const Indices& nodes_;
  const Limits& limits_;
  size_t& values_left_;
};

}  // namespace tuft::loss_graph
