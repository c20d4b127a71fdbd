#include "api/docs/openapi.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>
#include <vector>

#include "api/handlers/handlers.h"

namespace tuft::api {
namespace {

// Parses the language that openapi.h describes and writes JSON schema.
class TypeWriter {
 public:
  TypeWriter(std::string_view text, JsonWriter& json) : text_(text), json_(json) {}

  bool whole_type() { return type() && at_end(); }

  // Writes each field of a list as a query parameter.
  bool parameters() {
    while (!at_end()) {
      const std::string_view name = word();
      const bool required = !take('?');
      if (name.empty() || !take(':')) return false;
      json_.begin_object().key("name").string(name).key("in").string("query").key("required").boolean(required);
      json_.key("schema");
      if (!type()) return false;
      json_.end_object();
      if (!take(',')) break;
    }
    return at_end();
  }

 private:
  bool type() {
    // The '?' follows the type but changes what is written before it.
    const bool nullable = is_nullable();
    if (nullable) json_.begin_object().key("anyOf").begin_array();
    if (!plain_type()) return false;
    if (nullable) {
      if (!take('?')) return false;
      json_.begin_object().key("type").string("null").end_object().end_array().end_object();
    }
    return true;
  }

  bool plain_type() {
    if (take('{')) return object();
    if (take('[')) {
      json_.begin_object().key("type").string("array").key("items");
      const bool good = type() && take(']');
      json_.end_object();
      return good;
    }
    if (take('@')) {
      json_.begin_object().key("$ref").string("#/components/schemas/" + std::string(word())).end_object();
      return true;
    }
    if (peek() == '"') return words();
    return named();
  }

  bool object() {
    std::vector<std::string_view> required;
    json_.begin_object().key("type").string("object").key("properties").begin_object();
    while (peek() != '}') {
      const std::string_view name = word();
      if (!take('?')) required.push_back(name);
      if (name.empty() || !take(':')) return false;
      json_.key(name);
      if (!type()) return false;
      if (!take(',')) break;
    }
    json_.end_object();
    if (!required.empty()) {
      json_.key("required").begin_array();
      for (const std::string_view name : required) json_.string(name);
      json_.end_array();
    }
    json_.end_object();
    return take('}');
  }

  bool words() {
    json_.begin_object().key("enum").begin_array();
    do {
      if (!take('"')) return false;
      const size_t end = text_.find('"');
      if (end == std::string_view::npos) return false;
      json_.string(text_.substr(0, end));
      text_.remove_prefix(end + 1);
    } while (take('|'));
    json_.end_array().end_object();
    return true;
  }

  bool named() {
    const std::string_view name = word();
    json_.begin_object();
    if (name == "id" || name == "string") {
      json_.key("type").string("string");
      if (name == "id") json_.key("pattern").string("^[A-Za-z0-9._:-]{1,256}$");
    } else if (name == "int" || name == "number" || name == "bool") {
      json_.key("type").string(name == "int" ? "integer" : name == "bool" ? "boolean" : name);
    } else if (name == "time") {
      json_.key("type").string("string").key("format").string("date-time");
    } else if (name == "map") {
      json_.key("type").string("object").key("additionalProperties").begin_object();
      json_.key("type").string("string").end_object();
    } else if (name != "any") {
      return false;
    }
    json_.end_object();
    return true;
  }

  // Returns true if the type that begins here ends with '?'.
  bool is_nullable() const {
    size_t depth = 0;
    for (size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '{' || c == '[') ++depth;
      if (depth == 0 && (c == ',' || c == '}' || c == ']')) return false;
      if (depth == 0 && c == '?') return true;
      if (c == '}' || c == ']') --depth;
    }
    return false;
  }

