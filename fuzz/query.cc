// Reads the query of a GET request with the getters of all handlers.
#include "api/routing/query.h"

#include "target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tuft::api::QueryFields query(tuft::fuzz::text_of(data, size));
  const auto page = query.page(20, 500);
  const int64_t number = query.integer("n", 3, 1, 10);
  tuft::fuzz::require(number >= 1 && number <= 10);
  const auto text = query.text("project_id", 64);
  tuft::fuzz::require(!text || (!text->empty() && text->size() <= 64));
  (void)query.word("access_scope", "owned", {"owned", "accessible"});
  if (query.status().ok()) tuft::fuzz::require(page.limit >= 0 && page.limit <= 500 && page.offset >= 0);
  return 0;
}
