// Keeps adapters within their memory: those that were not used for longest wait in page files and come back when
// somebody needs them, with every bit of weights, gradients and moments.
//
// Each adapter is counted with what it takes at most. One that cannot have room at once (all others are at work) starts
// out in its page. What comes back waits in line until others stop working, and nothing that is at work needs more room
// to end: as long as one adapter fits, all of them get on. A sampler's page stays good, because a sampler never
// changes.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/instrument.h"
#include "telemetry/trace.h"
#include "worker/adapter_page.h"
#include "worker/traced_engine.h"

namespace tuft::worker {

enum class AdapterKind : uint8_t { kTraining, kSampler };

struct PagerOptions {
  int64_t bytes_max = 0;            // of adapters in the engine; 0: no limit
  std::filesystem::path directory;  // of page files
};

// One move between the engine and a page. Made and ended on the engine thread, run on the file thread in between; jobs
// run in the order in which they were sent.
struct PageJob {
  void run();

  uint64_t number = 0;
  engine::AdapterId adapter;
  bool out = false;
  std::filesystem::path directory;
  std::shared_ptr<AdapterPage> page;
  engine::AdapterState state;
  Status status;
  Nanos begin = 0;
  telemetry::Span span;
};

// Confined to the engine thread. Adapters come into the engine and leave it through this alone.
class AdapterPager {
 public:
  struct Surroundings {
    // Somebody works with the adapter now: it stays.
    std::function<bool(const engine::AdapterId&)> at_work;
    // Gives the job to the file thread; finish() gets it back. False: no room for it.
    std::function<bool(std::unique_ptr<PageJob>&)> send;
  };
  // `engine` and `clock` outlive it.
  AdapterPager(TracedEngine& engine, const Clock& clock, std::string base_model, PagerOptions options,
               Surroundings surroundings);

  // As in Engine.
  Status create(const engine::AdapterId& id, engine::AdapterState state, AdapterKind kind);
  // A sampler with the weights that `source` has now. Gives the bytes of its tensors.
  Result<int64_t> publish(const engine::AdapterId& source, const engine::AdapterId& sampler);
  Status remove(const engine::AdapterId& id);

  bool exists(const engine::AdapterId& id) const { return adapters_.contains(id); }
  // False: it has to be brought back before it can be used.
  bool in_engine(const engine::AdapterId& id) const;
  // Asks for one that is in its page; once for all who need it. `cause`: parent of the span.
  void bring_back(const engine::AdapterId& id, const telemetry::SpanContext& cause);
  void used(const engine::AdapterId& id);
  // A request that needs it came; counted with whether it is in the engine now.
  void looked_up(const engine::AdapterId& id) const;
  // Starts what waits for room, where others have stopped working.
  void go_on();

  struct Arrival {
    engine::AdapterId adapter;
    Status status;  // kDataLoss: it is lost, and does not exist any more
  };
  // What can go on because this job has ended.
  std::optional<Arrival> finish(std::unique_ptr<PageJob> job);

  struct Counts {
    int training = 0;
    int samplers = 0;
    int paged_training = 0;
    int paged_samplers = 0;
    int64_t reserved = 0;
    int64_t limit = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  enum class Place : uint8_t { kEngine, kPage, kWaiting, kReading };
  struct Entry {
    AdapterKind kind = AdapterKind::kTraining;
    engine::LoraSpec spec;
    int64_t bytes = 0;
    Place place = Place::kEngine;       // changed by move() alone
    std::shared_ptr<AdapterPage> page;  // of a sampler also while it is in the engine
    uint64_t last_used = 0;
    uint64_t job = 0;              // the newest
    telemetry::SpanContext cause;  // of its way back
  };
  using Entries = std::unordered_map<engine::AdapterId, Entry>;

  bool broken() const { return clock_.monotonic() < broken_until_; }
  bool make_room(int64_t bytes);
  Entries::iterator longest_unused();
  bool page_out(const engine::AdapterId& id, Entry& entry);
  bool send_out(const engine::AdapterId& id, Entry& entry, engine::AdapterState& state);
  bool read_back(const engine::AdapterId& id, Entry& entry);
  Entry& add(const engine::AdapterId& id, AdapterKind kind, const engine::LoraSpec& spec);
  void move(Entry& entry, Place to);
  void count(const Entry& entry, int by);
  bool send(const engine::AdapterId& id, Entry& entry, bool out, engine::AdapterState* state);
  std::optional<Arrival> finish_out(PageJob& job, Entry& entry);
  std::optional<Arrival> finish_in(PageJob& job, Entry& entry);
  void record(PageJob& job, AdapterKind kind) const;

  TracedEngine& engine_;
  const Clock& clock_;
  const std::string base_model_;
  const PagerOptions options_;
  const Surroundings surroundings_;
  // Of one kind.
  struct Counters {
    Counters(const std::string& base_model, AdapterKind kind);
    telemetry::BoundCounter lookups;
    telemetry::BoundCounter hits;
    telemetry::BoundCounter evictions;
  };
  const Counters& counters_of(const Entry& entry) const {
    return entry.kind == AdapterKind::kTraining ? training_ : samplers_;
  }
  const telemetry::BoundHistogram published_;
  const Counters training_;
  const Counters samplers_;
  Entries adapters_;
  std::deque<engine::AdapterId> coming_;  // without room yet
  Counts counts_;                         // reserved: by those in the engine and those being read
  uint64_t last_use_ = 0;
  uint64_t last_job_ = 0;
  Nanos broken_until_ = 0;  // a page could not be written: none is tried before
};

}  // namespace tuft::worker
