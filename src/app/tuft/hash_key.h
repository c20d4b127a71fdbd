// `tuft hash-key`: what authorized_users may hold in place of an API key.
#pragma once

#include <iosfwd>

namespace tuft::app {

// Reads the key from `in`, up to the end of the line, and prints its hash; with `is_new` draws a key and prints both.
// The exit status: 1 where there is no key, or one that is too short for a fast hash.
int hash_key(bool is_new, std::istream& in, std::ostream& out, std::ostream& err);

}  // namespace tuft::app
