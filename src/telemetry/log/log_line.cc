#include "telemetry/log/log_line.h"

#include <array>
#include <cmath>
#include <ctime>

#include "base/text.h"
#include "base/utf8.h"

namespace tuft::telemetry::internal {
namespace {

void append_padded(std::string& out, int64_t value, int digits) {
  std::array<char, 24> text{};
  for (int i = digits - 1; i >= 0; --i, value /= 10) text[static_cast<size_t>(i)] = static_cast<char>('0' + value % 10);
  out.append(text.data(), static_cast<size_t>(digits));
}

void append_time(std::string& out, Nanos wall) {
  const std::time_t seconds = wall / kSecond;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  append_padded(out, parts.tm_year + 1900, 4);
  out += '-';
  append_padded(out, parts.tm_mon + 1, 2);
  out += '-';
  append_padded(out, parts.tm_mday, 2);
  out += 'T';
  append_padded(out, parts.tm_hour, 2);
  out += ':';
  append_padded(out, parts.tm_min, 2);
  out += ':';
  append_padded(out, parts.tm_sec, 2);
  out += '.';
  append_padded(out, wall % kSecond / kMillisecond, 3);
  out += 'Z';
}

// Appends the content of a JSON string. Text lines use the same form for values.
void append_escaped(std::string& out, std::string_view text) {
  for (const char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (byte < 0x20 || byte == 0x7f) {
          out += "\\u00";
          append_hex(out, {&c, 1});
        } else {
          out += c;
        }
    }
  }
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  if (is_utf8(text)) {
    append_escaped(out, text);
  } else {
    append_escaped(out, to_utf8(text));
  }
  out += '"';
}

bool needs_quotes(std::string_view text) {
  if (text.empty()) return true;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == '"' || c == '=' || c == '\\' || c == 0x7f) return true;
  }
  return false;
}

void append_value(std::string& out, const AttributeValue& value, bool json) {
  switch (value.kind()) {
    case AttributeValue::Kind::kBool:
      out += value.as_bool() ? "true" : "false";
      break;
    case AttributeValue::Kind::kInt:
      append_number(out, value.as_int());
      break;
    case AttributeValue::Kind::kDouble:
      if (json && !std::isfinite(value.as_double())) {
        out += "null";
      } else {
        append_number(out, value.as_double());
      }
      break;
    case AttributeValue::Kind::kString:
      if (json || needs_quotes(value.as_string())) {
        append_json_string(out, value.as_string());
      } else {
        out += value.as_string();
      }
  }
}

void append_json_field(std::string& out, std::string_view key, std::string_view value) {
  if (out.back() != '{') out += ',';
  append_json_string(out, key);
  out += ':';
  append_json_string(out, value);
}

}  // namespace

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::kDebug:
      return "DEBUG";
    case Severity::kInfo:
      return "INFO";
    case Severity::kWarning:
      return "WARNING";
    case Severity::kError:
      return "ERROR";
  }
  return "INFO";
}

void append_text(std::string& out, const LogLine& line) {
  append_time(out, line.time);
  out += ' ';
  const std::string_view level = severity_name(line.severity);
  out += level;
  out.append(8 - level.size(), ' ');
  out += line.process;
  out += " [";
  out += line.event;
  out += "] ";
  append_escaped(out, line.message);
  for (const Attribute& attribute : line.attributes) {
    out += ' ';
    out += attribute.key.view();
    out += '=';
    append_value(out, attribute.value, false);
  }
  if (line.context.valid()) {
    out += " trace_id=";
    out += line.context.trace_id_hex();
    out += " span_id=";
    out += line.context.span_id_hex();
  }
}

void append_json(std::string& out, const LogLine& line) {
  out += "{\"time\":\"";
  append_time(out, line.time);
  out += '"';
  append_json_field(out, "level", severity_name(line.severity));
  append_json_field(out, "process", line.process);
  append_json_field(out, "event", line.event);
  append_json_field(out, "message", line.message);
  for (const Attribute& attribute : line.attributes) {
    out += ',';
    append_json_string(out, attribute.key.view());
    out += ':';
    append_value(out, attribute.value, true);
  }
  if (line.context.valid()) {
    append_json_field(out, "trace_id", line.context.trace_id_hex());
    append_json_field(out, "span_id", line.context.span_id_hex());
  }
  append_json_field(out, "code.file.path", line.where.file_name());
  out += ",\"code.line.number\":";
  append_number(out, line.where.line());
  append_json_field(out, "code.function.name", line.where.function_name());
  out += '}';
}

std::string to_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) {
      out += "\xef\xbf\xbd";
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace tuft::telemetry::internal
