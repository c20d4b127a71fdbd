#include "telemetry/request/session_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <opentelemetry/proto/collector/trace/v1/trace_service.pb.h>

#include "base/text.h"
#include "telemetry/otlp/json.h"

namespace tuft::telemetry {
namespace {

namespace otel = opentelemetry::proto;
using Request = otel::collector::trace::v1::ExportTraceServiceRequest;
using OtlpSpan = otel::trace::v1::Span;
using Attributes = google::protobuf::RepeatedPtrField<otel::common::v1::KeyValue>;

constexpr std::string_view kSessionKey = "tuft.session_id";
constexpr std::string_view kAdaptersKey = "tuft.adapters";
// Attributes of a pass that are sums over all its requests.
constexpr std::string_view kSharedKeys[] = {kAdaptersKey, "tuft.tokens", "tuft.segments", "tuft.targets"};

const otel::common::v1::AnyValue* find(const Attributes& attributes, std::string_view key) {
  for (const auto& attribute : attributes) {
    if (attribute.key() == key) return &attribute.value();
  }
  return nullptr;
}

bool is_foreign_request(const OtlpSpan& span) {
  const auto* status = find(span.attributes(), "http.response.status_code");
  return status != nullptr && status->int_value() == 403;
}

// Finds the session to which each span belongs.
class Owners {
 public:
  Owners(std::string_view session, const std::vector<Request>& requests) : session_(session) {
    for (const Request& request : requests) {
      for (const auto& resource : request.resource_spans()) {
        for (const auto& scope : resource.scope_spans()) {
          for (const OtlpSpan& span : scope.spans()) add(span);
        }
      }
    }
    for (const Node& node : nodes_) tell_those_above(node);
    for (Node& node : nodes_) judge(node);
  }

  bool is_ours(const std::string& trace_id, const std::string& span_id) const {
    const auto found = by_id_.find(trace_id + span_id);
    return found != by_id_.end() && nodes_[found->second].is_ours;
  }

 private:
  enum class Named : uint8_t { kNobody, kUs, kOther };
  struct Node {
    std::string parent;
    Named named = Named::kNobody;
    bool us_below = false;
    bool others_below = false;
    bool is_ours = false;
  };

  void add(const OtlpSpan& span) {
    Node node;
    if (!span.parent_span_id().empty()) node.parent = span.trace_id() + span.parent_span_id();
    if (const auto* session = find(span.attributes(), kSessionKey)) {
      const bool us = session->string_value() == session_ && !is_foreign_request(span);
      node.named = us ? Named::kUs : Named::kOther;
    }
    const auto [found, is_new] = by_id_.try_emplace(span.trace_id() + span.span_id(), nodes_.size());
    if (is_new) nodes_.push_back(std::move(node));
  }

  Node* above(const Node& node) {
    const auto found = node.parent.empty() ? by_id_.end() : by_id_.find(node.parent);
    return found == by_id_.end() ? nullptr : &nodes_[found->second];
  }

  // Marks the spans up to the next one that names a session. Limited, because parents from clients may form a cycle.
  void tell_those_above(const Node& node) {
    if (node.named == Named::kNobody) return;
    Node* next = above(node);
    for (int depth = 0; next != nullptr && next->named == Named::kNobody && depth < kDepthMax; ++depth) {
      (node.named == Named::kUs ? next->us_below : next->others_below) = true;
      next = above(*next);
    }
  }

  void judge(Node& node) {
    const Node* named = &node;
    for (int depth = 0; named != nullptr && named->named == Named::kNobody && depth < kDepthMax; ++depth) {
      named = above(*named);
    }
    node.is_ours = named != nullptr ? named->named == Named::kUs : node.us_below && !node.others_below;
  }

