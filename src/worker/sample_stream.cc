#include "worker/sample_stream.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "rpc/status.h"
#include "worker/sample_messages.h"

namespace tuft::worker {

void SampleStream::add(int sample, std::span<const int32_t> tokens, std::span<const float> logprobs,
                       std::span<const std::vector<engine::TokenLogprob>> topk) {
  Next next;
  {
    MutexLock lock(mutex_);
    if (broken_) return;
    try {
      append_locked(sample, tokens, logprobs, topk);
    } catch (const std::bad_alloc&) {
      waiting_.Clear();  // it may lack a part
      throw;
    }
    next = take_next_locked();
  }
  go_on(next);
}

void SampleStream::append_locked(int sample, std::span<const int32_t> tokens, std::span<const float> logprobs,
                                 std::span<const std::vector<engine::TokenLogprob>> topk) {
  auto& entries = *waiting_.mutable_new_tokens();
  auto entry = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.sample() == sample; });
  if (entry == entries.end()) {
    waiting_.add_new_tokens()->set_sample(sample);
    entry = std::prev(entries.end());
  }
  append_tokens(tokens, logprobs, topk, &*entry);
}

void SampleStream::end(Result<v1::SampleResponse> result) {
  Next next;
  {
    MutexLock lock(mutex_);
    ended_ = true;
    if (result.ok()) {
      answer_ = std::move(result).value();
    } else {
      status_ = std::move(result).error();
    }
    next = take_next_locked();
  }
  go_on(next);
}

void SampleStream::OnWriteDone(bool ok) {
  Next next;
  {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) {
      broken_ = true;
      waiting_.Clear();
    }
    next = take_next_locked();
  }
  go_on(next);
}

// Called under the same hold of the lock as the change before it: once another thread has taken the end, this object
// may be deleted.
SampleStream::Next SampleStream::take_next_locked() {
  if (writing_ || finished_) return {};
  if (waiting_.new_tokens_size() > 0) {
    written_ = std::exchange(waiting_, {});
    writing_ = true;
    return {Next::Step::kWrite, {}};
  }
  if (!ended_) return {};
  finished_ = true;
  written_.Clear();
  *written_.mutable_answer() = std::move(answer_);
  return {status_.ok() ? Next::Step::kAnswer : Next::Step::kFail, status_};
}

void SampleStream::go_on(const Next& next) {
  switch (next.step) {
    case Next::Step::kNothing:
      return;
    case Next::Step::kWrite:
      return StartWrite(&written_);
    case Next::Step::kAnswer:
      return StartWriteAndFinish(&written_, {}, grpc::Status::OK);
    case Next::Step::kFail:
      return Finish(rpc::to_grpc(next.status.error(), context_));
  }
}

}  // namespace tuft::worker
