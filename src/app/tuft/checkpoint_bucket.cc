#include "app/tuft/checkpoint_bucket.h"

#include <cstdlib>
#include <utility>

#include "bucket/bucket.h"
#include "control/checkpoints/bucket_storage.h"
#include "telemetry/log.h"

namespace tuft::app {

Result<std::optional<bucket::Settings>> take_bucket_settings(const config::ServerConfig& config) {
  if (!config.bucket) return std::optional<bucket::Settings>();
  TUFT_ASSIGN(bucket::Settings settings, config::load_bucket_settings(*config.bucket));
  ::setenv(bucket::kBucketVariable, bucket::to_json(settings).c_str(), 1);
  return std::optional(std::move(settings));
}

Result<std::unique_ptr<control::CheckpointStorage>> open_storage(const config::ServerConfig& config,
                                                                 const std::optional<bucket::Settings>& settings) {
  if (!settings) return std::unique_ptr<control::CheckpointStorage>();
  const Nanos begin = system_clock().monotonic();
  TUFT_ASSIGN(std::shared_ptr<bucket::Bucket> bucket, bucket::open_s3(*settings));
  auto storage = control::open_bucket_storage(std::move(bucket), config.checkpoint_dir, system_clock());
  if (!storage.ok()) {
    return Error{storage.error().code,
                 "bucket: " + bucket::address_of(*settings) + " at " + settings->endpoint +
                     " cannot be used: " + storage.error().message,
                 storage.error().reason};
  }
  telemetry::log_info("bucket.opened", "checkpoints are in " + bucket::address_of(*settings),
                      {{"tuft.seconds", to_seconds(system_clock().monotonic() - begin)}});
  return storage;
}

}  // namespace tuft::app
