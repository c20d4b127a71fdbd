// AdapterPager: keeps the adapters within a limit of memory. Others are paged out to files, and come back when an
// operation needs them, with every bit of weights, gradients and moments.
//
// The least recently used adapter leaves first: one that was not used for ten seconds, or else one of the tenant that
// has the most bytes in the engine. A tenant makes no room at the cost of a used adapter of a tenant that has no more
// bytes than itself. It waits until an own adapter stops working, for at most ten seconds. So a tenant that trains 16
// adapters at once does not take the only adapter of another away between two steps.
//
// Each adapter counts with the most bytes that it can occupy. A new adapter that finds no room starts in its page, and
// is refused if its page cannot be written or too much waits for its page already. A tenant may have half of what waits
// for pages. An adapter that comes back waits until others stop working; tenants take turns. Work in progress never
// needs more room, so that all adapters make progress as long as one fits. The page of a sampler stays valid, because a
// sampler never changes.
//
// An adapter in training stops working between two operations, but samples can follow each other without a pause. So
// while an adapter waits for room, those tenants yield that have most bytes at work, or the waiting one alone if it has
// as many: they start no samples on what is in the engine, until it is paged out and comes back in its turn, or nobody
// waits. So the adapters at work become fewer, each when its samples have ended, until the next one has room.
//
// The page files are limited, too. An adapter counts with the size of its page from its beginning, so that paging is
// never refused later. A tenant may have a quarter, and always one adapter if the limit of all allows it. These limits
// depend on no order, so that the adapters of a worker fit into the next one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fair_queue.h"
#include "base/result.h"
#include "engine/adapter_store.h"
#include "telemetry/instrument.h"
#include "telemetry/trace.h"
#include "worker/adapter_page.h"

namespace tuft::worker {

enum class AdapterKind : uint8_t { kTraining, kSampler };

struct PagerOptions {
  int64_t bytes_max = 0;            // of adapters in the engine; 0: no limit
  std::filesystem::path directory;  // of page files
  int64_t page_bytes_max = 0;       // of the pages of all adapters; 0: no limit
  int64_t leaving_bytes_max = 0;    // of adapters whose pages are not written yet; 0: bytes_max, or 256 MiB if more
};

// One move between the engine and a page. The engine thread creates and finishes it; the page thread runs it in
// between, those of one adapter in the order of sending.
struct PageJob {
  enum class Work : uint8_t {
    kRead,
    kWrite,
    kDrop,  // closes the file of a page that nobody needs, which may take long. Nobody finishes it
  };

  // Writes nothing, and drops the content, if the adapter was removed meanwhile. Does not throw: a lack of memory is
  // the status kResourceExhausted.
  void run();
  bool writes() const { return work == Work::kWrite; }

  uint64_t number = 0;
  engine::AdapterId adapter;
  std::string tenant;  // whose turn at the page thread it takes
  Work work = Work::kRead;
  int64_t bytes = 0;     // that its adapter takes until it is written
  bool dropped = false;  // the adapter was removed before it was written
  std::filesystem::path directory;
  std::shared_ptr<AdapterPage> page;
  const engine::AdapterStore* store = nullptr;  // for kRead
  engine::DetachedPointer content;              // to be written, or read; null while it is in its page
  Status status;
  Nanos begin = 0;
  telemetry::Span span;
};

// It has more than 25 methods: those that a user of adapters calls, and the steps of the way to a page and back.
//
// Confined to the engine thread. Adapters enter and leave the engine only through this class.
class AdapterPager {
 public:
  struct Surroundings {
    // Returns whether an operation or a sample uses the adapter now; it then stays in the engine.
    std::function<bool(const engine::AdapterId&)> at_work;
    // Gives the job to the page thread; finish() gets it back. Returns false, and leaves the job, where its queue is
    // full or has no memory.
    std::function<bool(std::unique_ptr<PageJob>&)> send;
  };
  // `model`, `store` and `clock` outlive it.
  AdapterPager(const engine::ModelSpec& model, engine::AdapterStore& store, const Clock& clock, std::string base_model,
               PagerOptions options, Surroundings surroundings);

  // See AdapterStore. The bytes are the tenant's. kResourceExhausted: "adapter_page_bytes" over a limit of page files,
  // "adapter_memory_bytes" where it has no room in the engine and cannot start in its page.
  Status create(const engine::AdapterId& id, engine::DetachedPointer adapter, AdapterKind kind,
                const std::string& tenant);
  // Makes a sampler of `tenant` with the current weights of `source`. Returns the bytes of its tensors.
  Result<int64_t> copy_to_sampler(const engine::AdapterId& source, const engine::AdapterId& sampler,
                                  const std::string& tenant);
  Status remove(const engine::AdapterId& id);

