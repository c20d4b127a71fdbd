#include "control/types/checkpoint_path.h"

#include <algorithm>
#include <iterator>

namespace tuft::control {
namespace {

constexpr size_t kNameLengthMax = 128;
constexpr std::string_view kScheme = "tinker://";

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameLengthMax && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), is_name_character);
}

bool is_run_id(std::string_view text) {
  return !text.empty() && text.size() <= kNameLengthMax && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), [](char c) { return c == ':' || is_name_character(c); });
}

Error malformed(std::string_view why) {
  return invalid_argument("not a checkpoint path (" + std::string(why) +
                              "): it must look like tinker://<run id>/weights/<name>, with weights, "
                              "sampler_weights or external_weights",
                          "malformed_checkpoint_path");
}

}  // namespace

std::string_view checkpoint_folder(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kTraining:
      return "weights";
    case CheckpointKind::kSampler:
      return "sampler_weights";
    case CheckpointKind::kExternal:
      return "external_weights";
  }
  return "weights";
}

std::string_view checkpoint_type_name(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kTraining:
      return "training";
    case CheckpointKind::kSampler:
      return "sampler";
    case CheckpointKind::kExternal:
      return "external";
  }
  return "training";
}

std::string CheckpointPath::str() const {
  return std::string(kScheme) + run.str() + "/" + std::string(checkpoint_folder(kind)) + "/" + name;
}

Status check_checkpoint_name(std::string_view name) {
  if (is_name(name)) return {};
  return invalid_argument(
      "not a checkpoint name: use 1 to 128 of the characters A-Z a-z 0-9 . _ - and do not begin with a dot",
      "invalid_checkpoint_name");
}

Result<CheckpointPath> parse_checkpoint_path(std::string_view path) {
  if (!path.starts_with(kScheme)) return malformed("it does not begin with tinker://");
  path.remove_prefix(kScheme.size());
  const size_t first = path.find('/');
  const size_t second = first == path.npos ? path.npos : path.find('/', first + 1);
  if (second == path.npos) return malformed("it has fewer than three parts");
  const std::string_view run = path.substr(0, first);
  const std::string_view folder = path.substr(first + 1, second - first - 1);
  const std::string_view name = path.substr(second + 1);
  if (!is_run_id(run)) return malformed("the run id has characters that no run id has");
  CheckpointPath parsed{RunId(run), CheckpointKind::kTraining, std::string(name)};
  const auto* kind = std::find_if(std::begin(kAllCheckpointKinds), std::end(kAllCheckpointKinds),
                                  [&](CheckpointKind each) { return folder == checkpoint_folder(each); });
  if (kind == std::end(kAllCheckpointKinds)) {
    return malformed("the second part is neither weights nor sampler_weights nor external_weights");
  }
  parsed.kind = *kind;
  if (!is_name(name)) return malformed("the name has characters that no checkpoint name has");
  return parsed;
}

std::string run_folder(const RunId& run) {
  std::string folder = run.str();
  std::replace(folder.begin(), folder.end(), ':', '_');
  return folder;
}

}  // namespace tuft::control
