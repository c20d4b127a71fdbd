#include "app/tuft/state_store.h"

#include <cstdio>
#include <iostream>
#include <string>
#include <utility>

#include "app/tuft/address_file.h"
#include "store/redis/redis_lease.h"
#include "store/redis/redis_store.h"
#include "store/redis/redis_url.h"
#include "store/sqlite/sqlite_store.h"

namespace tuft::app {
namespace {

constexpr Nanos kClearLease = 60 * kSecond;

// Adds the key of the configuration to a message.
Error of_key(const char* key, Error error) {
  error.message = std::string("persistence.") + key + ": " + error.message;
  return error;
}

int clear_failed(const Error& error) {
  std::fprintf(stderr, "tuft clear persistence: %s\n", error.message.c_str());
  return 1;
}

// Opens the store; null if persistence.mode is DISABLE. Blocks until the store answers.
Result<std::unique_ptr<store::KeyValue>> open_state_store(const config::PersistenceConfig& config,
                                                          std::optional<store::Fence> fence = std::nullopt) {
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
      auto opened = store::open_redis_store(*url, {}, {}, std::move(fence));
      if (!opened.ok()) return of_key("redis_url", std::move(opened).error());
      return opened;
    }
  }
  return std::unique_ptr<store::KeyValue>();
}

// Returns null if the store is not shared.
Result<std::unique_ptr<store::Lease>> make_lease(const config::PersistenceConfig& config) {
  if (config.mode != config::PersistenceMode::kRedis) return std::unique_ptr<store::Lease>();
  const auto url = store::parse_redis_url(config.redis_url);
  if (!url.ok()) return of_key("redis_url", url.error());
  // Two attempts fit between a renewal and the end of the lease.
  return store::make_redis_lease(*url,
                                 {.name_space = config.name_space, .timeout = config.lease_seconds * kSecond / 4});
}

// Makes sure that no server uses the namespace, as long as the lease is held. Returns the fence of the own writes.
Result<std::optional<store::Fence>> take_for_clearing(store::Lease* lease) {
  if (lease == nullptr) return std::optional<store::Fence>();
  auto standing = lease->take(kClearLease, "tuft clear persistence");
  if (!standing.ok()) return of_key("redis_url", std::move(standing).error());
  if (!standing->leads) {
    return failed_precondition("a server uses this namespace (" + standing->leader +
                               "); stop it first, and those that stand by for it");
  }
  return std::optional(store::Fence{lease->fence_key(), standing->token, [] {}});
}

// A file is locked by its one user, so it is not opened twice.
Result<size_t> clear(const config::PersistenceConfig& config, std::unique_ptr<store::KeyValue> store,
                     std::optional<store::Fence> fence) {
  if (fence) {
    TUFT_ASSIGN(store, open_state_store(config, std::move(fence)));
  }
  return control::Persistence::clear(*store, config.name_space);
}

}  // namespace

Result<std::unique_ptr<store::Leadership>> make_leadership(const config::ServerConfig& config,
                                                           std::function<void(store::LeaderLoss)> on_lost) {
  TUFT_ASSIGN(std::unique_ptr<store::Lease> lease, make_lease(config.persistence));
  if (lease == nullptr) return std::unique_ptr<store::Leadership>();
  store::Leadership::Options options;
  options.lease = config.persistence.lease_seconds * kSecond;
  options.address = advertised_address(config, config.port);
  options.on_lost = std::move(on_lost);
  return std::make_unique<store::Leadership>(std::move(lease), std::move(options));
}

std::string advertised_address(const config::ServerConfig& config, uint16_t port) {
  if (!config.persistence.advertise.empty()) return config.persistence.advertise;
  return http_address(config.host, port, !config.tls.certificate.empty());
}

Result<std::unique_ptr<control::Persistence>> open_persistence(const config::ServerConfig& config,
                                                               store::Leadership* leadership) {
  std::optional<store::Fence> fence;
  if (leadership != nullptr) fence = leadership->fence();
  TUFT_ASSIGN(std::unique_ptr<store::KeyValue> store, open_state_store(config.persistence, std::move(fence)));
  if (store == nullptr) return std::unique_ptr<control::Persistence>();
  return control::Persistence::open(std::move(store), config);
}

Result<std::unique_ptr<control::Persistence>> open_view(const config::ServerConfig& config,
                                                        const std::stop_token& stop) {
  TUFT_ASSIGN(std::unique_ptr<store::KeyValue> store, open_state_store(config.persistence));
  return control::Persistence::open_view(std::move(store), config, stop);
}

int clear_persistence(const config::ServerConfig& config, bool force) {
  const config::PersistenceConfig& persistence = config.persistence;
  auto seen = open_state_store(persistence);
  if (!seen.ok()) return clear_failed(seen.error());
  if (*seen == nullptr) {
    std::puts("Persistence is disabled in this configuration; there is nothing to clear. Checkpoints are kept.");
    return 0;
  }
  if (!force) {
    std::cout << "Remove every record of namespace \"" << persistence.name_space << "\" from " << (*seen)->name()
              << "? Sessions, training runs and results are forgotten; checkpoints are kept. [y/N] " << std::flush;
    std::string answer;
    if (!std::getline(std::cin, answer)) return 1;
    if (answer != "y" && answer != "Y" && answer != "yes") {
      std::puts("Nothing was removed.");
      return 0;
    }
  }
  const auto lease = make_lease(persistence);
  if (!lease.ok()) return clear_failed(lease.error());
  auto fence = take_for_clearing(lease->get());
  if (!fence.ok()) return clear_failed(fence.error());
  const Result<size_t> removed = clear(persistence, std::move(*seen), std::move(*fence));
  if (*lease != nullptr) (void)(*lease)->release();  // else it ends by itself
  if (!removed.ok()) return clear_failed(removed.error());
  std::cout << "Removed " << *removed << " records of namespace \"" << persistence.name_space
            << "\". Checkpoints are kept.\n";
  return 0;
}

}  // namespace tuft::app
