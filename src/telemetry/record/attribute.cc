#include "telemetry/attribute.h"

#include <set>

#include "base/mutex.h"
#include "telemetry/record/per_process.h"

namespace tuft::telemetry {
namespace {

struct InternedNames {
  Mutex mutex;
  std::set<std::string, std::less<>> names TUFT_GUARDED_BY(mutex);
};

}  // namespace

Name Name::intern(std::string_view text) {
  InternedNames& interned = internal::PerProcess<InternedNames>::get();
  MutexLock lock(interned.mutex);
  auto found = interned.names.find(text);
  if (found == interned.names.end()) found = interned.names.emplace(text).first;
  return Name(std::string_view(*found));
}

}  // namespace tuft::telemetry
