// AssembledEngine implements Engine on top of a BackEnd, which only computes. Ids, checks, versions and errors are the
// same for every back end; they are here and in the headers of the three ports (adapters.h, training.h, decoding.h).
// Besides model(), weights_dtype(), device_times(), peak_flops() and assumed_peak_flops() of Engine, a BackEnd has:
//   Adapter           spec(), optimizer(), version(), set_version(), memory(), state(), gradients(), has_gradient(),
//                     has_moments(), assign(), clear_gradients(), mark_gradients(), restore_gradients()
//   kDetaches         whether any thread may make adapters and use those that are in no store; then Adapter has
//                     set_optimizer(), make_adapter() is thread-safe, and there is clone(adapter, with_moments)
//   KvSequence        KvSequence<its cache>
//   guarded(what, f)  returns f(), or the error for the exception that f throws; `what` names what needs memory
//   make_adapter(state), which refuses an optimizer that it does not have; clone(adapter), bytes_of(spec, trains)
//   pass()            the retained pass: kept(), targets(), uses(adapter), drop()
//   forward(pack, adapters, keep, logprobs), backward(dloss_dlogprobs), optim_steps(steps)
//   cache()           the KV cache: pool(), block_bytes()
//   step(feeds, sequences, sink), run_tasks(tasks, task), threads()
// Its members may throw the exceptions that guarded() catches. Their arguments have been checked.
#pragma once

#include <utility>

#include "engine/back_end/adapters.h"
#include "engine/back_end/decoding.h"
#include "engine/back_end/training.h"
#include "engine/engine.h"

namespace tuft::engine {

template <typename BackEnd>
class AssembledEngine final : public Engine {
 public:
  template <typename... Arguments>
  explicit AssembledEngine(Arguments&&... arguments)
      : back_end_(std::forward<Arguments>(arguments)...),
        adapters_(back_end_),
        training_(back_end_, adapters_),
        decoding_(back_end_, adapters_) {}

  const ModelSpec& model() const override { return back_end_.model(); }
  std::string_view weights_dtype() const override { return back_end_.weights_dtype(); }
  AdapterStore& adapters() override { return adapters_; }
  TrainingEngine& training() override { return training_; }
  DecodeEngine& decoding() override { return decoding_; }
  DeviceTimes device_times() override { return back_end_.device_times(); }
  double peak_flops() const override { return back_end_.peak_flops(); }
  double assumed_peak_flops() const override { return back_end_.assumed_peak_flops(); }

  const BackEnd& back_end() const { return back_end_; }

 private:
  BackEnd back_end_;
  Adapters<BackEnd> adapters_;
  Training<BackEnd> training_;
  Decoding<BackEnd> decoding_;  // last: open sequences return their blocks to the back end
};

}  // namespace tuft::engine
