#include "app/tuft/hash_key.h"

#include <istream>
#include <ostream>
#include <string>

#include "control/accounts/api_keys.h"

namespace tuft::app {
namespace {

constexpr size_t kKeyBytesMin = 24;

}  // namespace

int hash_key(bool is_new, std::istream& in, std::ostream& out, std::ostream& err) {
  if (is_new) {
    const std::string key = control::new_key();
    out << "key (for the user, shown only now): " << key << "\nhash (for authorized_users): " << control::hash_key(key)
        << "\n";
    return 0;
  }
  std::string key;
  std::getline(in, key);
  while (!key.empty() && (key.back() == '\r' || key.back() == ' ')) key.pop_back();
  if (key.size() < kKeyBytesMin) {
    err << "tuft hash-key: the key on the standard input must have at least " << kKeyBytesMin
        << " random characters, because a shorter key could be guessed from its hash; --new makes one\n";
    return 1;
  }
  out << control::hash_key(key) << "\n";
  return 0;
}

}  // namespace tuft::app
