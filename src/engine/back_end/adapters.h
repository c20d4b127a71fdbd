// Adapters: the AdapterStore of a back end (assembled_engine.h says what a BackEnd is).
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/adapter_store.h"
#include "engine/back_end/checks.h"
#include "engine/training_engine.h"

namespace tuft::engine {

// An optimizer step; a back end makes several of them together.
template <typename Adapter>
struct StepOfAdapter {
  Adapter* adapter = nullptr;  // each adapter at most once
  OptimParams params;          // of its optimizer
};

template <typename BackEnd>
class Adapters final : public AdapterStore {
 public:
  using Adapter = typename BackEnd::Adapter;
  // Keeps an adapter alive after it was removed.
  using Pointer = std::shared_ptr<Adapter>;

  explicit Adapters(BackEnd& back_end) : back_end_(back_end) {}

  Status create(const AdapterId& id, const AdapterState& state) override {
    return back_end_.guarded("another adapter", [&]() -> Status {
      TUFT_TRY(check_new(id));
      TUFT_ASSIGN(Pointer adapter, back_end_.make_adapter(state));
      add(id, std::move(adapter));
      return {};
    });
  }
  Status clone(const AdapterId& source, const AdapterId& copy) override {
    return back_end_.guarded("a copy of the adapter", [&]() -> Status {
      TUFT_ASSIGN(const Pointer from, find(source));
      TUFT_TRY(check_new(copy));
      add(copy, back_end_.clone(*from));
      return {};
    });
  }
  Status remove(const AdapterId& id) override {
    TUFT_ASSIGN(const Pointer adapter, find(id));
    release(*adapter);
    adapters_.erase(id);
    return {};
  }
  Result<AdapterState> take(const AdapterId& id) override {
    return back_end_.guarded("a copy of the adapter", [&]() -> Result<AdapterState> {
      TUFT_ASSIGN(const Pointer adapter, find(id));
      AdapterState state = adapter->state(adapter->has_moments());
      if (adapter->has_gradient()) state.gradients = adapter->gradients();
      TUFT_TRY(remove(id));
      return state;
    });
  }
  Result<AdapterState> export_state(const AdapterId& id, bool with_optimizer) const override {
    return back_end_.guarded("a copy of the adapter", [&]() -> Result<AdapterState> {
      TUFT_ASSIGN(const Pointer adapter, find(id));
      return adapter->state(with_optimizer);
    });
  }
  Status import_state(const AdapterId& id, const AdapterState& state) override {
    return back_end_.guarded("the optimizer state", [&]() -> Status {
      TUFT_ASSIGN(const Pointer adapter, find(id));
      TUFT_TRY(check_same_layers(adapter->spec(), state.spec));
      TUFT_TRY(check_adapter(back_end_.model(), state));
      TUFT_TRY(check_same_optimizer(adapter->optimizer(), state));
      begin_change(*adapter);
      adapter->assign(state);
      return {};
    });
  }

  const LoraSpec* spec(const AdapterId& id) const override {
    const auto found = adapters_.find(id);
    return found == adapters_.end() ? nullptr : &found->second->spec();
  }
  size_t size() const override { return adapters_.size(); }
  AdapterMemory memory() const override {
    AdapterMemory sum;
    for (const auto& [id, adapter] : adapters_) {
      const AdapterMemory one = adapter->memory();
      sum.weights += one.weights;
      sum.gradients += one.gradients;
      sum.optimizer += one.optimizer;
    }
    return sum;
  }
  int64_t bytes_of(const LoraSpec& spec, bool trains) const override { return back_end_.bytes_of(spec, trains); }

  Status clear_gradients(const AdapterId& id) override {
    return back_end_.guarded("clearing gradients", [&]() -> Status {
      TUFT_ASSIGN(const Pointer adapter, find(id));
      adapter->clear_gradients();
      return {};
    });
  }
  Status mark_gradients(const AdapterId& id) override {
    return back_end_.guarded("a copy of the gradients", [&]() -> Status {
      TUFT_ASSIGN(const Pointer adapter, find(id));
      adapter->mark_gradients();
      return {};
    });
  }
  Status restore_gradients(const AdapterId& id) override {
    return back_end_.guarded("the marked gradients", [&]() -> Status {
      TUFT_ASSIGN(const Pointer adapter, find(id));
      if (adapter->restore_gradients()) return {};
      return no_mark();
    });
  }
  Result<std::vector<LoraTensor>> gradients(const AdapterId& id) const override {
    return back_end_.guarded("a copy of the gradients", [&]() -> Result<std::vector<LoraTensor>> {
      TUFT_ASSIGN(const Pointer adapter, find(id));
      return adapter->gradients();
    });
  }

  // These serve the other ports of the back end.
  Result<Pointer> find(const AdapterId& id) const {
    const auto found = adapters_.find(id);
    if (found != adapters_.end()) return found->second;
    return not_found("adapter \"" + id.str() + "\" is not loaded: create or load it first", "adapter_not_loaded");
  }
  // Returns the adapter of each segment; null for the base model alone.
  Result<std::vector<Pointer>> find_all(const Pack& pack) const {
    std::vector<Pointer> adapters;
    for (const Segment& segment : pack.segments) {
      Pointer adapter;
      if (!segment.adapter.empty()) {
        TUFT_ASSIGN(adapter, find(segment.adapter));
      }
      adapters.push_back(std::move(adapter));
    }
    return adapters;
  }
  // Must be called before the weights of an adapter change. Drops the retained pass if it uses the adapter, and gives
  // the adapter a new version, so that later sequences share no cached block with earlier ones.
  void begin_change(Adapter& adapter) {
    release(adapter);
    adapter.set_version(++last_version_);
  }

 private:
  Status check_new(const AdapterId& id) const {
    if (!contains(id)) return {};
    return Error{ErrorCode::kAlreadyExists, "adapter \"" + id.str() + "\" is already loaded", "adapter_exists"};
  }
  void add(const AdapterId& id, Pointer adapter) {
    adapter->set_version(++last_version_);
    adapters_.emplace(id, std::move(adapter));
  }
  void release(Adapter& adapter) {
    if (back_end_.pass().uses(&adapter)) back_end_.pass().drop();
    back_end_.cache().pool().forget(adapter.version());
  }

  BackEnd& back_end_;
  std::unordered_map<AdapterId, Pointer> adapters_;
  uint64_t last_version_ = 0;  // 0 is the version of the base model
};

}  // namespace tuft::engine
