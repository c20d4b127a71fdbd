// engine_kernels_bench [threads [cpu]]
//
// Compares the native engine with the peaks of this machine in one run: matrix products, training tokens/s as a share
// of the GEMM peak, decode tokens/s as a share of the memory bandwidth. With "cpu" it divides by processor time instead
// of wall time: for one thread on a busy machine. The model is a random Llama of 29.9 M parameters (hidden 512, 8
// blocks, 8 heads, 1408 inside, vocabulary 8192) with LoRA of rank 8 on all projections of the blocks.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/native/from_tensors.h"
#include "engine/native/gemm.h"
#ifdef TUFT_HAVE_BLIS
#include <cblas.h>
#endif

namespace tuft::bench {
namespace {

using engine::native::Floats;

clockid_t the_clock = CLOCK_MONOTONIC;

double now() {
  timespec time{};
  clock_gettime(the_clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const std::function<void()>& work) {
  const double begin = now();
  work();
  return now() - begin;
}

double best_of(int times, const std::function<void()>& work) {
  double best = 1e30;
  for (int i = 0; i < times; ++i) best = std::min(best, seconds_of(work));
  return best;
}

double median_of(int times, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) seconds.push_back(seconds_of(work));
  std::nth_element(seconds.begin(), seconds.begin() + times / 2, seconds.end());
  return seconds[static_cast<size_t>(times) / 2];
}

class Source final : public engine::TensorSource {
 public:
  explicit Source(const engine::ModelSpec& spec) : spec_(spec) {}
  bool contains(const std::string&) const override { return true; }
  Result<engine::TensorView> find(const std::string& name) const override {
    const int64_t hidden = spec_.hidden_size;
    const int64_t inner = spec_.intermediate_size;
    const int64_t q = spec_.heads * spec_.head_dim;
    std::vector<int64_t> shape = {hidden};
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (has("embed") || has("lm_head")) shape = {spec_.vocab_size, hidden};
    if (has("q_proj")) shape = {q, hidden};
    if (has("k_proj") || has("v_proj")) shape = {int64_t{spec_.kv_heads} * spec_.head_dim, hidden};
    if (has("o_proj")) shape = {hidden, q};
    if (has("gate") || has("up_proj")) shape = {inner, hidden};
    if (has("down_proj")) shape = {hidden, inner};
    std::vector<float>& values = tensors_[name];
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    for (int64_t i = static_cast<int64_t>(values.size()); i < count; ++i) {
      state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
      const auto bits = static_cast<float>(static_cast<int32_t>(state_ >> 33) - (1 << 30)) / (1 << 30);
      values.push_back(shape.size() == 1 ? 1.0F : bits * 0.05F);
    }
    engine::TensorView view;
    view.shape = shape;
    view.data = std::as_bytes(std::span(values));
    return view;
  }

 private:
  const engine::ModelSpec& spec_;
  mutable std::map<std::string, std::vector<float>> tensors_;
  mutable uint64_t state_ = 1;
};

engine::ModelSpec mini_llama() {
  engine::ModelSpec spec;
  spec.vocab_size = 8192;
  spec.hidden_size = 512;
  spec.intermediate_size = 1408;
  spec.layers = 8;
  spec.heads = spec.kv_heads = 8;
  spec.head_dim = 64;
  return spec;
}

double blis_gflops(engine::ThreadPool& pool, int size) {
#ifdef TUFT_HAVE_BLIS
  const size_t count = static_cast<size_t>(size) * static_cast<size_t>(size);
  const Floats a(count, true);
  const Floats b(count, true);
  Floats c(count, true);
  const int rows = size / pool.threads();
  const auto part = [&](int task, int) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, size, size, 1.0F,
                a.data() + static_cast<ptrdiff_t>(task) * rows * size, size, b.data(), size, 0.0F,
                c.data() + static_cast<ptrdiff_t>(task) * rows * size, size);
  };
  return 2.0 * size * size * size / best_of(5, [&] { pool.run(pool.threads(), part); }) * 1e-9;
#else
  return size > 0 && pool.threads() > 0 ? 0.0 : 0.0;
#endif
}

double own_gflops(engine::ThreadPool& pool, int rows, int k, int n, engine::native::Right::Form form) {
  engine::native::Gemm gemm(pool);
  engine::native::Arena arena;
  const Floats x(static_cast<size_t>(rows) * static_cast<size_t>(k), true);
  const Floats w(static_cast<size_t>(k) * static_cast<size_t>(n), true);
  Floats y(static_cast<size_t>(rows) * static_cast<size_t>(n), true);
  const double seconds = best_of(7, [&] {
    arena.reset();
    const auto left = gemm.pack(arena, x.data(), k, 0, rows, k);
    const engine::native::Sum sum{y.data(), n, n, nullptr, false, {{left, {form, w.data(), false, k, n}}}};
    gemm.multiply({&sum, 1});
  });
  return 2.0 * rows * k * n / seconds * 1e-9;
}

double read_gigabytes(engine::ThreadPool& pool) {
  constexpr size_t kCount = size_t{1} << 27;
  const Floats memory(kCount, true);
  std::vector<float> sums(static_cast<size_t>(pool.threads()) * 16);
  const auto part = [&](int task, int) {
    const size_t size = kCount / static_cast<size_t>(pool.threads());
    const float* from = memory.data() + static_cast<size_t>(task) * size;
    float lanes[64] = {};
    for (size_t i = 0; i < size; i += 64) {
      for (size_t j = 0; j < 64; ++j) lanes[j] += from[i + j];
    }
    for (const float lane : lanes) sums[static_cast<size_t>(task) * 16] += lane;
  };
  return kCount * 4.0 / best_of(5, [&] { pool.run(pool.threads(), part); }) * 1e-9;
}

