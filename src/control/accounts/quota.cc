#include "control/accounts/quota.h"

#include <array>

#include "metrics/tenants.h"

namespace tuft::control {
namespace {

struct Words {
  std::string_view name;
  std::string_view limit;
};

constexpr std::array<Words, kQuotas> kWords = {{{"sessions", "limits.sessions_per_user_max"},
                                                {"session_bytes", "limits.session_bytes_per_user_max"},
                                                {"runs", "limits.runs_per_user_max"},
                                                {"samplers", "limits.samplers_per_user_max"},
                                                {"futures", "limits.futures_per_user_max"},
                                                {"samples_in_flight", "limits.samples_in_flight_per_user_max"},
                                                {"queued_bytes", "limits.queued_bytes_per_user_max"},
                                                {"checkpoint_bytes", "limits.checkpoint_bytes_per_user_max"},
                                                {"checkpoints", "limits.checkpoints_per_user_max"},
                                                {"archives", "limits.archives_per_user_max"},
                                                {"custom_losses", "limits.custom_losses_per_user_max"},
                                                {"custom_loss_bytes", "limits.custom_loss_bytes_per_user_max"}}};

const Words& words_of(Quota quota) {
  return kWords.at(static_cast<size_t>(quota));
}

}  // namespace

std::string_view quota_limit(Quota quota) {
  return words_of(quota).limit;
}

Error over_quota(Quota quota, std::string_view what, std::string_view cure) {
  const Words& words = words_of(quota);
  metrics::tenants().quota_refusals.add(1, {{"limit", words.name}});
  constexpr std::string_view kSection = "limits.";
  return Error{ErrorCode::kResourceExhausted,
               std::string(what) + ", which is the limit; " + std::string(cure) + ", or raise " +
                   std::string(words.limit) + " in the server's configuration",
               std::string(words.limit.substr(kSection.size()))};
}

std::optional<Quota> exceeded(const CheckpointUse& used, const CheckpointUse& more, const CheckpointUse& limit) {
  if (limit.bytes > 0 && used.bytes + more.bytes > limit.bytes) return Quota::kCheckpointBytes;
  if (used.count + more.count > limit.count) return Quota::kCheckpoints;
  return std::nullopt;
}

std::optional<Error> over_checkpoints(const CheckpointUse& used, const CheckpointUse& more,
                                      const CheckpointUse& limit) {
  constexpr std::string_view kCure =
      "delete some (a deleted one counts for those whose samplers and models still use it)";
  const std::optional<Quota> quota = exceeded(used, more, limit);
  if (!quota) return std::nullopt;
  if (*quota == Quota::kCheckpointBytes) {
    return over_quota(Quota::kCheckpointBytes,
                      "your checkpoints take " + std::to_string(used.bytes) + " bytes, this one takes " +
                          std::to_string(more.bytes) + " more, and " + std::to_string(limit.bytes) + " are allowed",
                      kCure);
  }
  return over_quota(Quota::kCheckpoints,
                    "your checkpoints count as " + std::to_string(used.count) + ", this one as " +
                        std::to_string(more.count) + " (one, and one more for each 4 KiB of metadata), and " +
                        std::to_string(limit.count) + " are allowed",
                    kCure);
}

bool is_over_checkpoints(std::string_view reason) {
  return reason == "checkpoint_bytes_per_user_max" || reason == "checkpoints_per_user_max";
}

void bind_quota_series() {
  for (const Words& words : kWords) metrics::tenants().quota_refusals.with({{"limit", words.name}});
}

}  // namespace tuft::control
