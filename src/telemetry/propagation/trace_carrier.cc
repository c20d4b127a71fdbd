// The text forms of request traces: FastDeploy's JSON of a thread's context, and SGLang's base64 of JSON by room.
#include "telemetry/propagation/trace_carrier.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "telemetry/instruments/health.h"

namespace tuft::telemetry {
namespace internal {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 20;
constexpr size_t kDepthMax = 8;
constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

using Uint128 = unsigned __int128;

std::string decimal(Uint128 value) {
  std::string out;
  do {
    out.insert(out.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
    value /= 10;
  } while (value != 0);
  return out;
}

// Python writes trace ids as plain numbers of 128 bits, for which no JSON library has a type.
std::optional<Uint128> parse_decimal(std::string_view text) {
  constexpr size_t kDigitsMax = 39;
  if (text.empty() || text.size() > kDigitsMax) return std::nullopt;
  Uint128 value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<Uint128>(c - '0');
    if (value > (~Uint128{0} - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

// Calls `leaf(path, text)` for every scalar. `path` holds the keys above it, joined by '\n'.
template <typename Leaf>
class LeafReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit LeafReader(Leaf leaf) : leaf_(std::move(leaf)) {}

  bool null() override { return take("null"); }
  bool boolean(bool value) override { return take(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return take(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return take(std::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return take(text); }
  bool string(string_t& value) override { return take(value); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*elements*/) override {
    keys_.emplace_back();
    return keys_.size() <= kDepthMax;
  }
  bool key(string_t& value) override {
    keys_.back() = value;
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  // Neither format has arrays.
  bool start_array(size_t /*elements*/) override { return false; }
  bool end_array() override { return false; }
  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*problem*/) override {
    return false;
  }

 private:
  bool take(const std::string& text) {
    // A scalar stands where an object is expected.
    if (keys_.empty()) return false;
    leaf_(keys_, text);
    return true;
  }

  Leaf leaf_;
  std::vector<std::string> keys_;
};

template <typename Leaf>
bool read_leaves(std::string_view text, Leaf leaf) {
  if (text.size() > kTextBytesMax) return false;
  LeafReader<Leaf> reader(std::move(leaf));
  return nlohmann::json::sax_parse(text, &reader);
}

// Collects the scalars of one thread's context.
struct ContextScalars {
  std::string traceparent;
  std::string tracestate;
  std::string baggage;
  Uint128 trace_id = 0;
  uint64_t span_id = 0;
  bool bad = false;

  void take(std::string_view parent, std::string_view key, const std::string& text) {
    if (parent == "root_span") {
      if (key == "traceparent") traceparent = text;
      if (key == "tracestate") tracestate = text;
      if (key == "baggage") baggage = text;
    } else if (parent == "prev_span" && (key == "trace_id" || key == "span_id")) {
      const auto number = parse_decimal(text);
      const bool is_span = key == "span_id";
      if (!number || (is_span && *number > UINT64_MAX)) {
        bad = true;
      } else if (is_span) {
        span_id = static_cast<uint64_t>(*number);
      } else {
        trace_id = *number;
      }
    }
  }

  TraceProcContext context() const {
    const SpanContext root = from_headers({traceparent, tracestate, baggage}, Peer::kOwnProcess);
    if (!root.valid()) return {};
    TraceProcContext context{.root = root, .previous = {}};
    const SpanContext previous{static_cast<uint64_t>(trace_id >> 64), static_cast<uint64_t>(trace_id), span_id,
                               root.flags};
    if (!bad && previous.valid()) context.previous = previous;
    return context;
  }
};

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = (group << 8) | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k) out += k <= count ? kBase64[(group >> (18 - 6 * k)) & 63] : '=';
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  if (text.size() % 4 == 1 || text.size() > kTextBytesMax) return std::nullopt;
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = kBase64.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>((bits >> count) & 255);
  }
  return out;
}

std::optional<uint64_t> parse_room(std::string_view text) {
  uint64_t room = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), room);
  if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return room;
}

bool absent(std::string_view text) {
  return text.empty() || text == "None";
}

void count_malformed() {
  internal::health_metrics().context_malformed.add(1, {{"header", kTraceHeader}});
}

}  // namespace

std::string to_remote_carrier(const std::map<uint64_t, TraceProcContext>& by_room) {
  std::string json;
  for (const auto& [room, context] : by_room) {
    json += json.empty() ? "{\"" : ", \"";
    json += std::to_string(room) + "\": " + context.to_json();
  }
  return json.empty() ? json : to_base64(json + "}");
}

std::map<uint64_t, TraceProcContext> from_remote_carrier(std::string_view base64) {
  if (absent(base64)) return {};
  const auto json = from_base64(base64);
  std::map<uint64_t, ContextScalars> parts;
  bool rooms_readable = true;
  const auto take = [&](const std::vector<std::string>& keys, const std::string& text) {
    const auto room = parse_room(keys.front());
    if (!room) {
      rooms_readable = false;
    } else if (keys.size() == 3) {
      parts[*room].take(keys[1], keys[2], text);
    }
  };
  const bool well_formed = json.has_value() && read_leaves(*json, take) && rooms_readable;
  std::map<uint64_t, TraceProcContext> by_room;
  for (const auto& [room, part] : parts) {
    const TraceProcContext context = part.context();
    if (context.valid()) by_room[room] = context;
  }
  if (!well_formed || by_room.empty()) count_malformed();
  return well_formed ? by_room : decltype(by_room){};
}

}  // namespace internal

std::string TraceProcContext::to_json() const {
  if (!valid()) return {};
  std::string json;
  inject(root, [&](std::string_view key, const std::string& value) {
    json += json.empty() ? R"({"root_span": {")" : R"(, ")";
    json.append(key).append("\": ").append(internal::quoted(value));
  });
  json += R"(}, "prev_span": )";
  if (!previous.valid()) return json + R"("None"})";
  const auto trace_id = static_cast<internal::Uint128>(previous.trace_id_high) << 64 | previous.trace_id_low;
  return json + R"({"span_id": )" + internal::decimal(previous.span_id) + R"(, "trace_id": )" +
         internal::decimal(trace_id) + "}}";
}

TraceProcContext TraceProcContext::from_json(std::string_view text) {
  if (internal::absent(text)) return {};
  internal::ContextScalars parts;
  const bool well_formed =
      internal::read_leaves(text, [&](const std::vector<std::string>& keys, const std::string& value) {
        if (keys.size() == 2) parts.take(keys[0], keys[1], value);
      });
  const TraceProcContext context = well_formed ? parts.context() : TraceProcContext{};
  if (!context.valid()) internal::count_malformed();
  return context;
}

}  // namespace tuft::telemetry
