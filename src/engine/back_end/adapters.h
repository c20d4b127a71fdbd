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
  Result<DetachedPointer> make(AdapterState state) const override {
    if constexpr (BackEnd::kDetaches) {
      return back_end_.guarded("another adapter", [&]() -> Result<DetachedPointer> {
        TUFT_ASSIGN(Pointer adapter, back_end_.make_adapter(state));
        return DetachedPointer(std::make_unique<Detached>(std::move(adapter)));
      });
    } else {
      return AdapterStore::make(std::move(state));
    }
  }
  Status attach(const AdapterId& id, DetachedPointer adapter) override {
    auto* const own = dynamic_cast<Detached*>(adapter.get());
    if (own == nullptr) return AdapterStore::attach(id, std::move(adapter));
    return back_end_.guarded("another adapter", [&]() -> Status {
      TUFT_TRY(check_new(id));
      add(id, std::move(own->adapter));
      return {};
    });
  }
  Result<DetachedPointer> detach(const AdapterId& id) override {
    if constexpr (BackEnd::kDetaches) {
      return back_end_.guarded("the adapter's way out", [&]() -> Result<DetachedPointer> {
        TUFT_ASSIGN(Pointer adapter, find(id));
        DetachedPointer detached = std::make_unique<Detached>(std::move(adapter));
        TUFT_TRY(remove(id));
        return detached;
      });
    } else {
      return AdapterStore::detach(id);
    }
  }
  Status replace(const AdapterId& id, DetachedPointer adapter) override {
    if constexpr (BackEnd::kDetaches) {
      if (auto* const own = dynamic_cast<Detached*>(adapter.get())) return replace(id, std::move(own->adapter));
    }
    return AdapterStore::replace(id, std::move(adapter));
  }
  Result<DetachedPointer> copy(const AdapterId& id, bool with_optimizer) const override {
    if constexpr (BackEnd::kDetaches) {
      return back_end_.guarded("a copy of the adapter", [&]() -> Result<DetachedPointer> {
        TUFT_ASSIGN(const Pointer from, find(id));
        return DetachedPointer(std::make_unique<Detached>(back_end_.clone(*from, with_optimizer), with_optimizer));
      });
    } else {
      return AdapterStore::copy(id, with_optimizer);
    }
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
      AdapterState state = whole_state(*adapter, adapter->has_moments());
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
      if (state.has_optimizer) TUFT_TRY(check_same_optimizer(adapter->optimizer(), state.optimizer));
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
  struct Detached final : DetachedAdapter {
    explicit Detached(Pointer of) : adapter(std::move(of)), with_optimizer(adapter->has_moments()) {}
    Detached(Pointer of, bool with_moments) : adapter(std::move(of)), with_optimizer(with_moments) {}
    const LoraSpec& spec() const override { return adapter->spec(); }
    Status visit(const Visit& visit) const override {
      return BackEnd::guarded("a copy of the adapter",
                              [&]() -> Status { return visit(whole_state(*adapter, with_optimizer)); });
    }
    Pointer adapter;
    bool with_optimizer;  // the state has moments, zeros where the adapter has none
  };

  static AdapterState whole_state(const Adapter& adapter, bool with_optimizer) {
    AdapterState state = adapter.state(with_optimizer);
    if (adapter.has_gradient()) state.gradients = adapter.gradients();
    return state;
  }
  Status replace(const AdapterId& id, Pointer made) {
    TUFT_ASSIGN(const Pointer old, find(id));
    TUFT_TRY(check_same_layers(old->spec(), made->spec()));
    if (made->has_moments()) {
      TUFT_TRY(check_same_optimizer(old->optimizer(), made->optimizer()));
    } else {
      made->set_optimizer(old->optimizer());
    }
    release(*old);
    made->set_version(++last_version_);
    adapters_.find(id)->second = std::move(made);
    return {};
  }
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
