// Exemplars: single measurements of a histogram's bucket that lead to their trace. Internal to telemetry.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"

namespace tuft::telemetry::internal {

struct Exemplar {
  size_t bucket = 0;
  double value = 0;
  Nanos wall = 0;
  // All 0 if the measurement was made outside of a trace, which only the filter always_on keeps.
  uint64_t trace_id_high = 0;
  uint64_t trace_id_low = 0;
  uint64_t span_id = 0;

  bool in_trace() const { return (trace_id_high | trace_id_low) != 0 && span_id != 0; }
  friend bool operator==(const Exemplar&, const Exemplar&) = default;
};

// One exemplar for each bucket of one series. A bucket keeps the first measurement of each round; rounds end when
// metrics are collected, and about ten times a second while anything is exported. A measurement thus costs two
// loads more, and in each round one measurement of each bucket costs a clock reading and a few stores. Thread-safe and
// without locks: of two measurements at the same moment one is left out.
class Exemplars {
 public:
  explicit Exemplars(size_t buckets) : slots_(std::make_unique<Slot[]>(buckets)), size_(buckets) {}

  // Keeps the measurement for its bucket if the filter lets it pass and if it is the first of this round.
  void offer(size_t bucket, double value);
  // Returns the newest exemplars, in the order of their buckets. Leaves out one that is being written.
  std::vector<Exemplar> read() const;
  // Requires: called in a child of fork(), where a writer may have disappeared in the middle of its work.
  void reset();

 private:
  struct Slot {
    std::atomic<uint32_t> version{0};  // odd while a thread writes
    std::atomic<uint32_t> round{0};    // of the exemplar; 0: there is none
    std::atomic<double> value{0};
    std::atomic<Nanos> wall{0};
    std::atomic<uint64_t> trace_id_high{0};
    std::atomic<uint64_t> trace_id_low{0};
    std::atomic<uint64_t> span_id{0};
  };

  const std::unique_ptr<Slot[]> slots_;
  const size_t size_;
};

// Ends the round, so that each bucket takes a new exemplar. Thread-safe.
void end_exemplar_round();

}  // namespace tuft::telemetry::internal
