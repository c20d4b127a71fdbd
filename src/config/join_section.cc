#include <algorithm>
#include <string>

#include "base/secret_file.h"
#include "config/sections.h"

namespace tuft::config {
namespace {

constexpr int kLeaseMin = 3;
constexpr int kLeaseMax = 600;
constexpr int kKeepMax = 3600;

void check_access(MapReader& reader, const JoinConfig& join) {
  if (join.certificate.empty() != join.private_key.empty()) {
    reader.error(join.certificate.empty() ? "certificate" : "private_key",
                 "is missing: certificate and private_key belong together");
  } else if (join.certificate.empty()) {
    reader.error("certificate",
                 "is missing: workers join over TLS only; give join.certificate and join.private_key, or "
                 "those of tls");
  }
  if (join.token_file.empty() && join.worker_authority.empty()) {
    reader.error("token_file",
                 "is missing: a worker must show that it may join; make a token with "
                 "`openssl rand -hex 32 > FILE`, or give worker_authority");
  }
}

}  // namespace

void read_join(const Node* node, ServerConfig& config, Problems& problems) {
  MapReader reader(node, "join", problems);
  JoinConfig& join = config.join;
  join.host = config.host;
  reader.text("host", join.host);
  reader.integer("port", join.port);
  reader.file("certificate", join.certificate);
  reader.file("private_key", join.private_key);
  if (join.certificate.empty() && join.private_key.empty()) {
    join.certificate = config.tls.certificate;
    join.private_key = config.tls.private_key;
  }
  reader.file("token_file", join.token_file);
  reader.file("worker_authority", join.worker_authority);
  reader.integer("lease_seconds", join.lease_seconds, kLeaseMin, kLeaseMax);
  reader.integer("keep_seconds", join.keep_seconds, 0, kKeepMax);
  if (join.port != 0) check_access(reader, join);
  if (join.port != 0 && is_open_to_others(join.token_file)) reader.warning("token_file", kOpenToOthers);
  if (join.port != 0 && join.port == config.port && join.host == config.host) {
    reader.error("port", "must differ from port, where the API is served");
  }
  reader.finish();
  const auto joined = std::find_if(config.supported_models.begin(), config.supported_models.end(),
                                   [](const ModelConfig& model) { return model.worker == WorkerKind::kJoined; });
  if (joined != config.supported_models.end() && join.port == 0) {
    problems.error(reader.line(), "join.port",
                   "is missing: supported_models has worker: joined for " + joined->model_name +
                       ", whose workers need a port at which they join");
  }
}

}  // namespace tuft::config
