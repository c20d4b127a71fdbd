#include "openai/service.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "base/json_shape.h"
#include "base/mutex.h"
#include "control/types/errors.h"
#include "openai/completion.h"
#include "openai/completion_telemetry.h"
#include "openai/model_text.h"
#include "openai/request.h"
#include "telemetry/log.h"
#include "telemetry/request_trace.h"
#include "tokenizer/tokenizer.h"

namespace tuft::openai {

// Connects the waiter, who may cancel the request, with the thread that prepares it.
class Service::Pending {
 public:
  ~Pending() {
    if (completion_ != nullptr) completion_->abandon();
  }
  // Called before the completion starts, by the thread that prepares it and holds this object.
  void set(std::shared_ptr<Completion> completion) { completion_ = std::move(completion); }

 private:
  std::shared_ptr<Completion> completion_;
};

struct Service::Task {
  Endpoint endpoint = Endpoint::kCompletions;
  control::UserId user;
  std::string body;
  control::RequestId id;
  telemetry::SpanContext trace;
  ReplyDone reply;
  Nanos arrived = 0;
  std::weak_ptr<Pending> pending = {};
  ByteAccount::Hold memory = {};  // of the body and what it becomes, until the generations are charged

  // What read() makes of the body.
  std::optional<telemetry::RunningStage> stage = {};
  Request request = {};
  control::GenerationModel model = {};
  std::shared_ptr<const ModelText> text = nullptr;
  std::string param = {};  // the field that is being read
  // The tokens of the prompts that have been encoded.
  std::vector<std::vector<int32_t>> prompts = {};
  std::optional<tokenizer::Encoding> encoding = {};  // of the next one, if it has been started
  ByteAccount::Hold encoding_memory = {};

  void refuse(const Error& error) {
    record_refusal(endpoint, model.base_model, error);
    std::exchange(reply, {})(error_reply(error, param));
  }
};

namespace {

// Returns the bytes of the texts of echoed prompts, as kept_bytes() counts them.
int64_t echoed_bytes(const Request& request, const ModelText& text, const std::vector<std::vector<int32_t>>& prompts) {
  int64_t bytes = 0;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const auto* string = std::get_if<std::string>(&request.prompts[i]);
    bytes += string != nullptr ? static_cast<int64_t>(string->size()) : text.decoded_bytes_max(prompts[i]);
  }
  return bytes * (request.choices + 1);
}

// Returns the bytes of a text; 0 for a prompt of tokens.
size_t text_bytes(const Prompt& prompt) {
  const auto* text = std::get_if<std::string>(&prompt);
  return text != nullptr ? text->size() : 0;
}

}  // namespace

Service::Service(control::Generation& generation, const Clock& clock, std::shared_ptr<control::WorkPool> work)
    : generation_(generation), clock_(clock), texts_(std::make_unique<ModelTexts>()), work_(std::move(work)) {}

Service::~Service() = default;

Service::PendingPtr Service::complete(Endpoint endpoint, const control::UserId& user, const control::RequestId& id,
                                      std::string body, const telemetry::SpanContext& trace, ReplyDone reply) {
  const Nanos arrived = clock_.monotonic();
  auto pending = std::make_shared<Pending>();
  const auto bytes = static_cast<int64_t>(body.size());
  auto task =
      std::make_shared<Task>(Task{endpoint, user, std::move(body), id, trace, std::move(reply), arrived, pending});
  auto memory = generation_.hold_memory(user, bytes);
  if (!memory.ok()) {
    task->refuse(memory.error());
    return pending;
  }
  task->memory = std::move(*memory);
  const int64_t cost = (bytes + kRequestBytes) * kCostOfByte;
  const Status posted = work_->post(
      user, cost, [this, task] { run(task); }, "openai_queue_full");
  if (!posted.ok()) task->refuse(posted.error());
  telemetry::report_thread_span(trace, arrived, clock_.monotonic());
  return pending;
}

