// AdapterStore: the LoRA adapters that an engine holds in memory, by id.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/lora.h"

namespace tuft::engine {

// Bytes that adapters occupy on the device.
struct AdapterMemory {
  int64_t weights = 0;
  int64_t gradients = 0;  // with their mark; allocated at the first backward pass
  int64_t optimizer = 0;  // moments; allocated at the first optimizer step
};

// An adapter that is in no store, with all that belongs to it except the mark. Any thread may use it, one at a time.
class DetachedAdapter {
 public:
  using Visit = std::function<Status(const AdapterState&)>;

  virtual ~DetachedAdapter() = default;
  virtual const LoraSpec& spec() const = 0;
  // Returns visit(state), or kResourceExhausted if memory for the state runs out.
  virtual Status visit(const Visit& visit) const = 0;
};
using DetachedPointer = std::unique_ptr<DetachedAdapter>;  // never null

DetachedPointer detached(AdapterState state);

// The caller chooses the ids. A member that takes the id of an existing adapter returns kNotFound if there is none.
// Members return kResourceExhausted if memory runs out. Confined to the engine thread,
// except make().
class AdapterStore {
 public:
  virtual ~AdapterStore() = default;

  // Adds an adapter. Returns kAlreadyExists if the id is in use, kInvalidArgument if the tensors do not fit the model.
  virtual Status create(const AdapterId& id, const AdapterState& state) = 0;
  // Adds a copy of the current weights of `source`, without gradients and moments, for sampling.
  virtual Status clone(const AdapterId& source, const AdapterId& copy) = 0;
  // Removes an adapter. Open sequences that use it keep its weights until they are closed.
  virtual Status remove(const AdapterId& id) = 0;
  // Removes an adapter and returns its whole state except the mark. create() with the result restores it bit for bit.
  // After an error the adapter is still in the store.
  virtual Result<AdapterState> take(const AdapterId& id) = 0;
  // Returns a copy of an adapter, with the optimizer's moments if `with_optimizer`, without gradients.
  virtual Result<AdapterState> export_state(const AdapterId& id, bool with_optimizer) const = 0;
  // Replaces the tensors of an adapter and zeroes its gradient. Takes the moments from state.moments if
  // state.has_optimizer, else starts with fresh ones. Returns kInvalidArgument unless rank, layers and the optimizer of
  // the moments are the same.
  virtual Status import_state(const AdapterId& id, const AdapterState& state) = 0;

  // These let other threads do what takes time in proportion to an adapter, as far as the back end can: with `native`
  // attach(), detach() and replace() move a pointer, and all threads of the engine share in copy(). They may throw
  // std::bad_alloc, and change nothing then. Makes an adapter. Thread-safe. Tensors that do not fit the model are
  // refused with kInvalidArgument, here or when the adapter is attached.
  virtual Result<DetachedPointer> make(AdapterState state) const;
  // The same as create(), take(), import_state() of a state without gradients, and export_state().
  virtual Status attach(const AdapterId& id, DetachedPointer adapter);
  virtual Result<DetachedPointer> detach(const AdapterId& id);
  virtual Status replace(const AdapterId& id, DetachedPointer adapter);
  virtual Result<DetachedPointer> copy(const AdapterId& id, bool with_optimizer) const;

  // Returns the spec of an adapter, or null if there is none. Valid until the adapter is changed or removed.
  virtual const LoraSpec* spec(const AdapterId& id) const = 0;
  bool contains(const AdapterId& id) const { return spec(id) != nullptr; }
  virtual size_t size() const = 0;
  virtual AdapterMemory memory() const = 0;
  // Returns the most bytes that an adapter of `spec` can occupy, in training or only for sampling.
  virtual int64_t bytes_of(const LoraSpec& spec, bool trains) const = 0;

  // Sets the accumulated gradient of an adapter to zero.
  virtual Status clear_gradients(const AdapterId& id) = 0;
  // Remembers the accumulated gradient. Copies it, unless it is zero. Replaces an earlier mark. clear_gradients(),
  // import_state() and an optimizer step remove the mark.
  virtual Status mark_gradients(const AdapterId& id) = 0;
  // Sets the gradient to that of the mark, which stays. Returns kFailedPrecondition without a mark.
  virtual Status restore_gradients(const AdapterId& id) = 0;
  // Returns the accumulated gradient in the order of AdapterState::tensors (for tests and diagnostics).
  virtual Result<std::vector<LoraTensor>> gradients(const AdapterId& id) const = 0;
};

}  // namespace tuft::engine
