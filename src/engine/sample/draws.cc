#include "engine/sample/draws.h"

#include <atomic>
#include <new>

namespace tuft::engine {
namespace {

// To wake a thread costs as much as to draw from a row of some thousand logits.
constexpr size_t kLogitsWorthAThread = 16'384;

}  // namespace

Draws::Draws(DecodeEngine& engine) : engine_(engine), distributions_(static_cast<size_t>(engine.threads())) {}

void Draws::run(std::span<LogitsTask> tasks) {
  size_t logits = 0;
  for (const LogitsTask& task : tasks) logits += task.logits.size();
  if (tasks.size() < 2 || distributions_.size() < 2 || logits < kLogitsWorthAThread) {
    for (LogitsTask& task : tasks) compute(task, distributions_.front());
    return;
  }
  std::atomic<bool> lacked_memory{false};  // a task must not throw
  engine_.run_tasks(static_cast<int>(tasks.size()), [&](int task, int thread) {
    try {
      compute(tasks[static_cast<size_t>(task)], distributions_[static_cast<size_t>(thread)]);
    } catch (const std::bad_alloc&) {
      lacked_memory = true;
    }
  });
  if (lacked_memory) throw std::bad_alloc();
}

void Draws::compute(LogitsTask& task, Distribution& distribution) {
  task.finite = distribution.load(task.logits);
  if (!task.finite) return;
  if (task.params != nullptr) {
    const SamplingParams& params = *task.params;
    task.drawn.token = distribution.draw(params.temperature, params.top_k, params.top_p, task.uniform);
  }
  task.drawn.logprob = distribution.logprob(task.drawn.token);
  if (task.top > 0) task.drawn.top = distribution.top(task.top);
  for (size_t i = 0; i < task.targets.size(); ++i) {
    if (task.targets[i] >= 0) task.target_logprobs[i] = distribution.logprob(task.targets[i]);
  }
  for (size_t i = 0; i < task.draws.size(); ++i) {
    const double uniform = uniform_at(task.draws_seed, i, task.draws_position);
    const int32_t token = distribution.draw(task.draws_temperature, -1, 1.0F, uniform);
    task.draws[i] = {token, distribution.logprob(token)};
  }
}

}  // namespace tuft::engine