  void skip_blanks() {
    while (!text_.empty() && text_.front() == ' ') text_.remove_prefix(1);
  }
  char peek() {
    skip_blanks();
    return text_.empty() ? '\0' : text_.front();
  }
  bool at_end() { return peek() == '\0'; }
  bool take(char c) {
    if (peek() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  std::string_view word() {
    skip_blanks();
    const auto* const end = std::find_if(text_.begin(), text_.end(), [](char c) {
      return c != '_' && std::isalnum(static_cast<unsigned char>(c)) == 0;
    });
    const std::string_view found = text_.substr(0, static_cast<size_t>(end - text_.begin()));
    text_.remove_prefix(found.size());
    return found;
  }

  std::string_view text_;
  JsonWriter& json_;
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// OpenAPI cannot express a parameter that matches the rest of the path.
std::string path_of(std::string_view pattern) {
  std::string path(pattern);
  if (const size_t dots = path.find("..."); dots != std::string::npos) path.erase(dots, 3);
  return path;
}

std::vector<std::string> parameters_of(std::string_view pattern) {
  const std::string path = path_of(pattern);
  std::vector<std::string> names;
  for (size_t open = path.find('{'); open != std::string::npos; open = path.find('{', open + 1)) {
    names.push_back(path.substr(open + 1, path.find('}', open) - open - 1));
  }
  return names;
}

void write_content(JsonWriter& json, std::string_view media, std::string_view type) {
  json.key("content").begin_object().key(media).begin_object().key("schema");
  if (type.empty()) {
    json.begin_object().end_object();
  } else {
    (void)write_schema(type, json);
  }
  json.end_object().end_object();
}

void write_responses(JsonWriter& json, const Route& route, const EndpointDoc& doc) {
  const bool is_media = doc.answer.find('/') != std::string_view::npos;
  json.key("responses").begin_object().key(doc.answer.empty() ? "204" : "200").begin_object();
  json.key("description").string("done");
  if (!doc.answer.empty()) write_content(json, is_media ? doc.answer : kJsonType, is_media ? "" : doc.answer);
  json.end_object().key("default").begin_object();
  json.key("description")
      .string(route.access == Access::kKey || route.access == Access::kBearer
                  ? "refused, also for a key that is not known"
                  : "refused");
  write_content(json, kJsonType, "@Error");
  json.end_object().end_object();
}

void write_operation(JsonWriter& json, const Route& route, const EndpointDoc& doc) {
  json.begin_object().key("summary").string(doc.summary);
  const std::vector<std::string> path = parameters_of(route.pattern);
  if (!path.empty() || !doc.query.empty()) {
    json.key("parameters").begin_array();
    for (const std::string& name : path) {
      json.begin_object().key("name").string(name).key("in").string("path").key("required").boolean(true);
      json.key("schema").begin_object().key("type").string("string").end_object().end_object();
    }
    (void)TypeWriter(doc.query, json).parameters();
    json.end_array();
  }
  if (!doc.request.empty()) {
    const bool protobuf = doc.request == kProtobufBody;
    json.key("requestBody").begin_object().key("required").boolean(true);
    write_content(json, protobuf ? kProtobufType : kJsonType, protobuf ? "" : doc.request);
    json.end_object();
  }
  write_responses(json, route, doc);
  json.key("security").begin_array();
  const bool takes_bearer = route.access == Access::kBearer;
  if (takes_bearer) json.begin_object().key("bearer").begin_array().end_array().end_object();
  if (takes_bearer || route.access == Access::kKey) {
    json.begin_object().key("key").begin_array().end_array().end_object();
  }
  json.end_array().end_object();
}

std::string make_openapi() {
  // OpenAPI groups the methods of a path.
  std::map<std::string_view, std::vector<const Route*>> paths;
  for (const Route& route : routes()) paths[route.pattern].push_back(&route);
  JsonWriter json;
  json.begin_object().key("openapi").string("3.1.0").key("info").begin_object();
  json.key("title").string("tuft").key("version").string("1");
  json.key("description")
      .string(
          "The Tinker API of this server. Operations return a future (request_id); retrieve_future returns its "
          "result.");
  json.end_object().key("paths").begin_object();
  for (const auto& [pattern, methods] : paths) {
    json.key(path_of(pattern)).begin_object();
    for (const Route* route : methods) {
      const EndpointDoc* doc = doc_of(*route);
      json.key(lower(method_name(route->method)));
      write_operation(json, *route, doc != nullptr ? *doc : EndpointDoc{});
    }
    json.end_object();
  }
  json.end_object().key("components").begin_object().key("schemas").begin_object();
  for (const ComponentDoc& component : component_docs()) {
    json.key(component.name);
    (void)write_schema(component.shape, json);
  }
  json.end_object().key("securitySchemes").begin_object().key("key").begin_object();
  json.key("type").string("apiKey").key("in").string("header").key("name").string("X-API-Key");
  json.end_object().key("bearer").begin_object().key("type").string("http").key("scheme").string("bearer");
  json.end_object().end_object().end_object().end_object();
  return std::move(json).take();
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string make_page() {
  std::string page =
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>tuft API</title><style>body{font:15px/1.5 "
      "system-ui;margin:2em;max-width:70em}td{padding:.4em .8em;vertical-align:top;border-top:1px solid #ccc}"
      "code{font-size:90%}</style><h1>tuft API</h1><p>As OpenAPI: <a href=\"/openapi.json\">/openapi.json</a>. Send "
      "the API key in the header <code>X-API-Key</code>.</p><table>\n";
  const auto line = [](std::string_view what, std::string_view shape) {
    return shape.empty() ? std::string()
                         : "<br><small>" + std::string(what) + " <code>" + escaped(shape) + "</code></small>";
  };
  for (const Route& route : routes()) {
    const EndpointDoc* found = doc_of(route);
    const EndpointDoc doc = found != nullptr ? *found : EndpointDoc{};
    page += "<tr><td><code>" + std::string(method_name(route.method)) + "</code><td><code>" + escaped(route.pattern) +
            "</code><td>" + escaped(doc.summary) + line("query", doc.query) + line("body", doc.request) +
            line("answer", doc.answer) + "\n";
  }
  page += "</table><h2>Components</h2><table>\n";
  for (const ComponentDoc& component : component_docs()) {
    page += "<tr><td><code>" + escaped(component.name) + "</code><td><code>" + escaped(component.shape) + "</code>\n";
  }
  return page + "</table></html>\n";
}

}  // namespace

const EndpointDoc* doc_of(const Route& route) {
  const auto docs = endpoint_docs();
  const auto found =
      std::find_if(docs.begin(), docs.end(), [&](const EndpointDoc& doc) { return doc.handler == route.handler; });
  return found == docs.end() ? nullptr : &*found;
}

bool write_schema(std::string_view type, JsonWriter& json) {
  return TypeWriter(type, json).whole_type();
}

const std::string& openapi_json() {
  static const std::string document = make_openapi();
  return document;
}

const std::string& docs_page() {
  static const std::string page = make_page();
  return page;
}

Result<Answer> handle_openapi(Exchange&) {
  return json_answer(openapi_json());
}

Result<Answer> handle_docs(Exchange&) {
  Response response;
  response.content_type = "text/html; charset=utf-8";
  response.body = docs_page();
  response.headers = {{"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"}};
  return Answer(std::move(response));
}

}  // namespace tuft::api
