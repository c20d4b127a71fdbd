#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/file.h"
#include "base/id.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/layout.h"
#include "engine/json_fields.h"
#include "engine/weights/safetensors.h"

namespace tuft::engine {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

void add_tensors(const ModelSpec& model, const LoraSpec& spec, const std::vector<LoraTensor>& tensors,
                 const std::string& prefix, std::vector<NamedTensor>& out) {
  for (const LoraTensor& tensor : tensors) {
    const std::string name = prefix + module_name(tensor.site, tensor.layer);
    out.push_back({name + ".lora_A.weight", Dtype::kFloat32, shape_of_a(model, spec, tensor.site), bytes_of(tensor.a)});
    out.push_back({name + ".lora_B.weight", Dtype::kFloat32, shape_of_b(model, spec, tensor.site), bytes_of(tensor.b)});
  }
}

std::string adapter_config(const LoraSpec& spec, const std::string& base_model_name) {
  Json modules = Json::array();
  for (const Site site : spec.sites()) modules.push_back(std::string(site_name(site)));
  // PEFT declares alpha as an int and writes it so.
  const bool whole = std::nearbyint(spec.alpha) == spec.alpha && std::fabs(spec.alpha) < 1e9F;
  const Json alpha = whole ? Json(static_cast<int64_t>(spec.alpha)) : Json(spec.alpha);
  const Json config = {{"alpha_pattern", Json::object()},
                       {"auto_mapping", nullptr},
                       {"base_model_name_or_path", base_model_name},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"layers_pattern", nullptr},
                       {"layers_to_transform", nullptr},
                       {"lora_alpha", alpha},
                       {"lora_dropout", 0.0},
                       {"modules_to_save", nullptr},
                       {"peft_type", "LORA"},
                       {"r", spec.rank},
                       {"rank_pattern", Json::object()},
                       {"revision", nullptr},
                       {"target_modules", modules},
                       {"task_type", "CAUSAL_LM"},
                       {"use_dora", false},
                       {"use_rslora", false}};
  return config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status write_files(const fs::path& directory, const ModelSpec& model, const AdapterState& state,
                   const std::string& base_model_name) {
  std::vector<NamedTensor> tensors;
  add_tensors(model, state.spec, state.tensors, "", tensors);
  TUFT_TRY(write_safetensors(directory / kAdapterFile, tensors,
                             {{"format", "pt"}, {"tuft.seed", std::to_string(state.spec.seed)}}));
  if (state.has_optimizer) {
    tensors.clear();
    add_tensors(model, state.spec, state.adam.first, "first.", tensors);
    add_tensors(model, state.spec, state.adam.second, "second.", tensors);
    TUFT_TRY(write_safetensors(directory / kOptimizerFile, tensors,
                               {{"format", kOptimizerFormat}, {"step", std::to_string(state.adam.step)}}));
  }
  TUFT_TRY(write_file_atomically(directory / kAdapterConfigFile, adapter_config(state.spec, base_model_name)));
  return write_file_atomically(directory / kCompleteFile, "");
}

int64_t bytes_in(const fs::path& directory) {
  int64_t sum = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    sum += static_cast<int64_t>(entry.file_size(ignored));
  }
  return sum;
}

Error taken() {
  return {ErrorCode::kAlreadyExists, "a checkpoint of that name exists already; choose another name",
          "checkpoint_exists"};
}

// rename() alone would replace an empty directory of that name.
Status rename_to_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  int code = errno;
  if (code == EINVAL || code == ENOSYS) {  // a file system without it
    std::error_code ignored;
    if (fs::exists(to, ignored)) return taken();
    if (::rename(from.c_str(), to.c_str()) == 0) return {};
    code = errno;
  }
  if (code == EEXIST || code == ENOTEMPTY) return taken();
  return internal_error("cannot rename the finished checkpoint into place: " + std::string(std::strerror(code)), "io");
}

}  // namespace

Result<int64_t> write_checkpoint(const fs::path& directory, const ModelSpec& model, const AdapterState& state,
                                 const std::string& base_model_name) {
  TUFT_TRY(check_tensors(model, state.spec, state.tensors, "adapter"));
  if (state.has_optimizer) {
    TUFT_TRY(check_tensors(model, state.spec, state.adam.first, "optimizer (first moment)"));
    TUFT_TRY(check_tensors(model, state.spec, state.adam.second, "optimizer (second moment)"));
  }
  std::error_code code;
  if (fs::exists(directory, code)) return taken();
  const fs::path parent = directory.parent_path();
  const fs::path temporary = parent / ("." + directory.filename().string() + ".tmp-" + random_uuid());
  fs::create_directories(temporary, code);
  if (code) return internal_error("cannot make a directory for the checkpoint: " + code.message(), "io");

  Status written = write_files(temporary, model, state, base_model_name);
  if (written.ok()) written = sync_directory(temporary);
  const int64_t bytes = bytes_in(temporary);
  if (written.ok()) written = rename_to_new(temporary, directory);
  if (!written.ok()) {
    fs::remove_all(temporary, code);
    return without_path(std::move(written).error(), temporary);
  }
  if (Status synced = sync_directory(parent); !synced.ok()) return without_path(std::move(synced).error(), parent);
  return bytes;
}

}  // namespace tuft::engine
