// A collector for request tracing. The tables of requests are empty when a test begins.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <thread>

#include "telemetry/request_trace.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::telemetry {

using testing::ReceivedSpan;
using testing::text_of;

class Traced : public WithCollector {
 public:
  Traced() { trace_sweep(0); }

  ReceivedSpan get(const std::string& name) const {
    const auto found = span(name);
    EXPECT_TRUE(found) << name;
    return found.value_or(ReceivedSpan{});
  }
  ReceivedSpan starting(const std::string& prefix) const {
    for (const ReceivedSpan& span : receiver.spans()) {
      if (span.name.starts_with(prefix)) return span;
    }
    ADD_FAILURE() << prefix;
    return {};
  }
  size_t count(const std::string& name) const {
    const auto spans = receiver.spans();
    return static_cast<size_t>(
        std::count_if(spans.begin(), spans.end(), [&](const auto& s) { return s.name == name; }));
  }
};

inline void on_another_thread(const std::function<void()>& work) {
  std::thread(work).join();
}

}  // namespace tuft::telemetry
