// The adapters of an engine by id, for any back end. Confined to the engine thread, like the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/result.h"
#include "engine/engine.h"

namespace tuft::engine {

// Adapter has version(), set_version() and memory(). Who holds a pointer to one keeps it after it was removed.
template <typename Adapter>
class AdapterTable {
 public:
  using Pointer = std::shared_ptr<Adapter>;

  bool contains(const AdapterId& id) const { return adapters_.contains(id); }
  size_t size() const { return adapters_.size(); }

  Result<Pointer> find(const AdapterId& id) const {
    const auto found = adapters_.find(id);
    if (found != adapters_.end()) return found->second;
    return not_found("adapter \"" + id.str() + "\" is not loaded: create or load it first", "adapter_not_loaded");
  }

  // Of a pack's segments; null where one has none.
  Result<std::vector<Pointer>> of(const Pack& pack) const {
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

  // kAlreadyExists where add() has no place for it.
  Status check_new(const AdapterId& id) const {
    if (!contains(id)) return {};
    return Error{ErrorCode::kAlreadyExists, "adapter \"" + id.str() + "\" is already loaded", "adapter_exists"};
  }

  void add(const AdapterId& id, Pointer adapter) {
    renew(*adapter);
    adapters_.emplace(id, std::move(adapter));
  }

  void remove(const AdapterId& id) { adapters_.erase(id); }

  // Gives it a version that none had before.
  void renew(Adapter& adapter) { adapter.set_version(++last_version_); }

  AdapterMemory memory() const {
    AdapterMemory sum;
    for (const auto& [id, adapter] : adapters_) {
      const AdapterMemory one = adapter->memory();
      sum.weights += one.weights;
      sum.gradients += one.gradients;
      sum.optimizer += one.optimizer;
    }
    return sum;
  }

 private:
  std::unordered_map<AdapterId, Pointer> adapters_;
  uint64_t last_version_ = 0;  // 0 is the base model's
};

}  // namespace tuft::engine
