#include "metrics/checkpoint_disk.h"

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "metrics/training.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::metrics {
namespace {

TEST(CheckpointDisk, ObservedThenUsedAndFreeSpace) {
  const TempDir checkpoints;
  const telemetry::testing::RecordedMetrics recorded;
  EXPECT_FALSE(recorded.gauge("tuft.checkpoint.disk.usage", {{"state", "used"}}).has_value());
  observe_checkpoint_disk(checkpoints.path());
  EXPECT_GT(recorded.gauge("tuft.checkpoint.disk.usage", {{"state", "used"}}).value_or(0), 0);
  EXPECT_TRUE(recorded.gauge("tuft.checkpoint.disk.usage", {{"state", "free"}}).has_value());
  training().checkpoint_disk_usage.set_callback({});
}

}  // namespace
}  // namespace tuft::metrics
