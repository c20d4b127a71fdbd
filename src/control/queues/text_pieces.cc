#include "control/queues/text_pieces.h"

#include <exception>
#include <utility>

#include "control/types/errors.h"

namespace tuft::control {

void write_next_piece(WorkPool& work, const UserId& user, int64_t cost, std::shared_ptr<TextPieces> pieces,
                      const std::function<void(Result<std::string>)>& done) {
  const bool posted = work.post_rest(user, cost, [pieces = std::move(pieces), done] {
    try {
      done(pieces->next() ? std::move(pieces->value()) : std::string());
    } catch (const std::exception& exception) {
      done(internal_error(std::string("an answer could not be written: ") + exception.what()));
    }
  });
  if (!posted) done(shutting_down());
}

}  // namespace tuft::control
