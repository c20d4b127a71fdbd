// SQLite as a telemetry store: typed columns with indexes, the span as encoded bytes, FTS5 for the bodies of logs,
// transactions of one request. For the comparison only.
#include <filesystem>
#include <stdexcept>
#include <vector>

#include <sqlite3.h>

#include "telemetry_store/otlp_decoder.h"
#include "telemetry_store/otlp_reader.h"
#include "telemetry_store_bench.h"

namespace tuft::bench {
namespace {

using namespace telemetry_store;
using namespace telemetry_store::internal;

class Statement {
 public:
  Statement(sqlite3* db, const std::string& sql) {
    if (sqlite3_prepare_v2(db, sql.c_str(), -1, &statement_, nullptr) != SQLITE_OK)
      throw std::runtime_error(sqlite3_errmsg(db));
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(int64_t value) {
    sqlite3_bind_int64(statement_, ++bound_, value);
    return *this;
  }
  Statement& bind(std::string_view text, bool blob = false) {
    const int size = static_cast<int>(text.size());
    if (text.empty()) {
      sqlite3_bind_null(statement_, ++bound_);
    } else if (blob) {
      sqlite3_bind_blob(statement_, ++bound_, text.data(), size, SQLITE_STATIC);
    } else {
      sqlite3_bind_text(statement_, ++bound_, text.data(), size, SQLITE_STATIC);
    }
    return *this;
  }
  bool step() { return sqlite3_step(statement_) == SQLITE_ROW; }
  void reset() {
    sqlite3_reset(statement_);
    bound_ = 0;
  }
  int64_t number(int column) { return sqlite3_column_int64(statement_, column); }
  std::string_view blob(int column) {
    const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    return {data, static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

class SqliteSubject final : public TelemetrySubject {
 public:
  explicit SqliteSubject(const std::string& directory) : directory_(directory) {
    std::filesystem::create_directories(directory);
    sqlite3_open((directory + "/telemetry.db").c_str(), &db_);
    run("pragma journal_mode = wal; pragma synchronous = off; pragma temp_store = memory; pragma cache_size = -65536;"
        "create table spans (id integer primary key, high int, low int, span int, parent int, start int, duration int,"
        " failed int, entry int, name text, service text, session text, run text, sampler text, request text,"
        " operation text, base_model text, user text, bytes blob);"
        "create index by_trace on spans (low);"
        "create index by_start on spans (start) where entry;"
        "create index by_failed on spans (start) where entry and failed;"
        "create index by_duration on spans (duration) where entry;"
        "create virtual table logs using fts5 (body, bytes unindexed);");
    for (const char* key : {"name", "session", "run", "sampler", "request", "user"})
      run("create index by_" + std::string(key) + " on spans (" + key + ", start) where " + key + " is not null;");
    insert_ = std::make_unique<Statement>(
        db_,
        "insert into spans (high, low, span, parent, start, duration, failed, entry, name, service, session, run,"
        " sampler, request, operation, base_model, user, bytes)"
        " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    insert_log_ = std::make_unique<Statement>(db_, "insert into logs (body, bytes) values (?, ?)");
  }
  ~SqliteSubject() override {
    insert_.reset();
    insert_log_.reset();
    sqlite3_close(db_);
  }

  void add_spans(std::string request) override {
    run("begin");
    read_spans(request, [&](const ScopeView& scope, const SpanView& span) {
      insert_->bind(static_cast<int64_t>(span.trace.high)).bind(static_cast<int64_t>(span.trace.low));
      insert_->bind(static_cast<int64_t>(span.span)).bind(static_cast<int64_t>(span.parent));
      insert_->bind(span.start).bind(span.duration).bind(span.failed ? 1 : 0);
      insert_->bind(span.parent == 0 || span.kind == 2 ? 1 : 0).bind(span.name).bind(scope.service);
      for (const std::string_view key : span.keys) insert_->bind(key);
      insert_->bind(span.user).bind(span.bytes, true);
      insert_->step();
      insert_->reset();
    });
    run("commit");
  }

  void add_logs(std::string request) override {
    run("begin");
    read_logs(request, [&](const ScopeView&, const LogView& log) {
      LogRecord decoded;
      decode_log(log.bytes, decoded);
      insert_log_->bind(decoded.body).bind(log.bytes, true);
      insert_log_->step();
      insert_log_->reset();
    });
    run("commit");
  }
  void settle() override {}

  size_t find(const Asked& asked) override {
    std::string where = "entry";
    if (asked.key == "failed") {
      where += " and failed";
    } else if (asked.key == "duration") {
      where += " and duration >= ?";
    } else if (!asked.key.empty()) {
      where = (asked.key == "name" ? "" : "entry and ") + asked.key + " = ?";
    }
    Statement find(db_, "select low, max(start) as newest from spans where " + where +
                            " group by low order by newest desc limit 100");
    // Without a condition the newest entries are read in the order of their index.
    Statement newest(db_, "select distinct low from (select low from spans where " + where +
                              " order by start desc limit 300) limit 100");
    const bool is_ordered = asked.key != "duration";
    Statement& used = is_ordered ? newest : find;
    if (asked.key == "duration") {
      used.bind(std::stoll(asked.value));
    } else if (!asked.key.empty() && asked.key != "failed") {
      used.bind(asked.value);
    }
    std::vector<int64_t> traces;
    while (used.step()) traces.push_back(used.number(0));
    Statement summary(db_, "select count(*), sum(failed), min(start), max(start + duration) from spans where low = ?");
    for (const int64_t trace : traces) {
      summary.bind(trace).step();
      summary.reset();
    }
    return traces.size();
  }

  size_t open_trace(const std::string& trace_id) override {
    const TraceId id = parse_trace_id(trace_id);
    Statement find(db_, "select bytes from spans where low = ? and high = ? order by start");
    find.bind(static_cast<int64_t>(id.low)).bind(static_cast<int64_t>(id.high));
    std::vector<Span> spans;
    while (find.step()) decode_span(find.blob(0), spans.emplace_back());
    return spans.size();
  }

  size_t search_logs(const std::string& text) override {
    Statement find(db_, "select bytes from logs where logs match ? order by rowid desc limit 100");
    find.bind(text);
    std::vector<LogRecord> logs;
    while (find.step()) decode_log(find.blob(0), logs.emplace_back());
    return logs.size();
  }

  size_t disk_bytes() override {
    run("pragma wal_checkpoint(truncate)");
    size_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) bytes += entry.file_size();
    return bytes;
  }

 private:
  void run(const std::string& sql) {
    char* problem = nullptr;
    if (sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, &problem) != SQLITE_OK) throw std::runtime_error(problem);
  }

  const std::string directory_;
  sqlite3* db_ = nullptr;
  std::unique_ptr<Statement> insert_, insert_log_;
};

}  // namespace

std::unique_ptr<TelemetrySubject> open_sqlite(const std::string& directory) {
  return std::make_unique<SqliteSubject>(directory);
}

}  // namespace tuft::bench
