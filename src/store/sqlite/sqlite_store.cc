#include "store/sqlite/sqlite_store.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <sqlite3.h>

namespace tuft::store {
namespace {

constexpr int kApplicationId = 0x54754654;  // "TuFT"
constexpr int kFormatVersion = 1;
constexpr int kLockWaitMilliseconds = 2000;
constexpr Nanos kPurgeInterval = 60 * kSecond;

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

Error error_of(sqlite3* database, const std::string& name) {
  const std::string cause = name + ": " + sqlite3_errmsg(database);
  switch (sqlite3_errcode(database)) {
    case SQLITE_FULL:
      return unavailable(cause + "; free space on its disk", "store_full");
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return unavailable(cause + "; the server must be able to write it", "store_readonly");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return unavailable(cause + "; another process uses it; is another tuft running with the same file?",
                         "store_locked");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return data_loss(cause + "; it is unchanged: configure another file, or restore a backup", "store_corrupt");
    default:
      return unavailable(cause, "store_io");
  }
}

int64_t wall_milliseconds() {
  return system_clock().wall() / kMillisecond;
}

class SqliteBackend final : public Backend {
 public:
  SqliteBackend(Database database, std::string name) : database_(std::move(database)), name_(std::move(name)) {}

  Status prepare() {
    TUFT_TRY(prepare(put_,
                     "INSERT INTO entry(key, value, expires_at) VALUES(?1, ?2, ?3) ON CONFLICT(key) DO UPDATE "
                     "SET value = excluded.value, expires_at = excluded.expires_at"));
    TUFT_TRY(prepare(erase_, "DELETE FROM entry WHERE key = ?1"));
    TUFT_TRY(prepare(get_, "SELECT value FROM entry WHERE key = ?1 AND (expires_at IS NULL OR expires_at > ?2)"));
    TUFT_TRY(prepare(scan_,
                     "SELECT key, value FROM entry WHERE key >= ?1 AND key < ?2 AND "
                     "(expires_at IS NULL OR expires_at > ?3) ORDER BY key"));
    TUFT_TRY(prepare(scan_keys_,
                     "SELECT key FROM entry WHERE key >= ?1 AND key < ?2 AND "
                     "(expires_at IS NULL OR expires_at > ?3) ORDER BY key"));
    return prepare(purge_, "DELETE FROM entry WHERE expires_at <= ?1");
  }

