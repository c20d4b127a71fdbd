// Checks that recording allocates nothing after a thread's first records. Counts all operator new of this binary.
#include <cstdlib>
#include <new>
#include <string>

#include <gtest/gtest.h>

#include "telemetry/log.h"
#include "telemetry/request_trace.h"
#include "telemetry/testing/program_metrics.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"
#include "telemetry/traced.h"

namespace {
thread_local size_t t_allocations = 0;

[[maybe_unused]] void* counted(size_t size) {
  ++t_allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) std::abort();
  return memory;
}
[[maybe_unused]] void* counted(size_t size, std::align_val_t alignment) {
  ++t_allocations;
  const size_t step = static_cast<size_t>(alignment);
  void* memory = std::aligned_alloc(step, (size + step - 1) / step * step);
  if (memory == nullptr) std::abort();
  return memory;
}
}  // namespace

// Sanitizers have operators of their own, which these would hide. With a sanitizer the tests run without counting.
#if !defined(TUFT_SANITIZE_ADDRESS) && !defined(TUFT_SANITIZE_THREAD)
void* operator new(size_t size) {
  return counted(size);
}
void* operator new[](size_t size) {
  return counted(size);
}
void* operator new(size_t size, std::align_val_t alignment) {
  return counted(size, alignment);
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return counted(size, alignment);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
#endif

namespace tuft::telemetry {
namespace {

void record_some(const Tracer& tracer, const std::string& session, int count) {
  for (int i = 0; i < count; ++i) {
    Span span = tracer.start_span("hf_model.forward_backward", {.attributes = {{"tuft.session_id", session},
                                                                               {"tuft.training_run_id", session},
                                                                               {"tuft.lora_id", session},
                                                                               {"tuft.backward", true},
                                                                               {"tuft.data_count", i}}});
    span.set_attribute("tuft.tokens", 512);
    span.add_event("micro_batch", {{"index", i}});
  }
}

TEST(HotPath, SpansAndBoundMetricsThenNoAllocation) {
  WithCollector collector;
  const Tracer tracer = get_tracer("tuft.test");
  const std::string session = "3f0c8a52-6f4e-4b51-9d0b-0d3f7c1b2a49";
  const BoundCounter counter = testing::program_metrics().created.with({{"operation_type", "sample"}});
  const BoundHistogram histogram = testing::program_metrics().execution_time.with({{"operation_type", "sample"}});
  record_some(tracer, session, 10);
  const size_t before = t_allocations;
  record_some(tracer, session, 500);
  for (int i = 0; i < 500; ++i) {
    counter.add(1);
    histogram.record(0.001 * i);
    testing::program_metrics().created.add(1, {{"operation_type", "sample"}});
  }
  EXPECT_EQ(t_allocations, before);
  EXPECT_TRUE(collector.flush());
}

int traced_function(int value) {
  TUFT_TRACED_FUNCTION({"value", value});
  return value;
}

void trace_some(const std::string& rid, int count) {
  const SpanContext root{1, 2, 3, 1};
  for (int i = 0; i < count; ++i) {
    trace_slice_start(TraceSpanName::PREFILL, rid);
    trace_event("cache_hit", rid, 0, {{"tokens", i}});
    trace_slice_end(TraceSpanName::PREFILL, rid, {.attributes = {{"tokens", i}}});
    trace_report_span(TraceSpanName::DECODE, rid, 1, 2);
    const TraceStage stages[] = {{TraceSpanName::SCHEDULE, 1, 2}, {TraceSpanName::PREFILL, 2, 3}};
    report_stages(root, stages);
    traced_function(i);
  }
}

TEST(HotPath, StagesOfARequestThenNoAllocation) {
  WithCollector collector;
  const std::string rid = "3f0c8a52-6f4e-4b51-9d0b-0d3f7c1b2a49";
  ASSERT_TRUE(trace_req_start(rid));
  trace_some(rid, 10);
  const size_t before = t_allocations;
  trace_some(rid, 200);
  EXPECT_EQ(t_allocations, before);
  trace_req_finish(rid);
  EXPECT_TRUE(collector.flush());
}

TEST(HotPath, TelemetryOffThenNoAllocation) {
  const Tracer tracer = get_tracer("tuft.test");
  const std::string session = "3f0c8a52-6f4e-4b51-9d0b-0d3f7c1b2a49";
  testing::program_metrics();
  trace_some(session, 1);  // data of this call site that is made once
  const size_t before = t_allocations;
  record_some(tracer, session, 100);
  trace_some(session, 100);
  testing::program_metrics().created.add(1, {{"operation_type", "never_seen"}});
  EXPECT_EQ(t_allocations, before);
}

}  // namespace
}  // namespace tuft::telemetry
