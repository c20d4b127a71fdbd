// Sets environment variables until the end of a test.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

namespace tuft::config {

using Variables = std::map<std::string, std::string>;

class WithVariables {
 public:
  explicit WithVariables(Variables variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~WithVariables() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }
  WithVariables(const WithVariables&) = delete;
  WithVariables& operator=(const WithVariables&) = delete;

 private:
  const Variables variables_;
};

}  // namespace tuft::config