// Takes the request a step further, on a work thread.
void Service::run(const std::shared_ptr<Task>& task) {
  const PendingPtr wanted = task->pending.lock();
  if (wanted == nullptr) return;
  if (work_->closed()) return task->reply(error_reply(control::shutting_down()));
  const telemetry::ContextScope scope(task->trace);
  try {
    prepare(task, *wanted);
  } catch (const std::exception& exception) {
    telemetry::log_error("openai.exception", exception.what());
    if (task->reply) task->refuse(internal_error("a request could not be prepared"));
  }
}

// Reads the body, unless it has been read, and encodes some prompts, or a part of one. The rest is left to further
// tasks, so that tasks of other users come between.
void Service::prepare(const std::shared_ptr<Task>& task, Pending& pending) {
  Status done = task->text == nullptr ? read(*task) : Status();
  if (done.ok()) done = encode(*task);
  const size_t encoded = task->prompts.size();
  if (done.ok() && encoded < task->request.prompts.size()) {
    const size_t bytes_to_start = task->encoding ? 0 : text_bytes(task->request.prompts[encoded]);
    const size_t bytes = std::max(bytes_to_start, kEncodedAtATime);
    const int64_t cost = static_cast<int64_t>(bytes) * kCostOfByte;
    if (work_->post_rest(task->user, cost, [this, task] { run(task); })) return;
    done = control::shutting_down();
  } else if (done.ok()) {
    done = start(*task, pending);
  }
  if (!done.ok()) task->refuse(done.error());
}

Status Service::read(Task& task) {
  task.stage.emplace(telemetry::start_stage(task.trace, telemetry::TraceSpanName::PREPROCESS, clock_.monotonic()));
  TUFT_ASSIGN(ByteAccount::Hold values, hold_values(task));
  task.memory.join(std::move(values));
  Problem problem;
  task.request = read_request(task.endpoint, task.body, problem);
  std::string().swap(task.body);
  task.param = std::move(problem.param);
  TUFT_TRY(problem.status);
  task.param = "model";
  TUFT_ASSIGN(task.model, generation_.resolve(task.user, task.request.model));
  TUFT_ASSIGN(task.text, texts_->get(*task.model.config));
  task.param = "prompt";
  if (task.endpoint == Endpoint::kChat) TUFT_TRY(render(task));
  for (const Prompt& prompt : task.request.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) TUFT_TRY(task.text->fits(*text));
  }
  return {};
}

// Makes the conversation the prompt, and frees it: the memory held for it is given back before the answer.
Status Service::render(Task& task) const {
  Request& request = task.request;
  auto text = task.text->render(request, clock_.wall());
  task.param = !text.ok() && text.error().reason == "tools_unsupported" ? "tools" : "messages";
  if (!text.ok()) return std::move(text).error();
  request.prompts.emplace_back(std::move(*text));
  request.messages = nullptr;
  request.tools = nullptr;
  request.variables = nullptr;
  return {};
}

// Encodes the next prompts, some kEncodedAtATime bytes of text, or a part of one.
Status Service::encode(Task& task) const {
  constexpr auto kTokenBytes = static_cast<int64_t>(sizeof(int32_t));
  for (size_t bytes = 0; task.prompts.size() < task.request.prompts.size() && bytes < kEncodedAtATime;) {
    Prompt& prompt = task.request.prompts[task.prompts.size()];
    if (auto* tokens = std::get_if<std::vector<int32_t>>(&prompt)) {
      task.prompts.push_back(std::move(*tokens));  // charged as values of the body
      continue;
    }
    const std::string& text = std::get<std::string>(prompt);
    if (!task.encoding) TUFT_TRY(start_encoding(task, text));
    TUFT_ASSIGN(const bool done, task.text->advance(*task.encoding, kEncodedAtATime * tokenizer::kStepsOfByte));
    if (!done) return {};
    std::vector<int32_t>& tokens = task.prompts.emplace_back(task.encoding->take());
    tokens.shrink_to_fit();
    task.encoding.reset();
    task.encoding_memory.shrink_to(static_cast<int64_t>(tokens.size()) * kTokenBytes);
    task.memory.join(std::move(task.encoding_memory));
    bytes += text.size();
  }
  return {};
}