  static constexpr int kDepthMax = 64;
  const std::string_view session_;
  std::vector<Node> nodes_;
  std::unordered_map<std::string, size_t> by_id_;
};

void keep_own_links(OtlpSpan& span, const Owners& owners) {
  auto& links = *span.mutable_links();
  links.erase(std::remove_if(links.begin(), links.end(),
                             [&](const auto& link) { return !owners.is_ours(link.trace_id(), link.span_id()); }),
              links.end());
}

void hide_others_share(OtlpSpan& span) {
  const auto* adapters = find(span.attributes(), kAdaptersKey);
  if (adapters == nullptr || adapters->int_value() <= 1) return;
  auto& attributes = *span.mutable_attributes();
  attributes.erase(std::remove_if(attributes.begin(), attributes.end(),
                                  [](const auto& attribute) {
                                    return std::find(std::begin(kSharedKeys), std::end(kSharedKeys), attribute.key()) !=
                                           std::end(kSharedKeys);
                                  }),
                   attributes.end());
}

// Removes spans of other sessions. Returns the number of spans that are left.
size_t keep_own(Request& request, const Owners& owners) {
  size_t kept = 0;
  for (auto& resource : *request.mutable_resource_spans()) {
    auto& scopes = *resource.mutable_scope_spans();
    for (auto& scope : scopes) {
      auto& spans = *scope.mutable_spans();
      spans.erase(
          std::remove_if(spans.begin(), spans.end(),
                         [&](const OtlpSpan& span) { return !owners.is_ours(span.trace_id(), span.span_id()); }),
          spans.end());
      for (OtlpSpan& span : spans) {
        keep_own_links(span, owners);
        hide_others_share(span);
      }
      kept += static_cast<size_t>(spans.size());
    }
    scopes.erase(std::remove_if(scopes.begin(), scopes.end(), [](const auto& scope) { return scope.spans().empty(); }),
                 scopes.end());
  }
  auto& resources = *request.mutable_resource_spans();
  resources.erase(std::remove_if(resources.begin(), resources.end(),
                                 [](const auto& resource) { return resource.scope_spans().empty(); }),
                  resources.end());
  return kept;
}

// ---- the Trace Event Format

struct TimelineSpan {
  const OtlpSpan* span = nullptr;
  std::string_view scope;
};

// The rows of one process. A span goes into the row of the spans around it in the same trace, else into a free row.
class Rows {
 public:
  size_t place(const OtlpSpan& span) {
    for (size_t i = 0; i < rows_.size(); ++i) {
      std::vector<const OtlpSpan*>& row = rows_[i];
      while (!row.empty() && row.back()->end_time_unix_nano() <= span.start_time_unix_nano()) row.pop_back();
      const bool fits = row.empty() || (row.back()->trace_id() == span.trace_id() &&
                                        row.back()->end_time_unix_nano() >= span.end_time_unix_nano());
      if (!fits) continue;
      row.push_back(&span);
      return i;
    }
    rows_.push_back({&span});
    return rows_.size() - 1;
  }

 private:
  std::vector<std::vector<const OtlpSpan*>> rows_;
};

class Timeline {
 public:
  explicit Timeline(std::string& out) : out_(out) {}

  void add(const std::vector<Request>& requests) {
    uint64_t begin = UINT64_MAX;
    for (const Request& request : requests) {
      for (const auto& resource : request.resource_spans()) {
        for (const auto& scope : resource.scope_spans()) {
          for (const OtlpSpan& span : scope.spans()) begin = std::min<uint64_t>(begin, span.start_time_unix_nano());
        }
      }
    }
    for (const Request& request : requests) {
      for (const auto& resource : request.resource_spans()) add_process(resource, begin);
    }
  }

 private:
  void add_process(const otel::trace::v1::ResourceSpans& resource, uint64_t begin) {
    ++process_;
    const auto* service = find(resource.resource().attributes(), "service.name");
    const auto* pid = find(resource.resource().attributes(), "process.pid");
    std::string name = service == nullptr ? "process" : service->string_value();
    if (pid != nullptr) name += " " + std::to_string(pid->int_value());
    open("process_name", "__metadata", "M", 0);
    out_ += ",\"args\":{\"name\":";
    quoted(name);
    out_ += "}}";
    std::vector<TimelineSpan> spans;
    for (const auto& scope : resource.scope_spans()) {
      for (const OtlpSpan& span : scope.spans()) spans.push_back({&span, scope.scope().name()});
    }
    // A span goes before the spans inside it.
    std::sort(spans.begin(), spans.end(), [](const TimelineSpan& a, const TimelineSpan& b) {
      if (a.span->start_time_unix_nano() != b.span->start_time_unix_nano()) {
        return a.span->start_time_unix_nano() < b.span->start_time_unix_nano();
      }
      return a.span->end_time_unix_nano() > b.span->end_time_unix_nano();
    });
    Rows rows;
    for (const TimelineSpan& span : spans) add_span(span, rows.place(*span.span), begin);
  }