  std::vector<Status> write(std::span<const Write> writes) override {
    Status result = execute("BEGIN IMMEDIATE");
    if (result.ok()) {
      result = write_all(writes);
      if (result.ok()) result = execute("COMMIT");
      // Some errors roll back by themselves; then this statement fails, which is harmless.
      if (!result.ok()) sqlite3_exec(database_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
    }
    failed_ = !result.ok();
    if (result.ok()) purge_expired();
    return std::vector<Status>(writes.size(), result);
  }

  Result<std::optional<std::string>> get(const std::string& key) override {
    bind_text(get_, 1, key);
    sqlite3_bind_int64(get_.get(), 2, wall_milliseconds());
    std::optional<std::string> value;
    const int code = sqlite3_step(get_.get());
    if (code == SQLITE_ROW) value = blob(get_, 0);
    TUFT_TRY(finish(get_, code == SQLITE_ROW ? SQLITE_DONE : code));
    return value;
  }

  Result<std::vector<Entry>> scan(const Prefixes& prefixes) override {
    std::vector<Entry> entries;
    for (const std::string& prefix : prefixes) TUFT_TRY(scan_with(scan_, prefix, entries));
    return entries;
  }
  Result<std::vector<Entry>> scan_keys(const std::string& prefix) override {
    std::vector<Entry> entries;
    TUFT_TRY(scan_with(scan_keys_, prefix, entries));
    return entries;
  }

  // Only a write shows whether a full disk has space again. It costs an fsync, so it is done after a failure only.
  Status probe() override {
    if (!failed_) return {};
    TUFT_TRY(execute("BEGIN IMMEDIATE"));
    Status committed = execute("UPDATE heartbeat SET beats = beats + 1");
    if (committed.ok()) committed = execute("COMMIT");
    if (!committed.ok()) sqlite3_exec(database_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
    failed_ = !committed.ok();
    return committed;
  }
  bool probe_writes() const override { return true; }

 private:
  Status scan_with(const Statement& statement, const std::string& prefix, std::vector<Entry>& entries) {
    const std::string after = prefix + '\xff';  // greater than every key with the prefix, because keys are UTF-8
    bind_text(statement, 1, prefix);
    bind_text(statement, 2, after);
    sqlite3_bind_int64(statement.get(), 3, wall_milliseconds());
    const bool has_values = sqlite3_column_count(statement.get()) > 1;
    int code = SQLITE_ROW;
    while ((code = sqlite3_step(statement.get())) == SQLITE_ROW) {
      entries.push_back({blob(statement, 0), has_values ? blob(statement, 1) : std::string()});
    }
    return finish(statement, code);
  }

  Status prepare(Statement& statement, std::string_view sql) {
    sqlite3_stmt* prepared = nullptr;
    const int code = sqlite3_prepare_v3(database_.get(), sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &prepared, nullptr);
    statement.reset(prepared);
    if (code != SQLITE_OK) return error_of(database_.get(), name_);
    return {};
  }

  Status execute(const char* sql) {
    if (sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
    return error_of(database_.get(), name_);
  }

  Status write_all(std::span<const Write> writes) {
    for (const Write& write : writes) {
      for (const Change& change : write.changes) TUFT_TRY(apply(change));
    }
    return {};
  }

  Status apply(const Change& change) {
    const Statement& statement = change.value ? put_ : erase_;
    bind_text(statement, 1, change.key);
    if (change.value) {
      sqlite3_bind_blob64(statement.get(), 2, change.value->data(), change.value->size(), SQLITE_STATIC);
      if (change.time_to_live) {
        sqlite3_bind_int64(statement.get(), 3, wall_milliseconds() + *change.time_to_live / kMillisecond);
      } else {
        sqlite3_bind_null(statement.get(), 3);
      }
    }
    return finish(statement, sqlite3_step(statement.get()));
  }

  Status finish(const Statement& statement, int code) {
    Status status;
    if (code != SQLITE_DONE) status = error_of(database_.get(), name_);
    sqlite3_reset(statement.get());
    sqlite3_clear_bindings(statement.get());
    return status;
  }

  void purge_expired() {
    const Nanos now = system_clock().monotonic();
    if (now < next_purge_) return;
    next_purge_ = now + kPurgeInterval;
    sqlite3_bind_int64(purge_.get(), 1, wall_milliseconds());
    // Entries that cannot be removed now are invisible and are removed the next time.
    (void)finish(purge_, sqlite3_step(purge_.get()));
  }

  static void bind_text(const Statement& statement, int index, const std::string& text) {
    sqlite3_bind_text64(statement.get(), index, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
  }
  static std::string blob(const Statement& statement, int column) {
    const auto* data = static_cast<const char*>(sqlite3_column_blob(statement.get(), column));
    const int size = sqlite3_column_bytes(statement.get(), column);
    return data == nullptr ? std::string() : std::string(data, static_cast<size_t>(size));
  }

  const Database database_;  // declared first, because statements must be destroyed before it
  const std::string name_;
  Statement put_, erase_, get_, scan_, scan_keys_, purge_;
  Nanos next_purge_ = 0;
  bool failed_ = false;  // the last write
};

// Creates the file with its final permissions, so that it is never readable for other users.
Status make_private_file(const std::filesystem::path& path) {
  std::error_code failure;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failure);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) {
    return unavailable("SQLite file " + path.string() + " cannot be opened for writing: " + std::strerror(errno),
                       errno == ENOSPC ? "store_full" : "store_readonly");
  }
  ::close(file);
  return {};
}

Result<int64_t> number_of(sqlite3* database, const char* pragma, const std::string& name) {
  sqlite3_stmt* prepared = nullptr;
  int code = sqlite3_prepare_v2(database, pragma, -1, &prepared, nullptr);
  const Statement statement(prepared);
  if (code == SQLITE_OK) code = sqlite3_step(statement.get());
  if (code != SQLITE_ROW) return error_of(database, name);
  return sqlite3_column_int64(statement.get(), 0);
}

Status set_up(sqlite3* database, const std::string& name) {
  const auto execute = [&](const char* sql) -> Status {
    if (sqlite3_exec(database, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
    return error_of(database, name);
  };
  sqlite3_busy_timeout(database, kLockWaitMilliseconds);
  // Set before WAL: no other process can use the file, and no shared memory is needed.
  TUFT_TRY(execute("PRAGMA locking_mode = EXCLUSIVE"));
  TUFT_ASSIGN(const int64_t application, number_of(database, "PRAGMA application_id", name));
  TUFT_ASSIGN(const int64_t version, number_of(database, "PRAGMA user_version", name));
  TUFT_ASSIGN(const int64_t tables, number_of(database, "SELECT count(*) FROM sqlite_master", name));
  if (tables > 0 && application != kApplicationId) {
    return data_loss(name + ": this database belongs to another program; configure another file", "store_corrupt");
  }
  if (version > kFormatVersion) {
    return data_loss(name + ": its format is " + std::to_string(version) + " and this tuft supports up to " +
                         std::to_string(kFormatVersion) + "; use a newer tuft or another file",
                     "store_corrupt");
  }
  TUFT_TRY(execute("PRAGMA journal_mode = WAL"));
  TUFT_TRY(execute("PRAGMA synchronous = FULL"));
  return execute(
      "BEGIN IMMEDIATE;"
      "PRAGMA application_id = 0x54754654;"
      "PRAGMA user_version = 1;"
      "CREATE TABLE IF NOT EXISTS entry(key TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL, expires_at INTEGER);"
      "CREATE INDEX IF NOT EXISTS entry_expires_at ON entry(expires_at) WHERE expires_at IS NOT NULL;"
      "CREATE TABLE IF NOT EXISTS heartbeat(id INTEGER PRIMARY KEY CHECK (id = 1), beats INTEGER NOT NULL);"
      "INSERT OR IGNORE INTO heartbeat VALUES(1, 0);"
      "COMMIT");
}

}  // namespace

Result<std::unique_ptr<KeyValue>> open_sqlite_store(const std::filesystem::path& path, const QueueLimits& limits) {
  const std::string name = "SQLite file " + path.string();
  TUFT_TRY(make_private_file(path));
  sqlite3* opened = nullptr;
  // One thread uses the connection at a time, so SQLite does not need a mutex.
  const int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database(opened);
  if (code != SQLITE_OK) return error_of(database.get(), name);
  TUFT_TRY(set_up(database.get(), name));
  auto backend = std::make_unique<SqliteBackend>(std::move(database), name);
  TUFT_TRY(backend->prepare());
  StoreIdentity identity{.name = name,
                         .system = "sqlite",
                         .address = {},
                         .port = 0,
                         .database = path.filename().string(),
                         .scope = "tuft.store",
                         .span_names = {"store.SET", "store.GET", "store.DEL", "store.SCAN"},
                         .is_redis = false};
  return make_threaded_store(std::move(backend), std::move(identity), limits);
}

}  // namespace tuft::store
