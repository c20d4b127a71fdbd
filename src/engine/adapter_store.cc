#include "engine/adapter_store.h"

#include <utility>

namespace tuft::engine {
namespace {

class DetachedState final : public DetachedAdapter {
 public:
  explicit DetachedState(AdapterState state = {}) : state_(std::move(state)) {}
  void set(AdapterState state) { state_ = std::move(state); }

  const LoraSpec& spec() const override { return state_.spec; }
  Status visit(const Visit& visit) const override { return visit(state_); }

 private:
  AdapterState state_;
};

}  // namespace

DetachedPointer detached(AdapterState state) {
  return std::make_unique<DetachedState>(std::move(state));
}

Result<DetachedPointer> AdapterStore::make(AdapterState state) const {
  return detached(std::move(state));
}

Status AdapterStore::attach(const AdapterId& id, DetachedPointer adapter) {
  return adapter->visit([&](const AdapterState& state) { return create(id, state); });
}

Result<DetachedPointer> AdapterStore::detach(const AdapterId& id) {
  auto detached = std::make_unique<DetachedState>();  // before take(): nothing may fail after it
  TUFT_ASSIGN(AdapterState state, take(id));
  detached->set(std::move(state));
  return DetachedPointer(std::move(detached));
}

Status AdapterStore::replace(const AdapterId& id, DetachedPointer adapter) {
  return adapter->visit([&](const AdapterState& state) { return import_state(id, state); });
}

Result<DetachedPointer> AdapterStore::copy(const AdapterId& id, bool with_optimizer) const {
  TUFT_ASSIGN(AdapterState state, export_state(id, with_optimizer));
  return detached(std::move(state));
}

}  // namespace tuft::engine
