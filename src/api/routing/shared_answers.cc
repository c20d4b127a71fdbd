#include "api/routing/shared_answers.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace tuft::api {
namespace {

constexpr size_t kEntryBytes = 512;  // beside the question and the answer

}  // namespace

std::optional<Response> SharedAnswers::find(std::string_view question, Nanos now) const {
  MutexLock lock(mutex_);
  const auto found = by_question_.find(question);
  if (found == by_question_.end() || now >= found->second->until) return std::nullopt;
  return found->second->answer;
}

void SharedAnswers::keep(std::string question, Response& answer, Nanos began, Nanos now) {
  const size_t bytes = kEntryBytes + question.size() + answer.bytes().size();
  if (answer.status != 200 || answer.stream != nullptr || bytes > kAnswerBytesMax) return;
  if (answer.shared_body == nullptr) answer.shared_body = std::make_shared<const std::string>(std::move(answer.body));
  answer.body.clear();
  const Nanos until = now + std::clamp((now - began) * kShare, kAgeMin, kAgeMax);
  MutexLock lock(mutex_);
  if (const auto former = by_question_.find(question); former != by_question_.end()) remove_locked(former->second);
  while (!entries_.empty() && (bytes_ + bytes > kBytesMax || entries_.front().until <= now)) {
    remove_locked(entries_.begin());
  }
  const auto added = entries_.insert(entries_.end(), Entry{std::move(question), answer, until, bytes});
  by_question_.emplace(added->question, added);
  bytes_ += bytes;
}

void SharedAnswers::remove_locked(Entries::iterator entry) {
  bytes_ -= entry->bytes;
  by_question_.erase(entry->question);
  entries_.erase(entry);
}

size_t SharedAnswers::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace tuft::api
