// What every store must do. A store's own tests instantiate the suite:
//   INSTANTIATE_TEST_SUITE_P(Sqlite, StoreContract, ::testing::Values(Candidate{"sqlite", [] { ... }}));
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "store/key_value.h"

namespace tuft::store {

// A place that stores are opened on, one after the other: what one wrote the next finds.
class Place {
 public:
  virtual ~Place() = default;
  virtual Result<std::unique_ptr<KeyValue>> open() = 0;
};

struct Candidate {
  std::string name;
  std::function<std::unique_ptr<Place>()> make_place;
  std::function<std::string()> why_skipped = [] { return std::string(); };  // empty: it runs
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest calls it
inline void PrintTo(const Candidate& candidate, std::ostream* out) {
  *out << candidate.name;
}

class StoreContract : public ::testing::TestWithParam<Candidate> {
 protected:
  void SetUp() override;
  void reopen();
  KeyValue& store() { return *store_; }

  Status put(const std::string& key, const std::string& value);
  std::string get(const std::string& key);  // "<none>" where there is nothing

 private:
  std::unique_ptr<Place> place_;
  std::unique_ptr<KeyValue> store_;
};

}  // namespace tuft::store
