// A trace in the JSON format of Chrome, which ui.perfetto.dev opens.
#pragma once

#include <memory>

#include "api/json/future_json.h"
#include "control/observe/views.h"

namespace tuft::api {

// Each process has a group of rows. Spans that overlap without one containing the other lie in rows of their own.
JsonPieces perfetto_pieces(std::shared_ptr<const control::ObservedTrace> observed);

}  // namespace tuft::api
