#include "control/tests/plane.h"

#include <chrono>
#include <utility>

#include "bucket/bucket.h"
#include "control/checkpoints/bucket_storage.h"
#include "control/tests/fake_model_config.h"

namespace tuft::control {
namespace {

// Tasks of the disk thread that follow each other: before the worker's call, after it, and the clean-up after those.
constexpr int kTasksInARow = 4;

RequestId request_of(const Result<Submitted>& submitted) {
  EXPECT_TRUE(submitted.ok()) << submitted.error().message;
  return submitted.ok() ? submitted->request : RequestId();
}

}  // namespace

PlaneTest::PlaneTest() {
  config_ = fake_model_config(directory_.path(), model);
}

PlaneTest::~PlaneTest() {
  plane_.reset();
}

void PlaneTest::boot(bool started) {
  plane_.reset();
  actors_.clear();
  std::vector<actor::ModelActor*> pointers;
  for (const auto& spec : config_.supported_models) {
    const auto lives = std::make_shared<std::atomic<uint64_t>>(0);
    for (int i = 0; i < spec.workers; ++i) {
      actors_.push_back(std::make_unique<FakeActor>(spec.model_name, lives));
      pointers.push_back(actors_.back().get());
    }
  }
  std::unique_ptr<Persistence> persistence;
  if (contents_ != nullptr) {
    auto opened = Persistence::open(store::make_memory_store(contents_), config_);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    persistence = std::move(*opened);
  }
  std::unique_ptr<CheckpointStorage> storage;
  if (bucket_) {
    auto opened = open_bucket_storage(std::move(bucket::open_s3(*bucket_)).value(), config_.checkpoint_dir, clock_);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    storage = std::move(*opened);
    for (auto& actor : actors_) actor->set_bucket(std::move(bucket::open_s3(*bucket_)).value());
  }
  plane_ = ControlPlane::create(config_, pointers, clock_, std::move(persistence), telemetry_, std::move(storage));
  if (!started) return;
  for (auto& actor : actors_) actor->start();
}

std::unique_ptr<ControlPlane> PlaneTest::view() {
  auto opened = Persistence::open_view(store::make_memory_store(contents_), config_);
  EXPECT_TRUE(opened.ok()) << opened.error().message;
  std::vector<actor::ModelActor*> pointers;
  for (size_t i = 0; i < actors_.size(); ++i) {
    const auto lives = std::make_shared<std::atomic<uint64_t>>(0);
    pointers.push_back(never_started_.emplace_back(std::make_unique<FakeActor>(model, lives)).get());
  }
  return ControlPlane::create(config_, pointers, clock_, std::move(opened).value());
}

SessionId PlaneTest::boot_with_session() {
  boot();
  return session(alice);
}

RunId PlaneTest::boot_with_run() {
  boot();
  return create_model(alice);
}

std::pair<SessionId, RunId> PlaneTest::boot_with_session_and_run() {
  const SessionId made = boot_with_session();
  return {made, create_model(made, alice)};
}

void PlaneTest::keep_state() {
  contents_ = std::make_shared<store::MemoryContents>();
}

// The server that ends writes into the old contents, which nobody reads.
void PlaneTest::crash() {
  auto left = std::make_shared<store::MemoryContents>();
  for (const auto& [key, value] : contents_->copy()) left->put(key, value);
  contents_ = std::move(left);
  plane_.reset();
}

void PlaneTest::crash_and_boot() {
  crash();
  boot();
}

void PlaneTest::crash_and_come_back(bool finishes, const std::function<void()>& meanwhile) {
  crash();
  for (auto& actor : actors_) actor->disconnect(finishes);
  const auto former = std::move(actors_);
  actors_.clear();
  boot(false);
  if (meanwhile) meanwhile();
  for (size_t i = 0; i < former.size(); ++i) former[i]->move_to(*actors_[i]);
  for (auto& actor : actors_) actor->start();
}

Status PlaneTest::durable() {
  auto answer = std::make_shared<std::promise<Status>>();
  auto future = answer->get_future();
  plane().when_durable([answer](const Status& status) { answer->set_value(status); });
  return future.get();
}

void PlaneTest::settle() {
  const UserId carol("carol");
  const std::string path = value<SaveWeightsResult>(carol, save(create_model(carol), carol, 1, "fence")).path;
  for (int i = 0; i < kTasksInARow; ++i) {
    advance(3 * kSecond);
    EXPECT_TRUE(set_public(carol, path, false).ok());
  }
}

FakeActor& PlaneTest::home(const RunId& run) {
  const auto holds = [&](const auto& actor) { return actor->weights_of(run.str()) >= 0; };
  const auto found = std::find_if(actors_.begin(), actors_.end(), holds);
  return found == actors_.end() ? *actors_.back() : **found;
}

void PlaneTest::await_files(const UserId& user, const std::string& path) {
  // A checkpoint of another user would be answered at once.
  for (int i = 0; i < kTasksInARow; ++i) EXPECT_TRUE(set_public(user, path, false).ok());
}

std::filesystem::path PlaneTest::folder(const RunId& run, const char* kind) {
  return config_.checkpoint_dir / run_folder(run) / kind;
}

std::set<std::string> PlaneTest::names_in(const std::filesystem::path& directory) {
  std::set<std::string> names;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(directory, code)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

Status PlaneTest::set_public(const UserId& user, const std::string& path, bool is_public) {
  auto answer = std::make_shared<std::promise<Status>>();
  auto future = answer->get_future();
  plane().checkpoint_actions().set_public(user, path_of(path), is_public, no_trace,
                                          [answer](Status status) { answer->set_value(std::move(status)); });
  return future.get();
}

SessionId PlaneTest::session(const UserId& user) {
  auto created = plane_->create_session(user, {});
  EXPECT_TRUE(created.ok());
  return created.ok() ? *created : SessionId();
}

CreateModel PlaneTest::create_request(const SessionId& session, int64_t seq, int rank) {
  CreateModel request;
  request.session = session;
  request.model_seq_id = seq;
  request.base_model = model;
  request.lora.rank = rank;
  request.lora.seed = 7;
  return request;
}

RequestId PlaneTest::submit_create(const SessionId& session, const UserId& user, int64_t seq, int rank) {
  return request_of(plane_->create_model(user, create_request(session, seq, rank), no_trace));
}

RunId PlaneTest::create_model(const SessionId& session, const UserId& user, int64_t seq, int rank) {
  return value<CreateModelResult>(user, submit_create(session, user, seq, rank)).run;
}

Result<Submitted> PlaneTest::try_forward_backward(const RunId& run, const UserId& user, int32_t seq,
                                                  const std::string& loss) {
  tinker_public::ForwardBackwardRequest request;
  request.set_model_id(run.str());
  request.set_seq_id(seq);
  request.set_loss_fn(loss);
  return plane_->forward_backward(user, std::move(request), no_trace);
}

RequestId PlaneTest::forward_backward(const RunId& run, const UserId& user, int32_t seq, const std::string& loss) {
  return request_of(try_forward_backward(run, user, seq, loss));
}

RequestId PlaneTest::optim_step(const RunId& run, const UserId& user, int64_t seq) {
  OptimStep request;
  request.run = run;
  request.seq_id = seq;
  return request_of(plane_->optim_step(user, request, no_trace));
}

RequestId PlaneTest::save(const RunId& run, const UserId& user, int64_t seq, const std::string& name, bool overwrite) {
  return request_of(plane_->save_weights(user, {run, seq, name, std::nullopt, overwrite}, no_trace));
}

RequestId PlaneTest::save_for_sampler(const RunId& run, const UserId& user, int64_t seq, const std::string& name,
                                      std::optional<int64_t> sampler_seq) {
  return request_of(plane_->save_weights_for_sampler(user, {run, seq, name, sampler_seq, std::nullopt}, no_trace));
}

RequestId PlaneTest::load(const RunId& run, const UserId& user, int64_t seq, const std::string& path, bool optimizer) {
  return request_of(plane_->load_weights(user, {run, seq, path, optimizer}, no_trace));
}

Result<SamplerId> PlaneTest::try_sampler(const SessionId& session, const UserId& user, int64_t seq,
                                         const std::string& base_model, const std::string& path) {
  return plane_->create_sampling_session(user, {session, seq, base_model, path}, no_trace);
}

Sample PlaneTest::sample_request(const SamplerId& sampler, std::optional<int64_t> seq) {
  Sample request;
  request.sampler = sampler;
  request.seq_id = seq;
  request.prompt_tokens = {1, 2, 3};
  request.params.set_max_tokens(4);
  return request;
}

RequestId PlaneTest::sample(const SamplerId& sampler, const UserId& user, std::optional<int64_t> seq) {
  return request_of(plane_->sample(user, sample_request(sampler, seq), no_trace));
}

Result<FutureSnapshot> PlaneTest::wait(const UserId& user, const RequestId& request) {
  auto answer = std::make_shared<std::promise<Result<FutureSnapshot>>>();
  auto future = answer->get_future();
  plane_->wait_future(user, request,
                      [answer](Result<FutureSnapshot> snapshot) { answer->set_value(std::move(snapshot)); });
  if (future.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
    return internal_error("the operation did not end within 20 s");
  }
  return future.get();
}

Result<FutureSnapshot> PlaneTest::peek(const UserId& user, const RequestId& request) {
  auto answer = std::make_shared<std::promise<Result<FutureSnapshot>>>();
  auto future = answer->get_future();
  const auto id = plane_->wait_future(
      user, request, [answer](Result<FutureSnapshot> snapshot) { answer->set_value(std::move(snapshot)); });
  plane_->end_wait(id);
  return future.get();
}

bool PlaneTest::pending(const UserId& user, const RequestId& request) {
  const auto snapshot = peek(user, request);
  return snapshot.ok() && snapshot->state == FutureSnapshot::State::kPending;
}

Error PlaneTest::failure(const UserId& user, const RequestId& request) {
  const auto snapshot = wait(user, request);
  if (!snapshot.ok()) return internal_error("no snapshot: " + snapshot.error().message);
  if (snapshot->state != FutureSnapshot::State::kFailed) return internal_error("it did not fail");
  return snapshot->error;
}

}  // namespace tuft::control
