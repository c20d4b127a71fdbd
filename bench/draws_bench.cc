// tuft_draws_bench [THREADS] [ROWS] [VOCABULARY]
//
// Measures what the sampler does with the rows of one decode step, on one thread and on THREADS (0: all cores), for
// several sampling parameters, and prints the milliseconds of a step and of a row beside those of a greedy row.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "engine/back_end/thread_pool.h"
#include "engine/sample/draws.h"

namespace tuft::bench {
namespace {

using engine::LogitsTask;
using engine::SamplingParams;

// Only the threads of an engine.
class Threads final : public engine::DecodeEngine {
 public:
  explicit Threads(int count) : pool_(count) {}
  Result<engine::SequenceId> open(const std::optional<engine::AdapterId>&, uint64_t) override { return unused(); }
  Result<engine::SequenceId> fork(engine::SequenceId) override { return unused(); }
  void close(engine::SequenceId) override {}
  int adopt_prefix(engine::SequenceId, std::span<const int32_t>) override { return 0; }
  Status step(std::span<const engine::Feed>, const engine::LogitsSink&) override { return unused(); }
  engine::KvUsage kv_usage() const override { return {}; }
  int threads() const override { return pool_.threads(); }
  void run_tasks(int tasks, const Task& task) override { pool_.run(tasks, task); }

 private:
  static Error unused() { return internal_error("it has no model"); }
  engine::ThreadPool pool_;
};

SamplingParams params_of(float temperature, int top_k, float top_p) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  return params;
}

struct Case {
  const char* name;
  SamplingParams params = {};
  int top = 0;
  bool draws = true;
};

// Returns the best of some repetitions, in milliseconds.
double measure(Threads& threads, const std::vector<std::vector<float>>& rows, const Case& what) {
  engine::Draws draws(threads);
  double best = INFINITY;
  for (int repetition = 0; repetition < 25; ++repetition) {
    std::vector<LogitsTask> tasks(rows.size());
    for (size_t row = 0; row < rows.size(); ++row) {
      tasks[row].logits = rows[row];
      if (what.draws) tasks[row].params = &what.params;
      tasks[row].uniform = static_cast<double>(row) / static_cast<double>(rows.size());
      tasks[row].top = what.top;
    }
    const auto begin = std::chrono::steady_clock::now();
    draws.run(tasks);
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    best = std::min(best, taken.count());
  }
  return best;
}

void run(int thread_count, size_t row_count, size_t vocabulary) {
  std::vector<std::vector<float>> rows(row_count, std::vector<float>(vocabulary));
  uint64_t state = 1;
  for (auto& row : rows) {
    for (float& logit : row) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      logit = static_cast<float>(state >> 40) * 0x1.0p-24F * 16.0F;
    }
  }
  Threads one(1);
  Threads all(thread_count);
  const Case cases[] = {{"greedy", params_of(0, -1, 1)},
                        {"plain (top_k off, top_p 1)", params_of(1, -1, 1)},
                        {"top_p 0.9", params_of(1, -1, 0.9F)},
                        {"top_k 50", params_of(1, 50, 1)},
                        {"top_k 150000", params_of(1, 150'000, 1)},
                        {"top_k 150000, top_p 0.9", params_of(1, 150'000, 0.9F)},
                        {"top-128 prompt log-probabilities", {}, 128, false}};
  std::printf("%zu rows of %zu logits; 1 and %d threads\n", row_count, vocabulary, all.threads());
  double greedy = 0;
  for (const Case& what : cases) {
    const double alone = measure(one, rows, what);
    const double together = measure(all, rows, what);
    if (greedy == 0) greedy = together;
    std::printf("%-34s %8.2f ms  %8.2f ms  %5.2fx faster  %7.3f ms a row  %5.2f of a greedy row\n", what.name, alone,
                together, alone / together, together / static_cast<double>(row_count), together / greedy);
  }
}

}  // namespace
}  // namespace tuft::bench

int main(int argc, char** argv) {
  const auto argument = [&](int index, int otherwise) { return argc > index ? std::atoi(argv[index]) : otherwise; };
  tuft::bench::run(argument(1, 0), static_cast<size_t>(argument(2, 64)), static_cast<size_t>(argument(3, 151'936)));
}
