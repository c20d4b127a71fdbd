// Answers whose JSON is written in pieces.
#pragma once

#include <memory>
#include <string>

#include "api/exchange.h"
#include "api/json/future_json.h"

namespace tuft::api {

// Returns a body that is written on the work threads, in the user's turns, as fast as its client reads it. It begins
// with `begin`, which may be empty.
std::shared_ptr<BodyStream> body_in_pieces(Exchange& exchange, JsonPieces pieces, std::string begin = {});

// Writes the beginning at once. An answer of one piece has a Content-Length.
Answer answer_in_pieces(Exchange& exchange, JsonPieces pieces);

}  // namespace tuft::api
