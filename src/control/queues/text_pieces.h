// Texts that are written in pieces on the threads of a WorkPool, as fast as somebody reads them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/generator.h"
#include "base/result.h"
#include "control/queues/work_pool.h"

namespace tuft::control {

using TextPieces = Generator<std::string>;

// Writes the next piece in the user's turn, at `cost`, and passes it to `done`; an empty text is the end. `done` is
// called once, on any thread: with kInternal if the piece throws, and with shutting_down() once the pool is closed. The
// task keeps `pieces`, so that it may outlive the reader. At most one piece of a text may be asked for at a time.
void write_next_piece(WorkPool& work, const UserId& user, int64_t cost, std::shared_ptr<TextPieces> pieces,
                      const std::function<void(Result<std::string>)>& done);

}  // namespace tuft::control
