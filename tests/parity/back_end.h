// The back ends that the parity tests run: each is one way to make an Engine of a model directory.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace tuft::parity {

enum class Precision : uint8_t { kFloat32, kAsFile };

struct Wish {
  Precision precision = Precision::kFloat32;
  int64_t kv_bytes_max = 0;
};

struct BackEnd {
  std::string name;  // letters and '_', for test names
  // Gives the same bits for a sequence whatever shares its pass or step, and in whatever pieces it is fed.
  bool bitwise = false;
  // Activations are bf16 where the weights are.
  bool bf16_activations = false;
  std::function<Result<std::unique_ptr<engine::Engine>>(const std::filesystem::path& model, const Wish& wish)> make;
  std::string missing;  // why it cannot run here; empty: it can
};

// Of test names; GoogleTest would print the bytes of the object.
inline void PrintTo(const BackEnd& back_end, std::ostream* out) {  // NOLINT(readability-identifier-naming): its name
  *out << back_end.name;
}

// Every back end that this build has.
std::vector<BackEnd> back_ends();

}  // namespace tuft::parity
