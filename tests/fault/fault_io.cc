// A library for LD_PRELOAD that makes calls on files fail, as on a full or broken disk, and moves the wall clock. Only
// calls on files below TUFT_FAULT_UNDER count. TUFT_FAULT_CONTROL names a file of five 64-bit integers that a test maps
// and changes while the program runs: the number of calls so far; the first and the last call that fail; how they fail:
// an errno, 0 for a write of half of the bytes, -1 to end the program with SIGKILL before the call; and the seconds by
// which the wall clock is ahead.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

struct Control {
  std::atomic<int64_t> calls;
  std::atomic<int64_t> first;
  std::atomic<int64_t> last;
  std::atomic<int64_t> how;
  std::atomic<int64_t> seconds_ahead;
};

constexpr int64_t kHalf = 0;
constexpr int64_t kKill = -1;

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

Control* control() {
  static Control* const mapped = []() -> Control* {
    const char* path = std::getenv("TUFT_FAULT_CONTROL");
    if (path == nullptr) return nullptr;
    const int file = next<int (*)(const char*, int, ...)>("open")(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    void* memory = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return memory == MAP_FAILED ? nullptr : static_cast<Control*>(memory);
  }();
  return mapped;
}

bool is_below(const char* path) {
  static const char* const under = std::getenv("TUFT_FAULT_UNDER");
  return under != nullptr && path != nullptr && std::strncmp(path, under, std::strlen(under)) == 0;
}

bool is_below(int file) {
  char link[64];
  char path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size <= 0) return false;
  path[size] = '\0';
  return is_below(path);
}

enum class Fate : uint8_t { kWorks, kFails, kShort };

// Counts a call and decides about it. kFails: errno is set.
template <typename Where>
Fate fate(Where where) {
  const int saved = errno;
  Control* const shared = control();
  if (shared == nullptr || !is_below(where)) {
    errno = saved;
    return Fate::kWorks;
  }
  errno = saved;
  const int64_t call = ++shared->calls;
  if (call < shared->first || call > shared->last) return Fate::kWorks;
  const int64_t how = shared->how;
  if (how == kKill) raise(SIGKILL);
  if (how == kHalf) return Fate::kShort;
  errno = static_cast<int>(how);
  return Fate::kFails;
}

int64_t seconds_ahead() {
  const int saved = errno;
  const Control* const shared = control();
  errno = saved;
  return shared == nullptr ? 0 : shared->seconds_ahead.load();
}

size_t some_of(Fate fate, size_t count) {
  return fate == Fate::kShort && count > 1 ? count / 2 : count;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

ssize_t write(int file, const void* bytes, size_t count) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  const Fate decided = fate(file);
  return decided == Fate::kFails ? -1 : real(file, bytes, some_of(decided, count));
}

ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t offset) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  const Fate decided = fate(file);
  return decided == Fate::kFails ? -1 : real(file, bytes, some_of(decided, count), offset);
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  return pwrite64(file, bytes, count, offset);
}

ssize_t writev(int file, const iovec* parts, int count) {
  static const auto real = next<ssize_t (*)(int, const iovec*, int)>("writev");
  const Fate decided = fate(file);
  return decided == Fate::kFails ? -1 : real(file, parts, decided == Fate::kShort && count > 1 ? 1 : count);
}

int fsync(int file) {
  static const auto real = next<int (*)(int)>("fsync");
  return fate(file) == Fate::kFails ? -1 : real(file);
}

int fdatasync(int file) {
  static const auto real = next<int (*)(int)>("fdatasync");
  return fate(file) == Fate::kFails ? -1 : real(file);
}

int ftruncate64(int file, off64_t size) noexcept {
  static const auto real = next<int (*)(int, off64_t)>("ftruncate64");
  return fate(file) == Fate::kFails ? -1 : real(file, size);
}

int ftruncate(int file, off_t size) noexcept {
  return ftruncate64(file, size);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = next<int (*)(const char*, mode_t)>("mkdir");
  return fate(path) == Fate::kFails ? -1 : real(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  return fate(to) == Fate::kFails ? -1 : real(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  static const auto real = next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  const Fate decided = to[0] == '/' ? fate(to) : fate(to_folder);
  return decided == Fate::kFails ? -1 : real(from_folder, from, to_folder, to, flags);
}

// Only an open() that may make a file counts.
int open64(const char* path, int flags, ...) {
  static const auto real = next<int (*)(const char*, int, ...)>("open64");
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
    if (fate(path) == Fate::kFails) return -1;
  }
  return real(path, flags, mode);
}

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  return open64(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  static const auto real = next<int (*)(int, const char*, int, ...)>("openat");
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
    if ((path[0] == '/' ? fate(path) : fate(folder)) == Fate::kFails) return -1;
  }
  return real(folder, path, flags, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  static const auto real = next<FILE* (*)(const char*, const char*)>("fopen64");
  if (mode[0] != 'r' && fate(path) == Fate::kFails) return nullptr;
  return real(path, mode);
}

int clock_gettime(clockid_t clock, timespec* out) noexcept {
  static const auto real = next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = real(clock, out);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) out->tv_sec += seconds_ahead();
  return result;
}

int gettimeofday(timeval* out, void* zone) noexcept {
  static const auto real = next<int (*)(timeval*, void*)>("gettimeofday");
  const int result = real(out, zone);
  if (result == 0) out->tv_sec += seconds_ahead();
  return result;
}

time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
#pragma GCC visibility pop
