#include "telemetry/request/trace_thread.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/id.h"
#include "telemetry/record/recorder.h"

namespace tuft::telemetry::internal {
namespace {

constexpr size_t kLabelBytesMax = 64;
constexpr size_t kHostBytesMax = 128;
constexpr size_t kNameBytesMax = kLabelBytesMax + kHostBytesMax + 64;

template <size_t N>
struct FixedText {
  std::array<char, N> bytes;
  size_t size;

  void append(std::string_view text) {
    const size_t count = std::min(text.size(), N - size);
    std::memcpy(bytes.data() + size, text.data(), count);
    size += count;
  }
  void append(int64_t number) {
    std::array<char, 24> digits;
    const char* end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    append(std::string_view(digits.data(), static_cast<size_t>(end - digits.data())));
  }
  std::string_view view() const { return {bytes.data(), size}; }
};

// Trivially destructible, because spans may start in the destructors of other thread_locals.
struct ThreadInfo {
  uint64_t key;
  int64_t tid;  // 0: not known yet
  bool labelled;
  bool has_tp_rank;
  bool has_dp_rank;
  int tp_rank;
  int dp_rank;
  FixedText<kLabelBytesMax> label;
  FixedText<kNameBytesMax> name;
};
constinit thread_local ThreadInfo t_info{};

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
  return line;
}

std::string network_address() {
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/net", problem)) {
    std::string address = first_line((entry.path() / "address").c_str());
    std::erase(address, ':');
    if (address.find_first_not_of('0') != std::string::npos) return address;
  }
  return {};
}

std::string find_host_id() {
  const char* name = std::getenv("FD_HOST_NAME");
  std::string id = name != nullptr ? name : "";
  if (id.empty()) id = first_line("/etc/machine-id");
  if (id.empty()) id = first_line("/var/lib/dbus/machine-id");
  if (id.empty()) id = network_address();
  if (id.empty()) id = random_uuid() + "-" + std::to_string(::getpid());
  return std::string(cut_utf8(id, kHostBytesMax));
}

void describe(std::string_view label) {
  static std::atomic<uint64_t> last_key{0};
  if (t_info.key == 0) t_info.key = ++last_key;
  t_info.tid = ::syscall(SYS_gettid);
  t_info.label.size = 0;
  t_info.label.append(cut_utf8(label, kLabelBytesMax));
  t_info.name.size = 0;
  t_info.name.append(t_info.label.view());
  if (t_info.has_tp_rank) {
    t_info.name.append(" [TP ");
    t_info.name.append(t_info.tp_rank);
    t_info.name.append("] ");
  }
  t_info.name.append("(host:");
  t_info.name.append(host_id());
  t_info.name.append(" | pid:");
  t_info.name.append(t_info.tid);
  t_info.name.append(")");
}

const ThreadInfo& this_thread() {
  if (t_info.tid == 0) describe("unknown");
  return t_info;
}

}  // namespace

Tracer request_tracer() {
  return get_tracer("tuft.request_trace");
}

std::string_view host_id() {
  // Leaked: threads outlive static objects.
  static const std::string& id = *new std::string(find_host_id());
  return id;
}

uint64_t this_thread_key() {
  return this_thread().key;
}

bool set_thread_info(std::string_view label, std::optional<int> tp_rank, std::optional<int> dp_rank) {
  if (t_info.labelled) return false;
  t_info.labelled = true;
  t_info.has_tp_rank = tp_rank.has_value();
  t_info.has_dp_rank = dp_rank.has_value();
  t_info.tp_rank = tp_rank.value_or(0);
  t_info.dp_rank = dp_rank.value_or(0);
  describe(label);
  return true;
}

Span start_thread_span(const SpanContext& root, Nanos start) {
  const ThreadInfo& info = this_thread();
  Span span = request_tracer().start_span("thread", {.parent = root, .start = start});
  if (!span.recording()) return span;
  span.set_dynamic_name(info.name.view());
  span.set_attributes({{"host_id", host_id()}, {"pid", info.tid}, {"thread_label", info.label.view()}});
  if (info.has_tp_rank) span.set_attribute("tp_rank", info.tp_rank);
  if (info.has_dp_rank) span.set_attribute("dp_rank", info.dp_rank);
  return span;
}

void forget_thread_info() {
  t_info = {};
}

}  // namespace tuft::telemetry::internal
