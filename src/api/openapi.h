// The API as a document: OpenAPI 3.1, made of the table of routes and of what endpoint_docs.cc says about each.
//
// Bodies are described in a small language:
//   fields   name: type, name?: type, ...      "?" behind the name: may be absent
//   type     string id int number bool time any map   "a"|"b"   [type]   {fields}   @Component
//            "?" behind the type: may be null
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api/exchange.h"
#include "api/json_writer.h"
#include "api/router.h"

namespace tuft::api {

struct EndpointDoc {
  Handler handler = nullptr;
  std::string_view summary;
  std::string_view query = {};    // fields
  std::string_view request = {};  // a type, or kProtobufBody; empty: no body
  std::string_view answer = {};   // a type, or the media type of another body; empty: 204
};
inline constexpr std::string_view kProtobufBody = "protobuf";

struct ComponentDoc {
  std::string_view name;
  std::string_view shape;
};

// One for each route. Static.
std::span<const EndpointDoc> endpoint_docs();
std::span<const ComponentDoc> component_docs();
// Null: nobody described it.
const EndpointDoc* doc_of(const Route& route);

// Writes the JSON schema of a type; false where it is not written in the language above.
bool write_schema(std::string_view type, JsonWriter& json);

// Made once.
const std::string& openapi_json();
// The same to read: a page without scripts and without anything from elsewhere.
const std::string& docs_page();

}  // namespace tuft::api
