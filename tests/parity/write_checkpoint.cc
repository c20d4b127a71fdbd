// tuft_parity_writer CASE DIRECTORY: trains the case's adapter for two steps, writes it as a checkpoint to
// DIRECTORY/checkpoint and the logits that it gives to DIRECTORY/logits.safetensors, for peft_loads_ours.py.
#include <cstdio>
#include <stdexcept>

#include "back_end.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/train/scheduler.h"
#include "reference_case.h"

namespace tuft::parity {
namespace {

template <typename T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

void check(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.error().message);
}

void train_two_steps(engine::Engine& engine, const engine::AdapterId& adapter, const ReferenceCase& reference) {
  for (int step = 0; step < 2; ++step) {
    engine::TrainRequest request{adapter, reference.request_data("cross_entropy"), "cross_entropy", {}, true};
    engine::TrainerOptions options;
    options.tokens_max = engine.model().max_position;
    value_or_throw(engine::train_alone(engine, std::move(request), options));
    value_or_throw(engine.training().optim_step(adapter, reference.adam().params));
  }
}

std::vector<float> logits_of(engine::Engine& engine, const engine::AdapterId& adapter,
                             const std::vector<int32_t>& tokens) {
  const auto sequence = value_or_throw(engine.decoding().open(adapter, 0));
  std::vector<float> logits;
  const engine::Feed feed{sequence, tokens, static_cast<int>(tokens.size())};
  check(engine.decoding().step({&feed, 1}, engine::for_each_row([&](size_t, int, std::span<const float> row) {
                                 logits.insert(logits.end(), row.begin(), row.end());
                               })));
  engine.decoding().close(sequence);
  return logits;
}

void write_all(const std::string& name, const std::filesystem::path& directory) {
  const ReferenceCase reference(name);
  const auto engine = value_or_throw(back_ends().front().make(reference.model_directory(), {}));
  const engine::AdapterId adapter("written");
  check(engine->adapters().create(adapter, reference.adapter()));
  train_two_steps(*engine, adapter, reference);
  const auto state = value_or_throw(engine->adapters().export_state(adapter, true));
  value_or_throw(engine::write_checkpoint(directory / "checkpoint", engine->model(), state, name));
  const auto logits = logits_of(*engine, adapter, reference.data()[reference.logits_of()].tokens);
  const engine::NamedTensor tensor{
      "logits", engine::Dtype::kFloat32, {static_cast<int64_t>(logits.size())}, std::as_bytes(std::span(logits))};
  check(engine::write_safetensors(directory / "logits.safetensors", {&tensor, 1}));
}

}  // namespace
}  // namespace tuft::parity

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: tuft_parity_writer CASE DIRECTORY\n");
    return 2;
  }
  try {
    tuft::parity::write_all(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tuft_parity_writer: %s\n", error.what());
    return 1;
  }
  return 0;
}
