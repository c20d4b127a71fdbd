#include "telemetry/testing/tls_files.h"

#include <cstdlib>
#include <fstream>

#include "base/check.h"

namespace tuft::telemetry::testing {
namespace {

void run(const std::filesystem::path& directory, const std::string& arguments) {
  const std::string command = "cd '" + directory.string() + "' && openssl " + arguments + " >/dev/null 2>&1";
  TUFT_CHECK(std::system(command.c_str()) == 0, "openssl " + arguments);  // NOLINT(cert-env33-c): a fixed command
}

}  // namespace

TlsFiles::TlsFiles() {
  std::string name = std::filesystem::temp_directory_path() / "tuft-tls-XXXXXX";
  TUFT_CHECK(::mkdtemp(name.data()) != nullptr, "no temporary directory");
  directory = name;
  const std::string key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes ";
  run(directory, "req -x509 -days 2 -subj '/CN=test authority' " + key + "-keyout ca.key -out ca.pem");
  std::ofstream(directory / "names") << "subjectAltName=IP:127.0.0.1,DNS:localhost\n";
  for (const std::string who : {"server", "client"}) {
    run(directory, "req -subj /CN=" + who + " " + key + "-keyout " + who + ".key -out " + who + ".csr");
    run(directory, "x509 -req -days 2 -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -in " + who +
                       ".csr -out " + who + ".pem");
  }
}

TlsFiles::~TlsFiles() {
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

}  // namespace tuft::telemetry::testing
