// Attribute keys and values. They are views: nothing is allocated or copied before the record is written.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace tuft::telemetry {

// A name that lives as long as the process: the name of a span or an event, or the key of an attribute. Recording keeps
// a pointer to it.
class Name {
 public:
  template <size_t N>
  consteval Name(const char (&literal)[N]) : text_(literal, N - 1) {}  // NOLINT(google-explicit-constructor)

  // Returns the name for `text`, for names known only at start-up, such as "POST /api/v1/asample". It is never freed:
  // call it for closed sets only. Thread-safe.
  static Name intern(std::string_view text);

  std::string_view view() const { return text_; }
  friend bool operator==(Name, Name) = default;

 private:
  explicit Name(std::string_view text) : text_(text) {}
  std::string_view text_;
};

// A value to record. A string is borrowed until the call that takes the value returns.
class AttributeValue {
 public:
  enum class Kind : uint8_t { kBool, kInt, kDouble, kString };

  AttributeValue(bool value) : kind_(Kind::kBool), int_(value) {}  // NOLINT(google-explicit-constructor)
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  AttributeValue(T value) : kind_(Kind::kInt), int_(static_cast<int64_t>(value)) {}  // NOLINT
  template <std::floating_point T>
  AttributeValue(T value) : kind_(Kind::kDouble), double_(static_cast<double>(value)) {}  // NOLINT
  AttributeValue(std::string_view value) : kind_(Kind::kString), string_(value) {}        // NOLINT
  AttributeValue(const std::string& value) : AttributeValue(std::string_view(value)) {}   // NOLINT
  AttributeValue(const char* value) : AttributeValue(std::string_view(value)) {}          // NOLINT

  Kind kind() const { return kind_; }
  bool as_bool() const { return int_ != 0; }
  int64_t as_int() const { return int_; }
  double as_double() const { return double_; }
  std::string_view as_string() const { return string_; }

 private:
  Kind kind_;
  union {
    int64_t int_;
    double double_;
    std::string_view string_;
  };
};

struct Attribute {
  Name key;
  AttributeValue value;
};

// A list of attributes as an argument: `{{"tuft.session_id", id}, {"tuft.backward", true}}` or a span of Attribute.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<Attribute> list) : span_(list.begin(), list.size()) {}
  Attributes(std::span<const Attribute> span) : span_(span) {}  // NOLINT(google-explicit-constructor)

  const Attribute* begin() const { return span_.data(); }
  const Attribute* end() const { return span_.data() + span_.size(); }
  size_t size() const { return span_.size(); }

 private:
  std::span<const Attribute> span_;
};

}  // namespace tuft::telemetry
