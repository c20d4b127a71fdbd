#include "store/key_value.h"

#include <future>
#include <utility>

namespace tuft::store {
namespace {

template <typename T, typename Call>
T wait_for(const Call& call) {
  auto answer = std::make_shared<std::promise<T>>();
  std::future<T> future = answer->get_future();
  const Status accepted = call([answer](T result) { answer->set_value(std::move(result)); });
  if (!accepted.ok()) return accepted.error();
  return future.get();
}

}  // namespace

Status write_and_wait(KeyValue& store, Write write) {
  return wait_for<Status>([&](auto done) { return store.write(std::move(write), std::move(done)); });
}

Result<std::optional<std::string>> get_and_wait(KeyValue& store, std::string key, const telemetry::SpanContext& trace) {
  return wait_for<Result<std::optional<std::string>>>(
      [&](auto done) { return store.get(std::move(key), trace, std::move(done)); });
}

Result<std::vector<Entry>> scan_and_wait(KeyValue& store, Prefixes prefixes, const telemetry::SpanContext& trace) {
  return wait_for<Result<std::vector<Entry>>>(
      [&](auto done) { return store.scan(std::move(prefixes), trace, std::move(done)); });
}

Result<std::vector<Entry>> scan_keys_and_wait(KeyValue& store, std::string prefix) {
  return wait_for<Result<std::vector<Entry>>>(
      [&](auto done) { return store.scan_keys(std::move(prefix), {}, std::move(done)); });
}

}  // namespace tuft::store
