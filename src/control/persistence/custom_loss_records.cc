#include "control/persistence/custom_loss_records.h"

#include <exception>

#include <nlohmann/json.hpp>

#include "control/persistence/record_text.h"
#include "control/types/whole_number.h"

namespace tuft::control {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

// The graph is kept as text, because it is passed on as text.
std::string to_json(const CustomLossRecord& record) {
  Json inputs = Json::array();
  for (const loss_graph::Input& input : record.inputs) inputs.push_back({{"name", input.name}, {"rank", input.rank}});
  Json json;
  json["loss_id"] = record.id;
  json["user_id"] = record.user.str();
  json["session_id"] = record.session.str();
  json["inputs"] = std::move(inputs);
  json["graph"] = record.graph;
  return text_of(json);
}

// The JSON library throws for wrong types and for missing keys.
Result<CustomLossRecord> custom_loss_from_json(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    CustomLossRecord record;
    record.id = json.at("loss_id").get<std::string>();
    record.user = UserId(json.at("user_id").get<std::string>());
    record.session = SessionId(json.at("session_id").get<std::string>());
    for (const Json& input : json.at("inputs")) {
      record.inputs.push_back({input.at("name").get<std::string>(), whole_number<int>(input, "rank")});
    }
    record.graph = json.at("graph").get<std::string>();
    return record;
  } catch (const std::exception& error) {
    return data_loss("the record of a custom loss cannot be read: " + std::string(error.what()), "bad_record");
  }
}

}  // namespace tuft::control
