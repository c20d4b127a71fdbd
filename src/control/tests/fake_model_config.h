// The configuration of a server for tests, with one base model that a FakeActor serves.
#pragma once

#include <filesystem>
#include <string>

#include "config/config.h"

namespace tuft::control {

// The users alice and bob have the keys "tml-alice" and "tml-bob".
inline config::ServerConfig fake_model_config(const std::filesystem::path& checkpoint_dir, const std::string& model) {
  config::ServerConfig server;
  server.checkpoint_dir = checkpoint_dir;
  server.authorized_users = {{"tml-alice", "alice"}, {"tml-bob", "bob"}};
  config::ModelConfig spec;
  spec.model_name = model;
  spec.model_path = "/models/fake";
  spec.max_model_len = 16;
  spec.max_lora_rank = 16;
  server.supported_models = {spec};
  return server;
}

}  // namespace tuft::control