  void add_span(const TimelineSpan& at, size_t row, uint64_t begin) {
    const OtlpSpan& span = *at.span;
    open(span.name(), at.scope, "X", row);
    out_ += ",\"ts\":";
    micros(span.start_time_unix_nano() - begin);
    out_ += ",\"dur\":";
    micros(span.end_time_unix_nano() - std::min(span.start_time_unix_nano(), span.end_time_unix_nano()));
    out_ += ",\"args\":{\"trace_id\":\"";
    append_hex(out_, span.trace_id());
    out_ += "\",\"span_id\":\"";
    append_hex(out_, span.span_id());
    out_ += '"';
    for (const auto& attribute : span.attributes()) {
      out_ += ',';
      quoted(attribute.key());
      out_ += ':';
      value(attribute.value());
    }
    if (span.status().code() == otel::trace::v1::Status::STATUS_CODE_ERROR) {
      out_ += ",\"error\":";
      quoted(span.status().message());
    }
    out_ += "}}";
  }

  void open(std::string_view name, std::string_view category, std::string_view phase, size_t row) {
    if (out_.back() != '[') out_ += ',';
    out_ += "{\"name\":";
    quoted(name);
    out_ += ",\"cat\":";
    quoted(category);
    out_ += ",\"ph\":\"";
    out_ += phase;
    out_ += "\",\"pid\":";
    append_number(out_, process_);
    out_ += ",\"tid\":";
    append_number(out_, row + 1);
  }

  // Appends microseconds with a precision of one nanosecond.
  void micros(uint64_t nanos) {
    append_number(out_, nanos / 1000);
    out_ += '.';
    const std::string rest = std::to_string(nanos % 1000);
    out_.append(3 - rest.size(), '0');
    out_ += rest;
  }

  void quoted(std::string_view text) { append_quoted(out_, text, "\\u00"); }

  void value(const otel::common::v1::AnyValue& any) {
    switch (any.value_case()) {
      case otel::common::v1::AnyValue::kStringValue:
        return quoted(any.string_value());
      case otel::common::v1::AnyValue::kBoolValue:
        out_ += any.bool_value() ? "true" : "false";
        return;
      case otel::common::v1::AnyValue::kIntValue:
        return append_number(out_, any.int_value());
      case otel::common::v1::AnyValue::kDoubleValue:
        if (std::isfinite(any.double_value())) return append_number(out_, any.double_value());
        break;
      default:
        break;
    }
    out_ += "null";
  }

  std::string& out_;
  int process_ = 0;
};

}  // namespace

SessionTrace make_session_trace(std::string_view session_id, std::span<const std::string> requests) {
  std::vector<Request> parsed;
  for (const std::string& bytes : requests) {
    Request request;
    if (request.ParseFromString(bytes)) parsed.push_back(std::move(request));
  }
  const Owners owners(session_id, parsed);
  SessionTrace trace;
  for (Request& request : parsed) trace.spans += keep_own(request, owners);
  if (trace.spans == 0) return trace;
  // This field is first, because Perfetto recognizes a file by its first bytes.
  trace.json = "{\"traceEvents\":[";
  Timeline(trace.json).add(parsed);
  Request all;
  for (Request& request : parsed) {
    for (auto& resource : *request.mutable_resource_spans()) all.add_resource_spans()->Swap(&resource);
  }
  trace.json += "],";
  std::string otlp;
  internal::otlp::append_json(otlp, all);
  trace.json.append(otlp, 1);
  return trace;
}

}  // namespace tuft::telemetry
