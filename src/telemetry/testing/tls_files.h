// A certificate authority for tests, with a server certificate for 127.0.0.1 and localhost and a client certificate.
#pragma once

#include <filesystem>
#include <string>

namespace tuft::telemetry::testing {

// The openssl program makes the files in a directory that the destructor removes.
struct TlsFiles {
  TlsFiles();
  ~TlsFiles();
  TlsFiles(const TlsFiles&) = delete;
  TlsFiles& operator=(const TlsFiles&) = delete;

  std::string ca() const { return directory / "ca.pem"; }
  std::string server_certificate() const { return directory / "server.pem"; }
  std::string server_key() const { return directory / "server.key"; }
  std::string client_certificate() const { return directory / "client.pem"; }
  std::string client_key() const { return directory / "client.key"; }

  std::filesystem::path directory;
};

}  // namespace tuft::telemetry::testing
