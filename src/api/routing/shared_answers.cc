#include "api/routing/shared_answers.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

namespace tuft::api {
namespace {

constexpr size_t kEntryBytes = 512;  // beside the question and the answer

}  // namespace

std::optional<Response> SharedAnswers::find(const control::UserId& user, std::string_view question, Nanos now) const {
  MutexLock lock(mutex_);
  const auto shelf = shelves_.find(user);
  if (shelf == shelves_.end()) return std::nullopt;
  for (const Entry& entry : shelf->second.entries) {
    if (now < entry.until && entry.question == question) return entry.answer;
  }
  return std::nullopt;
}

void SharedAnswers::keep(const control::UserId& user, std::string question, Response& answer, Nanos began, Nanos now) {
  const size_t bytes = kEntryBytes + question.size() + answer.bytes().size();
  if (answer.status != 200 || answer.stream != nullptr || bytes > kAnswerBytesMax) return;
  if (answer.shared_body == nullptr) {
    answer.body.shrink_to_fit();
    answer.shared_body = std::make_shared<const std::string>(std::move(answer.body));
    answer.body.clear();
  }
  question.shrink_to_fit();
  const Nanos until = now + std::clamp((now - began) * kShare, kAgeMin, kAgeMax);
  MutexLock lock(mutex_);
  if (bytes_ + bytes > kBytesMax) remove_old_locked(now);
  Shelf& shelf = shelves_[user];
  remove_old_locked(shelf, now, question);
  while (shelf.entries.size() >= kAnswersOfUserMax || shelf.bytes + bytes > kBytesOfUserMax) {
    remove_locked(shelf, shelf.entries.begin());
  }
  if (bytes_ + bytes > kBytesMax) return;
  shelf.entries.push_back({std::move(question), answer, until, bytes});
  shelf.bytes += bytes;
  bytes_ += bytes;
}

SharedAnswers::Entries::iterator SharedAnswers::remove_locked(Shelf& shelf, Entries::iterator entry) {
  shelf.bytes -= entry->bytes;
  bytes_ -= entry->bytes;
  return shelf.entries.erase(entry);
}

void SharedAnswers::remove_old_locked(Shelf& shelf, Nanos now, std::string_view question) {
  for (auto entry = shelf.entries.begin(); entry != shelf.entries.end();) {
    const bool goes = entry->until <= now || entry->question == question;
    entry = goes ? remove_locked(shelf, entry) : std::next(entry);
  }
}

void SharedAnswers::remove_old_locked(Nanos now) {
  if (now - looked_at_ < kAgeMin) return;
  looked_at_ = now;
  for (auto shelf = shelves_.begin(); shelf != shelves_.end();) {
    remove_old_locked(shelf->second, now);
    shelf = shelf->second.entries.empty() ? shelves_.erase(shelf) : std::next(shelf);
  }
}

size_t SharedAnswers::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace tuft::api
