#include "api/json/perfetto_json.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "api/json/observe_json.h"
#include "api/json/observe_text.h"

namespace tuft::api {
namespace {

using telemetry_store::Span;

// Further rows share the last one.
constexpr size_t kRowsOfProcessMax = 256;

// The rows of one process: the ends of the spans that are open in each, the innermost last.
class Rows {
 public:
  size_t place(const Span& span) {
    const Nanos end = span.start + span.duration;
    for (size_t row = 0; row < open_.size(); ++row) {
      std::vector<Nanos>& ends = open_[row];
      while (!ends.empty() && ends.back() <= span.start) ends.pop_back();
      if (!ends.empty() && ends.back() < end && row + 1 < kRowsOfProcessMax) continue;
      ends.push_back(end);
      return row;
    }
    open_.push_back({end});
    return open_.size() - 1;
  }

 private:
  std::vector<std::vector<Nanos>> open_;
};

void write_event(JsonWriter& json, const Span& span, size_t process, size_t row) {
  json.begin_object();
  write_text(json, "name", span.name);
  write_text(json, "cat", span.scope.empty() ? "span" : span.scope);
  json.key("ph").string("X");
  write_micros(json.key("ts"), span.start);
  write_micros(json.key("dur"), span.duration);
  json.key("pid").integer(static_cast<int64_t>(process)).key("tid").integer(static_cast<int64_t>(row));
  json.key("args").begin_object().key("span_id").string(span.span_id);
  if (span.failed) write_text(json, "failed", span.status_message.empty() ? "yes" : span.status_message);
  for (const telemetry_store::Attribute& attribute : span.attributes) {
    write_text(json, attribute.key, attribute.value);
  }
  json.end_object().end_object();
  for (const telemetry_store::Event& event : span.events) {
    json.begin_object();
    write_text(json, "name", event.name);
    json.key("ph").string("i").key("s").string("t");
    write_micros(json.key("ts"), event.time);
    json.key("pid").integer(static_cast<int64_t>(process)).key("tid").integer(static_cast<int64_t>(row)).end_object();
  }
}

void write_process_name(JsonWriter& json, const std::pair<std::string, std::string>& process, size_t number) {
  json.begin_object().key("name").string("process_name").key("ph").string("M");
  json.key("pid").integer(static_cast<int64_t>(number)).key("args").begin_object();
  write_text(json, "name", process.second.empty() ? process.first : process.first + " " + process.second);
  json.end_object().end_object();
}

}  // namespace

JsonPieces perfetto_pieces(std::shared_ptr<const control::ObservedTrace> observed) {
  const std::vector<Span>& spans = observed->trace.spans;
  std::vector<size_t> order(spans.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(spans[a].start, -spans[a].duration) < std::pair(spans[b].start, -spans[b].duration);
  });
  std::map<std::pair<std::string, std::string>, std::pair<size_t, Rows>> processes;  // service, worker
  JsonWriter json;
  json.begin_object().key("displayTimeUnit").string("ms").key("traceEvents").begin_array();
  for (const size_t at : order) {
    const Span& span = spans[at];
    const auto [process, is_new] = processes.try_emplace({span.service, span.worker}, processes.size() + 1, Rows());
    if (is_new) write_process_name(json, process->first, process->second.first);
    write_event(json, span, process->second.first, process->second.second.place(span));
    if (json.size() >= kJsonPieceBytes) co_yield json.take_piece();
  }
  json.end_array().end_object();
  co_yield json.take_piece();
}

}  // namespace tuft::api
