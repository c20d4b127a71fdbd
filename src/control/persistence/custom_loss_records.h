// The records of custom losses in the persistent store (docs/formats/persistence.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/types/types.h"
#include "loss_graph/program.h"

namespace tuft::control {

struct CustomLossRecord {
  std::string id;
  UserId user;
  SessionId session;
  std::vector<loss_graph::Input> inputs;
  std::string graph;  // as JSON
};

std::string to_json(const CustomLossRecord& record);
// kDataLoss if the text is not such a record. The graph is not checked.
Result<CustomLossRecord> custom_loss_from_json(std::string_view json);

}  // namespace tuft::control