  bool exists(const engine::AdapterId& id) const { return adapters_.contains(id); }
  // Returns false for an adapter that has to be brought back before it can be used.
  bool in_engine(const engine::AdapterId& id) const;
  // Returns whether new samples of an adapter that is in the engine wait, because its tenant yields.
  bool yields(const engine::AdapterId& id) const;
  // Asks for an adapter that is in its page. One call serves all who wait. `cause` is the parent of the span.
  void bring_back(const engine::AdapterId& id, const telemetry::SpanContext& cause);
  void used(const engine::AdapterId& id);
  // Counts a request that needs the adapter, and whether the adapter is in the engine now.
  void looked_up(const engine::AdapterId& id) const;
  // Brings adapters back that wait for room, as far as others have stopped working, and chooses who yields.
  void go_on();
  bool waits() const { return !coming_.empty(); }

  struct Arrival {
    engine::AdapterId adapter;
    // kDataLoss: the adapter is lost and no longer exists. After another error it can be asked for again if it exists.
    Status status;
  };
  // Ends a job. Returns the adapter whose waiting work can go on, if there is one. Does not throw, whatever the job's
  // status is.
  std::optional<Arrival> finish(std::unique_ptr<PageJob> job);

  struct Counts {
    int training = 0;
    int samplers = 0;
    int paged_training = 0;
    int paged_samplers = 0;
    int waiting_training = 0;  // for room, among those paged
    int waiting_samplers = 0;
    int64_t reserved = 0;  // by those in the engine and those being read
    int64_t limit = 0;
    int64_t leaving = 0;   // by the unfinished jobs that write pages
    uint64_t changes = 0;  // grows when an adapter comes, goes or moves
  };
  const Counts& counts() const { return counts_; }

 private:
  enum class Location : uint8_t { kEngine, kPage, kWaiting, kReading };
  struct Entry {
    AdapterKind kind = AdapterKind::kTraining;
    engine::LoraSpec spec;
    std::string tenant;
    int64_t bytes = 0;                      // the most that it takes in the engine
    Location location = Location::kEngine;  // changed by move() alone
    std::shared_ptr<AdapterPage> page;      // of a sampler also while it is in the engine
    Nanos last_used = 0;                    // see next_use()
    uint64_t job = 0;                       // the newest
    Nanos asked = 0;                        // back, by Clock::monotonic()
    telemetry::SpanContext cause;           // of its way back
  };
  using Entries = std::unordered_map<engine::AdapterId, Entry>;

  bool broken() const { return clock_.monotonic() < broken_until_; }
  // Whether a page of an adapter of `bytes` of this tenant can be written now.
  bool may_write(const std::string& tenant, int64_t bytes) const;
  // Whether an adapter has room in the engine now.
  enum class Room : uint8_t {
    kMade,
    kNone,      // nothing can leave the engine
    kOfOthers,  // only adapters of tenants that have no more than this one
  };
  using BytesOfTenants = std::unordered_map<std::string_view, int64_t>;
  struct Claim {
    const std::string& tenant;
    int64_t bytes = 0;
    bool spares = true;  // used adapters of tenants that have no more
  };
  Room make_room(const Claim& claim);
  enum class Which : uint8_t { kAll, kAtWork };
  // Returns the bytes of the adapters that are in the engine or being read.
  BytesOfTenants bytes_of_tenants(Which which) const;
  Entries::iterator choose_leaving(const Claim& claim, const BytesOfTenants& held,
                                   const std::vector<Entries::iterator>& leaving, bool& spared);
  void choose_yielding(const std::string& waiting);
  Nanos next_use();
  bool page_out(const engine::AdapterId& id, Entry& entry);
  bool send_out(const engine::AdapterId& id, Entry& entry, engine::DetachedPointer& content);
  bool read_back(const engine::AdapterId& id, Entry& entry);
  Entry& add(const engine::AdapterId& id, AdapterKind kind, const engine::LoraSpec& spec, const std::string& tenant);
  int64_t page_bytes_of(AdapterKind kind, const engine::LoraSpec& spec) const;
  Status check_pages(const std::string& tenant, int64_t bytes) const;
  Error refused(Error error) const;
  void move(Entry& entry, Location to);
  void count(const Entry& entry, int by);
  bool send(const engine::AdapterId& id, Entry& entry, PageJob::Work work, engine::DetachedPointer* content);
  // Closes a page on the page thread, or on this one if that thread cannot take it.
  void drop(const std::string& tenant, std::shared_ptr<AdapterPage> page) const;
  void drop(std::unique_ptr<PageJob> job) const;
  std::optional<Arrival> finish_out(PageJob& job, Entry& entry);
  std::optional<Arrival> finish_in(PageJob& job, Entry& entry);
  void record(PageJob& job, AdapterKind kind) const;

  const engine::ModelSpec& model_;
  engine::AdapterStore& store_;
  const Clock& clock_;
  const std::string base_model_;
  const PagerOptions options_;
  const Surroundings surroundings_;
  // The counters of one kind of adapters.
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
  FairQueue<std::string, engine::AdapterId> coming_{1};  // by tenant: without room yet
  std::vector<std::string> yielding_;                    // tenants; none while no adapter waits for room
  std::map<std::string, int64_t> leaving_of_;            // by tenant: the bytes of Counts::leaving
  Counts counts_;
  Nanos last_use_ = 0;
  uint64_t last_job_ = 0;
  Nanos broken_until_ = 0;  // after a failed write, no page is written before this time
};

}  // namespace tuft::worker
