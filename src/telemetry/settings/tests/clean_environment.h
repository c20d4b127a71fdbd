// Provides the environment for tests of settings.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "telemetry/telemetry.h"

namespace tuft::telemetry::internal {

using Variables = std::vector<std::pair<const char*, const char*>>;
using Configure = std::function<void(TelemetryConfig&)>;

inline void no_key(TelemetryConfig&) {}

// Unsets every variable that the settings read, until the end of the test.
class CleanEnvironment {
 public:
  explicit CleanEnvironment(const Variables& variables) {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text(*entry);
      const std::string name(text.substr(0, text.find('=')));
      if (name.starts_with("OTEL_") || name.starts_with("TUFT_OT") || name.starts_with("FD_") ||
          name.starts_with("EXPORTER_") || name.starts_with("TRACES_")) {
        saved_.emplace_back(name, text.substr(name.size() + 1));
      }
    }
    for (const auto& [name, value] : saved_) ::unsetenv(name.c_str());
    for (const auto& [name, value] : variables) {
      ::setenv(name, value, 1);
      set_.emplace_back(name);
    }
  }
  ~CleanEnvironment() {
    for (const std::string& name : set_) ::unsetenv(name.c_str());
    for (const auto& [name, value] : saved_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  CleanEnvironment(const CleanEnvironment&) = delete;
  CleanEnvironment& operator=(const CleanEnvironment&) = delete;

 private:
  std::vector<std::pair<std::string, std::string>> saved_;
  std::vector<std::string> set_;
};

}  // namespace tuft::telemetry::internal
