// A directory that the configuration accepts as a model.
#pragma once

#include <cstdlib>
#include <string>

#include "base/testing/temp_dir.h"

namespace tuft::config {

inline std::string model_directory() {
  static const TempDir directory;
  write_text(directory / "config.json", "{}");
  return directory.path().string();
}

// Returns a valid model entry followed by the lines `more`, indented by four.
inline std::string one_model(const std::string& more = {}) {
  return "supported_models:\n  - model_name: m\n    model_path: " + model_directory() + "\n    max_model_len: 128\n" +
         more;
}

inline constexpr const char* kUsers = "authorized_users: {tml-key-of-alice: alice}\n";

// Sets or unsets an environment variable until the end of the scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before, had_ = true;
    set(value);
  }
  ~ScopedVariable() { set(had_ ? before_.c_str() : nullptr); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void set(const char* value) const { value == nullptr ? ::unsetenv(name_) : ::setenv(name_, value, 1); }

  const char* name_;
  std::string before_;
  bool had_ = false;
};

}  // namespace tuft::config
