// The contract tests of KeyValue. The tests of a store instantiate them:
//   INSTANTIATE_TEST_SUITE_P(Sqlite, StoreContract, ::testing::Values(Candidate{"sqlite", [] { ... }}));
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "store/key_value.h"

namespace tuft::store {

// Opens stores one after the other on the same data.
class Storage {
 public:
  virtual ~Storage() = default;
  virtual Result<std::unique_ptr<KeyValue>> open() = 0;
};

struct Candidate {
  std::string name;
  std::function<std::unique_ptr<Storage>()> make_storage;
  std::function<std::string()> why_skipped = [] { return std::string(); };  // empty: not skipped
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
  std::string get(const std::string& key);  // "<none>" if there is no such key

 private:
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<KeyValue> store_;
};

}  // namespace tuft::store
