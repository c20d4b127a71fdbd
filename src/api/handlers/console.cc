// The web console: its files, and the sessions that its users log in to.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "api/handlers/console_assets.h"
#include "api/handlers/handlers.h"
#include "api/json/catalog_json.h"
#include "api/json/error_mapping.h"
#include "api/json/json_reader.h"
#include "api/routing/console_sessions.h"
#include "api/routing/own_url.h"
#include "api/routing/refused_keys.h"
#include "metrics/observe.h"
#include "telemetry/log.h"

namespace tuft::api {
namespace {

// No script and no style but the files of this server, and no request to another host.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src "
    "'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

constexpr std::string_view kWithoutConsole =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>tuft</title><h1>tuft</h1><p>This program was "
    "built "
    "without its web console. To build it in, put console/dist.tar.gz of a release beside its sources, or install "
    "Node.js "
    "and npm; then run <code>./dev build</code>.</p><p>The same answers are at <code>/api/v1/observe/</code>; see <a "
    "href=\"/docs\">/docs</a>.</p></html>\n";

void secure(Response& response) {
  response.headers.emplace_back("Content-Security-Policy", kPolicy);
  response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.headers.emplace_back("Referrer-Policy", "no-referrer");
}

// A refusal, with the same headers as every other answer below /console.
Answer refused(const Error& error) {
  Response response = error_response(error);
  secure(response);
  response.headers.emplace_back("Cache-Control", "no-store");
  return Answer(std::move(response));
}

struct Served {
  const ConsoleAsset* asset;
  std::shared_ptr<const std::string> bytes, gzip;  // gzip is null if there is none
};

// Copied once, because answers share their ownership.
const std::map<std::string_view, Served>& served_files() {
  static const auto files = [] {
    std::map<std::string_view, Served> made;
    for (const ConsoleAsset& asset : console_assets()) {
      made[asset.path] = {&asset, std::make_shared<const std::string>(asset.bytes),
                          asset.gzip.empty() ? nullptr : std::make_shared<const std::string>(asset.gzip)};
    }
    return made;
  }();
  return files;
}

bool accepts_gzip(std::string_view accept_encoding) {
  while (!accept_encoding.empty()) {
    const size_t end = std::min(accept_encoding.find(','), accept_encoding.size());
    const std::string_view coding = accept_encoding.substr(0, end);
    accept_encoding.remove_prefix(std::min(end + 1, accept_encoding.size()));
    if (coding.find("gzip") == coding.npos) continue;
    return coding.find("q=0") == coding.npos || coding.find("q=0.") != coding.npos;
  }
  return false;
}

Response file_response(const Exchange& exchange, const Served& file) {
  Response response;
  response.content_type = file.asset->content_type;
  secure(response);
  response.headers.emplace_back("ETag", file.asset->etag);
  response.headers.emplace_back("Cache-Control",
                                file.asset->name_has_hash ? "public, max-age=31536000, immutable" : "no-cache");
  response.headers.emplace_back("Vary", "Accept-Encoding");
  if (exchange.headers.if_none_match.find(file.asset->etag) != std::string_view::npos) {
    response.status = 304;
    return response;
  }
  const bool is_compressed = file.gzip != nullptr && accepts_gzip(exchange.headers.accept_encoding);
  response.shared_body = is_compressed ? file.gzip : file.bytes;
  if (is_compressed) response.headers.emplace_back("Content-Encoding", "gzip");
  return response;
}

std::string cookie_text(const Exchange& exchange, std::string_view token, Nanos lifetime) {
  const bool is_secure = exchange.scheme == "https" || exchange.headers.forwarded_proto == "https" ||
                         exchange.public_url.starts_with("https://");
  return std::string(kConsoleCookie) + "=" + std::string(token) +
         "; HttpOnly; SameSite=Strict; Path=/; Max-Age=" + std::to_string(lifetime / kSecond) +
         (is_secure ? "; Secure" : "");
}

}  // namespace

// A path without a file is a page of the console, which its scripts make. A file that is missing is an error.
Result<Answer> handle_console_file(Exchange& exchange) {
  const auto& files = served_files();
  if (files.empty()) {
    Response response;
    response.content_type = "text/html; charset=utf-8";
    response.body = kWithoutConsole;
    secure(response);
    return Answer(std::move(response));
  }
  const std::string_view path = exchange.path_parameters.empty() ? std::string_view() : exchange.path_parameters[0];
  auto found = files.find(path);
  if (found == files.end() && !path.starts_with("assets/")) found = files.find("index.html");
  if (found == files.end())
    return refused(not_found("the console has no such file; reload the page", "no_console_file"));
  return Answer(file_response(exchange, found->second));
}

Result<Answer> handle_root(Exchange& exchange) {
  Response response;
  response.status = 307;
  response.content_type = "text/plain";
  secure(response);
  response.headers.emplace_back("Location", own_url(exchange, "/console"));
  return Answer(std::move(response));
}

Result<Answer> handle_console_login(Exchange& exchange) {
  if (const Status own = check_own_page(exchange.headers, exchange.public_url); !own.ok()) return refused(own.error());
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  const std::string key = fields.required_string("key");
  fields.only({"key"});
  TUFT_TRY(body_read(exchange, body.status()));
  const Result<ConsoleSessions::Login> login = exchange.console->login(key);
  metrics::observe().console_logins.add(1, {{"status", login.ok() ? "ok" : "refused"}});
  if (!login.ok()) {
    if (const auto told = count_refused_key(login.error())) {
      telemetry::log_warning("auth.failed", told->error.message,
                             {{"tuft.error.reason", told->error.reason}, {"tuft.left_out", told->left_out}});
    }
    return refused({ErrorCode::kUnauthenticated, login.error().message, login.error().reason});
  }
  telemetry::log_info("console.login", "a user logged in to the console", {{"tuft.user", login->user.str()}});
  Response response = json_response(whoami_json(exchange, login->user));
  secure(response);
  response.headers.emplace_back("Set-Cookie", cookie_text(exchange, login->token, ConsoleSessions::kLifetime));
  response.headers.emplace_back("Cache-Control", "no-store");
  return Answer(std::move(response));
}

Result<Answer> handle_console_logout(Exchange& exchange) {
  TUFT_TRY(check_from_console(exchange.headers, exchange.public_url));
  exchange.console->logout(console_token(exchange.headers.cookie));
  Response response = no_content();
  secure(response);
  response.headers.emplace_back("Set-Cookie", cookie_text(exchange, "", 0));
  return Answer(std::move(response));
}

}  // namespace tuft::api
