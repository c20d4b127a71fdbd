#include "app/tuft/state_store.h"

#include <cstdio>
#include <iostream>
#include <string>
#include <utility>

#include "store/redis/redis_store.h"
#include "store/redis/redis_url.h"
#include "store/sqlite/sqlite_store.h"

namespace tuft::app {
namespace {

// Adds the key of the configuration to a message.
Error of_key(const char* key, Error error) {
  error.message = std::string("persistence.") + key + ": " + error.message;
  return error;
}

int failed(const Error& error) {
  std::fprintf(stderr, "tuft clear persistence: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

Result<std::unique_ptr<store::KeyValue>> open_state_store(const config::PersistenceConfig& config) {
  switch (config.mode) {
    case config::PersistenceMode::kDisable:
      break;
    case config::PersistenceMode::kFile: {
      auto opened = store::open_sqlite_store(config.file_path);
      if (!opened.ok()) return of_key("file_path", std::move(opened).error());
      return opened;
    }
    case config::PersistenceMode::kRedis: {
      const auto url = store::parse_redis_url(config.redis_url);
      if (!url.ok()) return of_key("redis_url", url.error());
      auto opened = store::open_redis_store(*url);
      if (!opened.ok()) return of_key("redis_url", std::move(opened).error());
      return opened;
    }
  }
  return std::unique_ptr<store::KeyValue>();
}

Result<std::unique_ptr<control::Persistence>> open_persistence(const config::ServerConfig& config) {
  TUFT_ASSIGN(std::unique_ptr<store::KeyValue> store, open_state_store(config.persistence));
  if (store == nullptr) return std::unique_ptr<control::Persistence>();
  return control::Persistence::open(std::move(store), config);
}

int clear_persistence(const config::ServerConfig& config, bool force) {
  const config::PersistenceConfig& persistence = config.persistence;
  auto store = open_state_store(persistence);
  if (!store.ok()) return failed(store.error());
  if (*store == nullptr) {
    std::puts("Persistence is disabled in this configuration; there is nothing to clear. Checkpoints are kept.");
    return 0;
  }
  if (!force) {
    std::cout << "Remove every record of namespace \"" << persistence.name_space << "\" from " << (*store)->name()
              << "? Sessions, training runs and results are forgotten; checkpoints are kept. [y/N] " << std::flush;
    std::string answer;
    if (!std::getline(std::cin, answer)) return 1;
    if (answer != "y" && answer != "Y" && answer != "yes") {
      std::puts("Nothing was removed.");
      return 0;
    }
  }
  const auto removed = control::Persistence::clear(**store, persistence.name_space);
  if (!removed.ok()) return failed(removed.error());
  std::cout << "Removed " << *removed << " records of namespace \"" << persistence.name_space
            << "\". Checkpoints are kept.\n";
  return 0;
}

}  // namespace tuft::app