// What encoding takes is charged before: for the text, and for what a normalizer adds to it. For that an eighth of the
// text more is charged each time if there is room, because each hold costs something itself.
Status Service::start_encoding(Task& task, std::string_view text) const {
  const auto hold = [&](size_t bytes) {
    return generation_.hold_memory(task.user, static_cast<int64_t>(bytes) * tokenizer::kEncodeBytes);
  };
  const auto hold_or_refuse = [&](size_t bytes) {
    auto memory = hold(bytes);
    if (!memory.ok()) task.param.clear();
    return memory;
  };
  const auto charge = [&, spare = text.size() / 8, left = size_t{0}](size_t added) mutable -> Status {
    const size_t missing = added - std::min(added, left);
    left -= added - missing;
    if (missing == 0) return {};
    auto memory = hold(missing + spare);
    if (memory.ok()) left = spare;
    if (!memory.ok()) memory = hold_or_refuse(missing);
    if (!memory.ok()) return std::move(memory).error();
    task.encoding_memory.join(std::move(*memory));
    return {};
  };
  TUFT_ASSIGN(task.encoding_memory, hold_or_refuse(text.size()));
  TUFT_ASSIGN(task.encoding, task.text->start_encoding(text, task.endpoint, charge));
  return {};
}

// Returns memory for the values that a body is parsed to.
Result<ByteAccount::Hold> Service::hold_values(const Task& task) const {
  constexpr int64_t kValueBytes = 32;   // a value, in a vector with room to grow
  constexpr int64_t kMemberBytes = 96;  // a name and its value, likewise
  const JsonShape shape = json_shape(task.body);
  return generation_.hold_memory(task.user,
                                 (shape.values + shape.containers) * kValueBytes + shape.members * kMemberBytes);
}

// Returns what the request keeps with the longest answer that it can have.
KeptParts Service::longest_answer(const Task& task) {
  const Request& request = task.request;
  const config::ModelConfig& model = *task.model.config;
  KeptParts parts;
  for (const auto& prompt : task.prompts) {
    const auto length = static_cast<int64_t>(prompt.size());
    int64_t output = std::max<int64_t>(model.max_model_len - length, 0);
    if (request.params.has_max_tokens()) {
      output = std::min<int64_t>(output, request.params.max_tokens());
    } else if (model.default_max_tokens) {
      output = std::min<int64_t>(output, *model.default_max_tokens);
    }
    parts.prompt_tokens += length;
    parts.output_tokens += request.choices * output;
  }
  if (request.echo) parts.echoed_bytes = echoed_bytes(request, *task.text, task.prompts);
  return parts;
}

// Starts the generations, when all prompts have been encoded.
Status Service::start(Task& task, Pending& pending) {
  task.param.clear();
  if (!task.request.echo) std::vector<Prompt>().swap(task.request.prompts);
  const KeptParts kept = longest_answer(task);
  TUFT_ASSIGN(ByteAccount::Hold answer, generation_.hold_memory(task.user, kept_bytes(task.request, kept)));
  record_preparation(task.endpoint, to_seconds(clock_.monotonic() - task.arrived));

  Completion::Parts parts{generation_, work_, task.user, task.id, clock_.wall() / kSecond};
  CompletionTelemetry observed(task.request, task.model, task.user, parts.id, task.trace, task.arrived);
  observed.prepared(kept.prompt_tokens);
  parts.request = std::move(task.request);
  parts.text = task.text;
  parts.prompts = std::move(task.prompts);
  parts.echoed_bytes = kept.echoed_bytes;
  parts.preprocess = task.stage->context();
  auto completion = std::make_shared<Completion>(std::move(parts), std::move(observed), std::exchange(task.reply, {}),
                                                 std::move(answer));
  pending.set(completion);
  task.memory.shrink_to(0);
  completion->start();
  return {};
}

Reply Service::list_models(const control::UserId& user, std::string_view after, int64_t limit) const {
  const auto page = generation_.models(user, after, static_cast<size_t>(limit));
  if (!page.ok()) return error_reply(page.error(), "after");
  return {200, model_list(*page), nullptr};
}

Reply Service::get_model(const control::UserId& user, std::string_view id) const {
  const auto model = generation_.listed(user, id);
  if (!model.ok()) return error_reply(model.error(), "model");
  return {200, model_card(*model), nullptr};
}

}  // namespace tuft::openai
