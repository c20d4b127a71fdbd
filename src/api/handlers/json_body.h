// Answers whose JSON is written in pieces.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/exchange.h"
#include "api/json/future_json.h"

namespace tuft::api {

// Returns a body that is written on the work threads, in the user's turns, as fast as its client reads it. It begins
// with `begin`, which may be empty. `buffer_bytes`: see BodyStream; less than the default for a text of less than two
// pieces.
std::shared_ptr<BodyStream> body_in_pieces(Exchange& exchange, JsonPieces pieces, std::string begin = {},
                                           int64_t buffer_bytes = 2 * kJsonPieceBytes);

// Writes the beginning at once. An answer of one piece has a Content-Length.
Answer answer_in_pieces(Exchange& exchange, JsonPieces pieces);

}  // namespace tuft::api
