#include "telemetry/host/machine.h"

#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"

namespace tuft::telemetry::internal {
namespace {

class FakeRoot {
 public:
  FakeRoot() {
    write("proc/meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n");
    write("proc/stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n");
  }
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((directory_ / name).parent_path());
    write_text(directory_ / name, text);
  }
  const std::filesystem::path& path() const { return directory_.path(); }

 private:
  TempDir directory_;
};

TEST(CpuTimes, TwoReadingsThenTheBusyShare) {
  const auto before = parse_cpu_times("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n");
  const auto after = parse_cpu_times("cpu  150 0 150 1050 150 0 0 0 0 0\n");
  ASSERT_TRUE(before && after);
  EXPECT_EQ(before->total, 1000);
  EXPECT_EQ(before->busy, 200);
  EXPECT_DOUBLE_EQ(*cpu_utilization(*before, *after), 0.2);
  EXPECT_FALSE(cpu_utilization(*before, *before).has_value());
  EXPECT_FALSE(parse_cpu_times("").has_value());
}

TEST(CpuName, ProcessorsThenTheFirst) {
  FakeRoot root;
  EXPECT_EQ(read_cpu_name(root.path()), "");
  root.write("proc/cpuinfo", "processor\t: 0\nmodel\t\t: 1\nmodel name\t: Fake CPU @ 2: fast\n\nmodel name\t: Other\n");
  EXPECT_EQ(read_cpu_name(root.path()), "Fake CPU @ 2: fast");
}

TEST(CpuTimes, NoQuotaThenTheMachine) {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  root.write("sys/fs/cgroup/cpu.stat", "usage_usec 7\n");
  const auto times = read_cpu_times(5 * kSecond, root.path());
  ASSERT_TRUE(times);
  EXPECT_EQ(times->total, 1000);
  EXPECT_EQ(times->cores, 0);
}

TEST(CpuTimes, QuotaThenUtilisationIsOfTheQuota) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "half a core is no less than this machine";
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/pod/container\n");
  root.write("sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
  root.write("sys/fs/cgroup/pod/cpu.stat", "usage_usec 1000000\nuser_usec 1\n");
  root.write("sys/fs/cgroup/pod/container/cpu.max", "150000 100000\n");
  root.write("sys/fs/cgroup/pod/container/cpu.stat", "usage_usec 900000\n");
  const auto before = read_cpu_times(10 * kSecond, root.path());
  root.write("sys/fs/cgroup/pod/cpu.stat", "usage_usec 2000000\nuser_usec 1\n");
  const auto after = read_cpu_times(14 * kSecond, root.path());
  ASSERT_TRUE(before && after);
  EXPECT_EQ(before->cores, 0.5);
  EXPECT_DOUBLE_EQ(*cpu_utilization(*before, *after), 0.5) << "one second of the two that half a core has in four";
}

TEST(CpuTimes, Version1QuotaThenUtilisationIsOfTheQuota) {
  FakeRoot root;
  root.write("proc/self/cgroup", "2:cpuacct,cpu:/box\n0::/\n");
  root.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "20000\n");
  root.write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  root.write("sys/fs/cgroup/cpuacct/box/cpuacct.usage", "3000000000\n");
  const auto times = read_cpu_times(kSecond, root.path());
  ASSERT_TRUE(times);
  EXPECT_EQ(times->cores, 0.2);
  EXPECT_EQ(times->busy, 3);
}

TEST(CpuTimes, QuotaChangedBetweenThenNoValue) {
  EXPECT_FALSE(cpu_utilization({.busy = 1, .total = 2, .cores = 1}, {.busy = 2, .total = 8, .cores = 2}).has_value());
}

TEST(MemoryUse, NoLimitThenTheMachine) {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/memory.max", "max\n");
  const auto use = read_memory_use(root.path());
  ASSERT_TRUE(use);
  EXPECT_EQ(use->total, 1000u * 1024);
  EXPECT_EQ(use->used, 600u * 1024);
}

