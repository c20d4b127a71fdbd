#include "api/handlers/json_body.h"

#include <functional>
#include <utility>

#include "control/queues/text_pieces.h"

namespace tuft::api {
namespace {

class PiecesBody final : public BodyStream {
 public:
  PiecesBody(control::WorkPool& work, control::UserId user, JsonPieces pieces, std::string begin, int64_t buffer_bytes)
      : work_(work),
        user_(std::move(user)),
        buffer_bytes_(buffer_bytes),
        begin_(std::move(begin)),
        pieces_(std::make_shared<JsonPieces>(std::move(pieces))) {}

  int64_t buffer_bytes() const override { return buffer_bytes_; }
  void next(std::function<void(Result<std::string>)> done) override {
    if (!begin_.empty()) return done(std::exchange(begin_, {}));
    control::write_next_piece(work_, user_, kJsonPieceBytes, pieces_, done);
  }

 private:
  control::WorkPool& work_;
  const control::UserId user_;
  const int64_t buffer_bytes_;
  std::string begin_;
  const std::shared_ptr<JsonPieces> pieces_;
};

}  // namespace

std::shared_ptr<BodyStream> body_in_pieces(Exchange& exchange, JsonPieces pieces, std::string begin,
                                           int64_t buffer_bytes) {
  return std::make_shared<PiecesBody>(*exchange.work, exchange.user, std::move(pieces), std::move(begin), buffer_bytes);
}

Answer answer_in_pieces(Exchange& exchange, JsonPieces pieces) {
  std::string begin = pieces.next() ? std::move(pieces.value()) : std::string();
  if (!pieces.next()) return json_answer(std::move(begin));
  begin.append(pieces.value());
  Response response;
  response.stream = body_in_pieces(exchange, std::move(pieces), std::move(begin));
  return response;
}

}  // namespace tuft::api