engine::AdapterState adapter_of(const engine::ModelSpec& spec) {
  engine::LoraSpec lora;
  lora.rank = 8;
  lora.alpha = 16;
  lora.train_unembed = false;
  return engine::make_adapter(spec, lora);
}

// Runs forward and backward of 4 sequences of 256 tokens, all of them targets, and the optimizer step.
double train_tokens(engine::Engine& engine, double& forward_tokens) {
  const engine::AdapterId id("bench");
  engine::Pack pack;
  for (int s = 0; s < 4; ++s) pack.segments.push_back({id, s * 256, (s + 1) * 256});
  for (int i = 0; i < 1024; ++i) {
    pack.tokens.push_back((i * 7919) % 8192);
    pack.targets.push_back({i, (i * 104729) % 8192});
  }
  std::vector<float> logprobs(1024);
  const std::vector<float> gradient(1024, -1.0F);
  const auto pass = [&] {
    if (!engine.training().forward(pack, true, logprobs).ok() || !engine.training().backward(gradient).ok())
      std::abort();
    if (!engine.training().optim_step(id, {}).ok()) std::abort();
  };
  pass();
  const double train = 1024 / median_of(7, pass);
  forward_tokens = 1024 / median_of(5, [&] {
                     if (!engine.training().forward(pack, false, logprobs).ok()) std::abort();
                   });
  return train;
}

double decode_tokens(engine::Engine& engine, int batch) {
  std::vector<engine::SequenceId> open;
  std::vector<engine::Feed> feeds;
  const std::vector<int32_t> token = {17};
  for (int i = 0; i < batch; ++i) {
    open.push_back(engine.decoding().open(engine::AdapterId("bench"), 0).value());
    feeds.push_back({open.back(), token, 1});
  }
  const auto step = [&] {
    if (!engine.decoding().step(feeds, [](std::span<const engine::LogitsRow>) {}).ok()) std::abort();
  };
  for (int i = 0; i < 8; ++i) step();
  const double seconds = median_of(100, step);
  for (const auto id : open) engine.decoding().close(id);
  return batch / seconds;
}

void measure(engine::WeightsDtype dtype, int threads, double peak, double bandwidth) {
  const engine::ModelSpec spec = mini_llama();
  const Source source(spec);
  engine::NativeOptions options;
  options.threads = threads;
  options.weights_dtype = dtype;
  const auto engine = engine::native::make_engine(spec, source, options).value();
  if (!engine->adapters().create(engine::AdapterId("bench"), adapter_of(spec)).ok()) std::abort();
  // Counts forward and backward of the base (no weight gradient), three products per adapter matrix, causal attention.
  const double linear = 8.0 * (4.0 * 512 * 512 + 3.0 * 512 * 1408) + 8192.0 * 512;
  const double lora = 8.0 * 8.0 * (4.0 * 1024 + 2 * (512 + 1408) + 1408 + 512);
  const double attention = 8.0 * 512 * 256 / 2 * 4;
  const double flops = 4 * linear + 6 * lora + 3.5 * attention;
  double forward = 0;
  const double train = train_tokens(*engine, forward);
  const std::string name(engine->weights_dtype());
  std::printf("%-4s train   %8.0f tokens/s %6.1f GFLOP/s %3.0f %% of GEMM peak   forward only %.0f tokens/s\n",
              name.c_str(), train, train * flops * 1e-9, 100 * train * flops * 1e-9 / peak, forward);
  const double bytes = (linear * (name == "bf16" ? 2 : 4)) + lora * 4;
  for (const int batch : {1, 8, 32}) {
    const double tokens = decode_tokens(*engine, batch);
    const double gigabytes = tokens / batch * bytes * 1e-9;
    std::printf("%-4s decode  %8.0f tokens/s at batch %-2d %5.1f GB/s %3.0f %% of read bandwidth\n", name.c_str(),
                tokens, batch, gigabytes, 100 * gigabytes / bandwidth);
  }
}

void run(int threads) {
  engine::ThreadPool pool(threads);
  const double blis = blis_gflops(pool, 2048);
  const double own = own_gflops(pool, 2048, 2048, 2048, engine::native::Right::Form::kPanels);
  std::printf("%d threads\n", pool.threads());
  std::printf("gemm 2048       BLIS %.1f, ours %.1f, transposed weights %.1f GFLOP/s\n", blis, own,
              own_gflops(pool, 2048, 2048, 2048, engine::native::Right::Form::kReverse));
  for (const int rows : {1, 8, 32, 128, 512}) {
    std::printf("gemm %4dx512x1408  %.1f, transposed weights %.1f GFLOP/s\n", rows,
                own_gflops(pool, rows, 512, 1408, engine::native::Right::Form::kPanels),
                own_gflops(pool, rows, 1408, 512, engine::native::Right::Form::kReverse));
  }
  const double bandwidth = read_gigabytes(pool);
  std::printf("read bandwidth  %.1f GB/s\n", bandwidth);
  const double peak = std::max(blis, own);
  measure(engine::WeightsDtype::kFloat32, threads, peak, bandwidth);
  measure(engine::WeightsDtype::kBfloat16, threads, peak, bandwidth);
}

}  // namespace
}  // namespace tuft::bench

int main(int argc, char** argv) {
  if (argc > 2 && std::string_view(argv[2]) == "cpu") tuft::bench::the_clock = CLOCK_PROCESS_CPUTIME_ID;
  tuft::bench::run(argc > 1 ? std::atoi(argv[1]) : 0);
}