TEST(MemoryUse, LimitOnAParentGroupThenThatGroup) {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/pod/container\n");
  root.write("sys/fs/cgroup/pod/memory.max", "512000\n");
  root.write("sys/fs/cgroup/pod/memory.current", "300000\n");
  root.write("sys/fs/cgroup/pod/memory.stat", "anon 1\ninactive_file 100000\n");
  root.write("sys/fs/cgroup/pod/container/memory.max", "max\n");
  root.write("sys/fs/cgroup/pod/container/memory.current", "200000\n");
  const auto use = read_memory_use(root.path());
  ASSERT_TRUE(use);
  EXPECT_EQ(use->total, 512000u);
  EXPECT_EQ(use->used, 200000u);
}

TEST(MemoryUse, Version1LimitThenThatGroup) {
  FakeRoot root;
  root.write("proc/self/cgroup", "9:cpu:/x\n4:memory:/docker/abc\n");
  root.write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "400000\n");
  root.write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "100000\n");
  const auto use = read_memory_use(root.path());
  ASSERT_TRUE(use);
  EXPECT_EQ(use->total, 400000u);
  EXPECT_EQ(use->used, 100000u);
}

TEST(DiskTraffic, PartitionsAndStackedDevicesThenCountedOnce) {
  const auto traffic = parse_disk_traffic(
      "   7       0 loop0 9 0 999 0 9 0 999 0 0 0 0\n"
      "   8       0 sda 10 0 100 0 10 0 40 0 0 0 0\n"
      "   8       1 sda1 10 0 100 0 10 0 40 0 0 0 0\n"
      " 259       0 nvme0n1 5 0 10 0 5 0 2 0 0 0 0\n"
      " 259       1 nvme0n1p1 5 0 10 0 5 0 2 0 0 0 0\n"
      " 253       0 dm-0 10 0 100 0 10 0 40 0 0 0 0\n");
  ASSERT_TRUE(traffic);
  EXPECT_EQ(traffic->in, 110u * 512);
  EXPECT_EQ(traffic->out, 42u * 512);
  EXPECT_FALSE(parse_disk_traffic("").has_value());
}

TEST(NetworkTraffic, LoopbackThenLeftOut) {
  const auto traffic = parse_network_traffic(
      "Inter-|   Receive                   |  Transmit\n"
      " face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier c\n"
      "    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n"
      "  eth0:100 1 0 0 0 0 0 0 30 1 0 0 0 0 0 0\n"
      "  eth1: 20 1 0 0 0 0 0 0 4 1 0 0 0 0 0 0\n");
  ASSERT_TRUE(traffic);
  EXPECT_EQ(traffic->in, 120u);
  EXPECT_EQ(traffic->out, 34u);
}

TEST(DiskSpace, DirectoryThenItsFileSystem) {
  const TempDir directory;
  const auto space = read_disk_space(directory.path());
  ASSERT_TRUE(space);
  EXPECT_GT(space->used + space->free, 0u);
  EXPECT_TRUE(std::filesystem::canonical(directory.path()).string().starts_with(space->mount_point));
  EXPECT_FALSE(read_disk_space(directory / "absent").has_value());
}

TEST(ProcessUse, ThisProcessThenItsUsage) {
  const ProcessUse before = read_process_use();
  EXPECT_GT(before.resident, 0u);
  EXPECT_GE(before.address_space, before.resident);
  EXPECT_GE(before.threads, 1u);
  EXPECT_GT(before.uptime_seconds, 0);
  EXPECT_LT(before.uptime_seconds, 3600);
  std::ifstream held("/proc/self/status");
  EXPECT_EQ(read_process_use().file_descriptors, before.file_descriptors + 1);
  while (read_process_use().user_seconds + read_process_use().system_seconds <=
         before.user_seconds + before.system_seconds) {
  }
}

}  // namespace
}  // namespace tuft::telemetry::internal
