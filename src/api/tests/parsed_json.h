// A JSON value that tests look into.
#pragma once

#include <initializer_list>
#include <memory>
#include <ostream>
#include <simdjson.h>
#include <string>
#include <string_view>

namespace tuft::api {

// What is missing, or is not what was asked for, is null.
class Json {
 public:
  Json() = default;
  static Json parse(std::string_view text) {
    Json json;
    json.parser_ = std::make_shared<simdjson::dom::parser>();
    json.good_ = json.parser_->parse(text.data(), text.size()).get(json.value_) == simdjson::SUCCESS;
    return json;
  }
  bool good() const { return good_; }

  Json operator[](const char* key) const {
    Json found = *this;
    found.good_ = good_ && value_[key].get(found.value_) == simdjson::SUCCESS;
    return found;
  }
  Json operator[](int index) const {
    Json found = *this;
    found.good_ = good_ && value_.at(static_cast<size_t>(index)).get(found.value_) == simdjson::SUCCESS;
    return found;
  }
  size_t size() const {
    simdjson::dom::array items;
    return good_ && value_.get_array().get(items) == simdjson::SUCCESS ? items.size() : 0;
  }
  std::string text() const { return std::string(value_.get_string().value()); }
  double number() const { return value_.get_double().value(); }

  // The value in its shortest form.
  std::string str() const { return good_ ? simdjson::minify(value_) : "null"; }
  friend bool operator==(const Json& json, const Json& other) { return json.str() == other.str(); }
  friend std::ostream& operator<<(std::ostream& out, const Json& json) { return out << json.str(); }

 private:
  std::shared_ptr<simdjson::dom::parser> parser_;
  simdjson::dom::element value_;
  bool good_ = false;
};

}  // namespace tuft::api
