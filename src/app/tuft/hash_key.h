// `tuft hash-key`: makes the hash of an API key for authorized_users.
#pragma once

#include <iosfwd>

namespace tuft::app {

// Reads a key from the first line of `in` and prints its hash. With `is_new` it makes a random key and prints the key
// and its hash. Returns the exit status: 1 if there is no key or it is too short to be protected by a fast hash.
int hash_key(bool is_new, std::istream& in, std::ostream& out, std::ostream& err);

}  // namespace tuft::app
