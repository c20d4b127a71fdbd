#include "worker/adapter_pager.h"

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

#include "metrics/engine.h"
#include "telemetry/instrument.h"
#include "telemetry/log.h"
#include "worker/operation_base.h"
#include "worker/without_exceptions.h"

namespace tuft::worker {
namespace {

// After a page could not be written, none is written for this time, because a full disk stays full for a while.
constexpr Nanos kBrokenPause = 30 * kSecond;

// A tenant may have this part of the limit of all pages, so that one tenant cannot take the room of the others.
constexpr int64_t kTenantParts = 4;

Error exists_already(const engine::AdapterId& id) {
  return {ErrorCode::kAlreadyExists, "adapter \"" + id.str() + "\" is already loaded", "adapter_exists"};
}

Error pages_full(const std::string& whose, int64_t bytes, int64_t limit, const std::string& of,
                 const std::string& cure) {
  return {ErrorCode::kResourceExhausted,
          whose + " could take " + std::to_string(bytes) + " bytes of page files, more than the " +
              std::to_string(limit) + " bytes " + of + " (adapter_page_bytes); " + cure,
          "adapter_page_bytes"};
}

Error no_room() {
  return {ErrorCode::kResourceExhausted,
          "there is no memory for another adapter of this base model (adapter_memory_bytes), because page files cannot "
          "be written, or not fast enough; try again later, or unload models that you do not train any more",
          "adapter_memory_bytes"};
}

// Needs no memory itself if there is none: short strings lie inside the object.
Error no_memory() noexcept try {
  return {ErrorCode::kResourceExhausted, "not enough memory to bring an adapter back; try again later", "memory"};
} catch (const std::bad_alloc&) {
  return {ErrorCode::kResourceExhausted, "out of memory", "memory"};
}

// Without memory for this news the adapter stays in its page, and whoever asks for it next is told.
Error lost(const Error& cause) noexcept try {
  return data_loss(
      "the adapter could not be brought back into memory: " + cause.message + "; load its newest checkpoint",
      "adapter_page_lost");
} catch (const std::bad_alloc&) {
  return no_memory();
}

std::string_view kind_name_of(AdapterKind kind) {
  return kind == AdapterKind::kTraining ? "training" : "sampler";
}

std::string_view direction_of(const PageJob& job) {
  return job.writes() ? "out" : "in";
}

std::string_view result_of(const PageJob& job) {
  if (job.dropped) return "dropped";
  return job.status.ok() ? "ok" : "failed";
}

}  // namespace

void PageJob::run() try {
  switch (work) {
    case Work::kDrop:
      page.reset();
      break;
    case Work::kWrite:
      // Only the engine thread copies the pointer, and only that of an adapter that exists: then there are two.
      dropped = page.use_count() == 1;
      if (!dropped) {
        status = content->visit([&](const engine::AdapterState& state) { return page->write(directory, state); });
      }
      if (status.ok()) content.reset();
      break;
    case Work::kRead: {
      auto read = page->read();
      auto made = read.ok() ? store->make(std::move(read).value()) : std::move(read).error();
      if (made.ok()) {
        content = std::move(made).value();
      } else {
        status = std::move(made).error();
      }
    }
  }
} catch (const std::bad_alloc&) {
  status = no_memory();
}

AdapterPager::AdapterPager(const engine::ModelSpec& model, engine::AdapterStore& store, const Clock& clock,
                           std::string base_model, PagerOptions options, Surroundings surroundings)
    : model_(model),
      store_(store),
      clock_(clock),
      base_model_(std::move(base_model)),
      options_(std::move(options)),
      surroundings_(std::move(surroundings)),
      published_(metrics::engine().lora_publish_duration.with({{"base_model", base_model_}})),
      training_(base_model_, AdapterKind::kTraining),
      samplers_(base_model_, AdapterKind::kSampler) {
  counts_.limit = options_.bytes_max;
}

AdapterPager::Counters::Counters(const std::string& base_model, AdapterKind kind) {
  const telemetry::Label model = {"base_model", base_model};
  const telemetry::Label name = {"kind", kind_name_of(kind)};
  lookups = metrics::engine().lora_lookups.with({model, name});
  hits = metrics::engine().lora_hits.with({model, name});
  evictions = metrics::engine().lora_evictions.with({model, name});
}

void AdapterPager::looked_up(const engine::AdapterId& id) const {
  const auto found = adapters_.find(id);
  if (found == adapters_.end()) return;
  const Counters& counters = counters_of(found->second);
  counters.lookups.add(1);
  if (found->second.location == Location::kEngine) counters.hits.add(1);
}

bool AdapterPager::in_engine(const engine::AdapterId& id) const {
  const auto found = adapters_.find(id);
  return found != adapters_.end() && found->second.location == Location::kEngine;
}

void AdapterPager::used(const engine::AdapterId& id) {
  if (const auto found = adapters_.find(id); found != adapters_.end()) found->second.last_used = next_use();
}

// Uses at the same time keep their order.
Nanos AdapterPager::next_use() {
  last_use_ = std::max(last_use_ + 1, clock_.monotonic());
  return last_use_;
}

void AdapterPager::count(const Entry& entry, int by) {
  ++counts_.changes;
  const bool training = entry.kind == AdapterKind::kTraining;
  const bool paged = entry.location != Location::kEngine;
  if (entry.location == Location::kEngine || entry.location == Location::kReading) counts_.reserved += by * entry.bytes;
  (training ? paged ? counts_.paged_training : counts_.training
   : paged  ? counts_.paged_samplers
            : counts_.samplers) += by;
  if (entry.location == Location::kWaiting) (training ? counts_.waiting_training : counts_.waiting_samplers) += by;
}

void AdapterPager::move(Entry& entry, Location to) {
  count(entry, -1);
  entry.location = to;
  count(entry, 1);
}

AdapterPager::Entry& AdapterPager::add(const engine::AdapterId& id, AdapterKind kind, const engine::LoraSpec& spec,
                                       const std::string& tenant) {
  std::string owner = tenant;  // may throw, so it comes first
  Entry& entry = adapters_[id];
  entry.kind = kind;
  entry.spec = spec;
  entry.tenant = std::move(owner);
  entry.bytes = store_.bytes_of(spec, kind == AdapterKind::kTraining);
  entry.last_used = next_use();
  count(entry, 1);
  return entry;
}

// A page of a run has weights, gradient and two moments.
int64_t AdapterPager::page_bytes_of(AdapterKind kind, const engine::LoraSpec& spec) const {
  constexpr int64_t kTensorsOfARun = 4;
  const int64_t weights = engine::parameters_of(model_, spec) * static_cast<int64_t>(sizeof(float));
  return kind == AdapterKind::kTraining ? kTensorsOfARun * weights : weights;
}

Status AdapterPager::check_pages(const std::string& tenant, int64_t bytes) const {
  if (options_.page_bytes_max == 0) return {};
  int64_t all = bytes;
  int64_t own = bytes;
  for (const auto& [id, entry] : adapters_) {
    const int64_t page = page_bytes_of(entry.kind, entry.spec);
    all += page;
    if (entry.tenant == tenant) own += page;
  }
  const int64_t part = options_.page_bytes_max / kTenantParts;
  if (!tenant.empty() && own > bytes && own > part) {
    return refused(pages_full("your adapters of this base model", own, part, "that one user may have",
                              "unload models that you do not train any more, or end sessions that sample"));
  }
  if (all > options_.page_bytes_max) {
    return refused(pages_full("the adapters of all users of this base model", all, options_.page_bytes_max,
                              "that all may have", "try again later"));
  }
  return {};
}

// Counts the refusal. The first of a reason makes its series, which needs memory.
Error AdapterPager::refused(Error error) const try {
  metrics::engine().scheduler_rejections.add(1, {{"base_model", base_model_}, {"reason", error.reason}});
  return error;
} catch (const std::bad_alloc&) {
  return error;
}

Status AdapterPager::create(const engine::AdapterId& id, engine::DetachedPointer adapter, AdapterKind kind,
                            const std::string& tenant) {
  if (exists(id)) return exists_already(id);
  const engine::LoraSpec spec = adapter->spec();
  const int64_t bytes = store_.bytes_of(spec, kind == AdapterKind::kTraining);
  TUFT_TRY(check_pages(tenant, page_bytes_of(kind, spec)));
  if (make_room({tenant, bytes}) != Room::kMade) {
    Entry& entry = add(id, kind, spec, tenant);
    if (send_out(id, entry, adapter)) return {};
    count(entry, -1);
    adapters_.erase(id);
    // Those that exist may go over the limit, so that they make progress. Further ones would take all memory.
    if (make_room({tenant, bytes, false}) != Room::kMade) return refused(no_room());
  }
  TUFT_TRY(store_.attach(id, std::move(adapter)));
  add(id, kind, spec, tenant);
  return {};
}

Result<int64_t> AdapterPager::copy_to_sampler(const engine::AdapterId& source, const engine::AdapterId& sampler,
                                              const std::string& tenant) {
  const Nanos begin = clock_.monotonic();
  if (exists(sampler)) return exists_already(sampler);
  const auto from = adapters_.find(source);
  if (from == adapters_.end()) {
    return not_found("adapter \"" + source.str() + "\" is not loaded: create or load it first", "adapter_not_loaded");
  }
  const engine::LoraSpec spec = from->second.spec;
  TUFT_TRY(check_pages(tenant, page_bytes_of(AdapterKind::kSampler, spec)));
  if (make_room({tenant, store_.bytes_of(spec, false)}) == Room::kMade) {
    TUFT_TRY(store_.clone(source, sampler));
    add(sampler, AdapterKind::kSampler, spec, tenant);
  } else {
    TUFT_ASSIGN(engine::DetachedPointer copy, store_.copy(source, false));
    TUFT_TRY(create(sampler, std::move(copy), AdapterKind::kSampler, tenant));
  }
  published_.record(to_seconds(clock_.monotonic() - begin));
  return engine::parameters_of(model_, spec) * static_cast<int64_t>(sizeof(float));
}

Status AdapterPager::remove(const engine::AdapterId& id) {
  const auto found = adapters_.find(id);
  if (found == adapters_.end() || found->second.location == Location::kEngine) TUFT_TRY(store_.remove(id));
  if (found == adapters_.end()) return {};
  const std::string tenant = std::move(found->second.tenant);
  std::shared_ptr<AdapterPage> page = std::move(found->second.page);
  count(found->second, -1);
  adapters_.erase(found);
  if (page.use_count() == 1) drop(tenant, std::move(page));
  return {};
}

bool AdapterPager::page_out(const engine::AdapterId& id, Entry& entry) {
  if (entry.page != nullptr) {
    if (!store_.remove(id).ok()) return false;
    move(entry, Location::kPage);
    return true;
  }
  auto adapter = store_.detach(id);
  if (!adapter.ok()) return false;
  if (send_out(id, entry, *adapter)) return true;
  // There is room for it, because detach() has just freed its memory. If it fails, the adapter is lost.
  const Status back = without_exceptions([&]() -> Status { return store_.attach(id, std::move(adapter).value()); });
  if (!back.ok()) {
    count(entry, -1);
    adapters_.erase(id);
  }
  return false;
}

// Takes the content only when nothing else needs memory. Without memory it returns false.
bool AdapterPager::send(const engine::AdapterId& id, Entry& entry, PageJob::Work work,
                        engine::DetachedPointer* content) try {
  auto job = std::make_unique<PageJob>();
  job->number = entry.job = ++last_job_;
  job->adapter = id;
  job->work = work;
  const bool out = job->writes();
  job->store = &store_;
  job->directory = options_.directory;
  job->tenant = entry.tenant;
  job->bytes = out ? entry.bytes : 0;
  job->page = entry.page;
  job->begin = clock_.monotonic();
  const telemetry::Attribute attributes[] = {
      {"tuft.base_model", base_model_}, {"tuft.lora_id", id.str()}, {"tuft.lora_rank", entry.spec.rank}};
  job->span = engine_tracer().start_span(out ? telemetry::Name("adapter.page_out") : telemetry::Name("adapter.page_in"),
                                         {.attributes = telemetry::Attributes(attributes),
                                          .parent = out ? telemetry::current_context() : entry.cause,
                                          .start = out ? job->begin : entry.asked});
  int64_t* const own = out ? &leaving_of_[entry.tenant] : nullptr;  // before the job is sent: it may throw
  if (content != nullptr) job->content = std::move(*content);
  const int64_t leaves = job->bytes;
  if (surroundings_.send(job)) {
    counts_.leaving += leaves;
    if (own != nullptr) *own += leaves;
    return true;
  }
  if (content != nullptr) *content = std::move(job->content);
  return false;
} catch (const std::bad_alloc&) {
  return false;
}

bool AdapterPager::send_out(const engine::AdapterId& id, Entry& entry, engine::DetachedPointer& content) {
  if (!may_write(entry.tenant, entry.bytes)) return false;
  try {
    entry.page = std::make_shared<AdapterPage>();
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (!send(id, entry, PageJob::Work::kWrite, &content)) {
    entry.page.reset();
    return false;
  }
  move(entry, Location::kPage);
  return true;
}

bool AdapterPager::read_back(const engine::AdapterId& id, Entry& entry) {
  if (!send(id, entry, PageJob::Work::kRead, nullptr)) return false;
  move(entry, Location::kReading);
  return true;
}

void AdapterPager::bring_back(const engine::AdapterId& id, const telemetry::SpanContext& cause) {
  const auto found = adapters_.find(id);
  if (found == adapters_.end() || found->second.location != Location::kPage) return;
  found->second.cause = cause;
  found->second.asked = clock_.monotonic();
  coming_.push(found->second.tenant, 1, engine::AdapterId(id));
  move(found->second, Location::kWaiting);
  go_on();
}

std::optional<AdapterPager::Arrival> AdapterPager::finish(std::unique_ptr<PageJob> job) {
  counts_.leaving -= job->bytes;
  if (job->writes()) {
    const auto own = leaving_of_.find(job->tenant);
    own->second -= job->bytes;
    if (own->second == 0) leaving_of_.erase(own);
  }
  const auto found = adapters_.find(job->adapter);
  record(*job, found == adapters_.end() ? AdapterKind::kTraining : found->second.kind);
  std::optional<Arrival> arrival;
  const bool is_removed = found == adapters_.end() || found->second.page != job->page;
  if (!is_removed) arrival = job->writes() ? finish_out(*job, found->second) : finish_in(*job, found->second);
  if (job->page.use_count() == 1) drop(std::move(job));
  return arrival;
}

void AdapterPager::drop(const std::string& tenant, std::shared_ptr<AdapterPage> page) const try {
  auto job = std::make_unique<PageJob>();
  job->tenant = tenant;
  job->page = std::move(page);
  drop(std::move(job));
} catch (const std::bad_alloc&) {
}

void AdapterPager::drop(std::unique_ptr<PageJob> job) const try {
  job->work = PageJob::Work::kDrop;
  (void)surroundings_.send(job);
} catch (const std::bad_alloc&) {
}

std::optional<AdapterPager::Arrival> AdapterPager::finish_out(PageJob& job, Entry& entry) {
  if (job.status.ok()) return std::nullopt;
  broken_until_ = clock_.monotonic() + kBrokenPause;
  const bool wanted = entry.location != Location::kPage;
  entry.page.reset();  // a job that reads it fails
  Status status = store_.attach(job.adapter, std::move(job.content));
  if (status.ok()) {
    move(entry, Location::kEngine);
  } else {
    count(entry, -1);
    adapters_.erase(job.adapter);
  }
  if (!wanted && status.ok()) return std::nullopt;
  return Arrival{std::move(job.adapter), std::move(status)};
}

std::optional<AdapterPager::Arrival> AdapterPager::finish_in(PageJob& job, Entry& entry) {
  if (entry.job != job.number) return std::nullopt;
  Status status = std::move(job.status);
  if (status.ok()) status = store_.attach(job.adapter, std::move(job.content));
  if (!status.ok() && status.error().code != ErrorCode::kResourceExhausted) status = lost(status.error());
  if (status.ok()) {
    move(entry, Location::kEngine);
    if (entry.kind == AdapterKind::kTraining) entry.page.reset();
  } else if (status.error().code == ErrorCode::kResourceExhausted) {
    move(entry, Location::kPage);  // the page is still valid
  } else {
    count(entry, -1);
    adapters_.erase(job.adapter);
  }
  return Arrival{std::move(job.adapter), std::move(status)};
}

// A move for whose record there is no memory is not logged.
void AdapterPager::record(PageJob& job, AdapterKind kind) const try {
  const telemetry::Label model = {"base_model", base_model_};
  const telemetry::Label direction = {"direction", direction_of(job)};
  const double seconds = to_seconds(clock_.monotonic() - job.begin);
  const telemetry::ContextScope scope(job.span.context());
  metrics::engine().lora_page_duration.record(seconds, {model, direction, {"result", result_of(job)}});
  if (job.dropped) return job.span.end();
  const std::string_view kind_name = kind_name_of(kind);
  job.span.set_attribute("tuft.adapter_kind", kind_name);
  if (job.status.ok()) {
    job.span.set_attribute("tuft.size_bytes", job.page->bytes());
    metrics::engine().lora_page_io.add(job.page->bytes(), {model, direction});
    telemetry::log_debug(job.writes() ? telemetry::Name("lora.paged_out") : telemetry::Name("lora.paged_in"),
                         job.writes() ? "an adapter was written to its page" : "an adapter was read from its page",
                         {{"tuft.base_model", base_model_},
                          {"tuft.lora_id", job.adapter.str()},
                          {"tuft.adapter_kind", kind_name},
                          {"tuft.size_bytes", job.page->bytes()},
                          {"tuft.seconds", seconds}});
  } else {
    job.span.record_error(job.status.error());
    metrics::engine().lora_page_failures.add(1, {model, direction});
    telemetry::log_error(
        "lora.page.failed", job.status.error().message,
        {{"tuft.base_model", base_model_}, {"tuft.lora_id", job.adapter.str()}, {"tuft.adapter_kind", kind_name}});
  }
  job.span.end();
} catch (const std::bad_alloc&) {
  job.span.end();
}

}  // namespace tuft::worker
