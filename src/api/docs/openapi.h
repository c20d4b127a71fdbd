// The OpenAPI 3.1 document of the API, made from the route table and from endpoint_docs.cc.
//
// The room docs/ promises: every route is described, and the document follows the routes without a second list of
// paths.
//
// Bodies are described in a small language:
//   fields   name: type, name?: type, ...      "?" after the name: may be absent
//   type     string id int number bool time any map   "a"|"b"   [type]   {fields}   @Component
//            "?" after the type: may be null
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api/exchange.h"
#include "api/json/json_writer.h"
#include "api/routing/router.h"

namespace tuft::api {

struct EndpointDoc {
  Handler handler = nullptr;
  std::string_view summary;
  std::string_view query = {};    // a list of fields
  std::string_view request = {};  // a type or kProtobufBody; empty: no body
  std::string_view answer = {};   // a type, or the media type of a body that is not JSON; empty: 204
};
inline constexpr std::string_view kProtobufBody = "protobuf";

struct ComponentDoc {
  std::string_view name;
  std::string_view shape;
};

// One entry for each handler. Static storage.
std::span<const EndpointDoc> endpoint_docs();
std::span<const ComponentDoc> component_docs();
// Returns null if the route is not described.
const EndpointDoc* doc_of(const Route& route);

// Writes the JSON schema of a type. Returns false if `type` breaks the rules of the language above.
bool write_schema(std::string_view type, JsonWriter& json);

// Returns the document, which the first call makes.
const std::string& openapi_json();
// Returns the document as an HTML page without scripts or external resources.
const std::string& docs_page();

}  // namespace tuft::api
