#include "api/docs/openapi.h"

#include <cctype>
#include <set>

#include <gtest/gtest.h>

#include "api/json/json_reader.h"

namespace tuft::api {
namespace {

std::string schema(std::string_view type) {
  JsonWriter json;
  return write_schema(type, json) ? std::move(json).take() : "";
}

TEST(OpenApi, ShapesBecomeSchemas) {
  EXPECT_EQ(schema("{a: int, b?: [string], c: @Cursor?}"),
            R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"array","items":{"type":"string"}},)"
            R"("c":{"anyOf":[{"$ref":"#/components/schemas/Cursor"},{"type":"null"}]}},"required":["a","c"]})");
  EXPECT_EQ(schema(R"("x"|"y")"), R"({"enum":["x","y"]})");
  EXPECT_EQ(schema("{}"), R"({"type":"object","properties":{}})");
  for (const char* broken : {"", "strin", "{a int}", "{a: int", "[int", "int int", "\"x", "{: int}"}) {
    EXPECT_EQ(schema(broken), "") << broken;
  }
}

TEST(OpenApi, RoutesAndDescriptionsMatch) {
  std::set<Handler> handlers;
  for (const Route& route : routes()) {
    handlers.insert(route.handler);
    EXPECT_NE(doc_of(route), nullptr) << "endpoint_docs.cc says nothing of " << route.pattern;
  }
  for (const EndpointDoc& doc : endpoint_docs()) {
    EXPECT_EQ(handlers.count(doc.handler), 1U) << "no route has what is described as: " << doc.summary;
    EXPECT_FALSE(doc.summary.empty());
    for (const std::string_view type : {doc.request, doc.answer}) {
      const bool is_media = type.empty() || type == kProtobufBody || type.find('/') != std::string_view::npos;
      EXPECT_TRUE(is_media || !schema(type).empty()) << doc.summary << ": " << type;
    }
    EXPECT_NE(schema("{" + std::string(doc.query) + "}"), "") << doc.query;
  }
  for (const ComponentDoc& component : component_docs()) EXPECT_NE(schema(component.shape), "") << component.name;
}

TEST(OpenApi, DocumentHasExactlyTheRoutes) {
  std::string text = openapi_json();
  JsonBody body(text);
  ASSERT_TRUE(body.status().ok()) << body.status().error().message;
  std::set<std::string> said;
  const auto paths = body.fields().required_object("paths");
  ASSERT_TRUE(paths);
  paths->for_each_member([&](std::string_view path, const JsonFields& methods) {
    methods.for_each_member([&](std::string_view method, const JsonFields&) {
      said.insert(std::string(method) + " " + std::string(path));
    });
  });
  std::set<std::string> known;
  for (const Route& route : routes()) {
    std::string name(method_name(route.method));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::string path(route.pattern);
    if (const size_t dots = path.find("..."); dots != std::string::npos) path.erase(dots, 3);
    known.insert(name + " " + path);
  }
  EXPECT_EQ(said, known);
  ASSERT_TRUE(body.status().ok());
}

TEST(OpenApi, EveryRouteSaysItsCredentials) {
  simdjson::dom::parser parser;
  const simdjson::dom::element document = parser.parse(openapi_json());
  for (const Route& route : routes()) {
    std::string name(method_name(route.method));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::string path(route.pattern);
    if (const size_t dots = path.find("..."); dots != std::string::npos) path.erase(dots, 3);
    std::set<std::string_view> schemes;
    for (const simdjson::dom::element choice : document["paths"][path][name]["security"]) {
      for (const auto [scheme, scopes] : choice.get_object()) schemes.insert(scheme);
    }
    std::set<std::string_view> expected;
    if (route.access == Access::kKey) expected = {"key"};
    if (route.access == Access::kBearer) expected = {"bearer", "key"};
    EXPECT_EQ(schemes, expected) << name << " " << path;
    for (const std::string_view scheme : schemes) {
      EXPECT_EQ(document["components"]["securitySchemes"][scheme].error(), simdjson::SUCCESS) << scheme;
    }
  }
}

TEST(OpenApi, EveryReferenceResolves) {
  const std::string& text = openapi_json();
  constexpr std::string_view kMark = "#/components/schemas/";
  std::set<std::string_view> names;
  for (const ComponentDoc& component : component_docs()) names.insert(component.name);
  for (size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at + 1)) {
    const size_t begin = at + kMark.size();
    EXPECT_EQ(names.count(std::string_view(text).substr(begin, text.find('"', begin) - begin)), 1U);
  }
}

TEST(OpenApi, PageShowsEveryRouteAndLoadsNothing) {
  const std::string& page = docs_page();
  for (const Route& route : routes()) EXPECT_NE(page.find(route.pattern), std::string::npos) << route.pattern;
  for (const char* part : {"<script", "src=", "http://", "https://"}) EXPECT_EQ(page.find(part), std::string::npos);
}

}  // namespace
}  // namespace tuft::api
