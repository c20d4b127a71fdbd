#include "worker/sample_stream.h"

#include <algorithm>
#include <utility>

#include "worker/conversion.h"
#include "worker/status.h"

namespace tuft::worker {

void SampleStream::add(int sample, std::span<const int32_t> tokens, std::span<const float> logprobs,
                       std::span<const std::vector<engine::TokenLogprob>> topk) {
  {
    MutexLock lock(mutex_);
    if (broken_) return;
    auto& entries = *waiting_.mutable_new_tokens();
    auto entry = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.sample() == sample; });
    if (entry == entries.end()) {
      waiting_.add_new_tokens()->set_sample(sample);
      entry = std::prev(entries.end());
    }
    append_tokens(tokens, logprobs, topk, &*entry);
  }
  go_on();
}

void SampleStream::end(Result<v1::SampleResponse> result) {
  {
    MutexLock lock(mutex_);
    ended_ = true;
    if (result.ok()) {
      answer_ = std::move(result).value();
    } else {
      status_ = std::move(result).error();
    }
  }
  go_on();
}

void SampleStream::OnWriteDone(bool ok) {
  {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) {
      broken_ = true;
      waiting_.Clear();
    }
  }
  go_on();
}

void SampleStream::go_on() {
  enum class Next : uint8_t { kWrite, kAnswer, kFail } next = Next::kWrite;
  Status status;
  {
    MutexLock lock(mutex_);
    if (writing_ || finished_) return;
    if (waiting_.new_tokens_size() > 0) {
      written_ = std::exchange(waiting_, {});
    } else if (ended_) {
      finished_ = true;
      next = status_.ok() ? Next::kAnswer : Next::kFail;
      status = status_;
      written_.Clear();
      *written_.mutable_answer() = std::move(answer_);
    } else {
      return;
    }
    writing_ = true;
  }
  switch (next) {
    case Next::kWrite:
      return StartWrite(&written_);
    case Next::kAnswer:
      return StartWriteAndFinish(&written_, {}, grpc::Status::OK);
    case Next::kFail:
      return Finish(to_grpc(status.error(), context_));
  }
}

}  // namespace tuft::worker
