// The makers that loss.cc registers. Each checks its config's values; its keys are checked already.
#pragma once

#include "engine/loss/loss.h"

namespace tuft::engine {

Result<std::unique_ptr<Loss>> make_cross_entropy(const LossConfig& config);
Result<std::unique_ptr<Loss>> make_importance_sampling(const LossConfig& config);
Result<std::unique_ptr<Loss>> make_ppo(const LossConfig& config);
Result<std::unique_ptr<Loss>> make_cispo(const LossConfig& config);
Result<std::unique_ptr<Loss>> make_dro(const LossConfig& config);

}  // namespace tuft::engine
