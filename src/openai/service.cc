#include "openai/service.h"

#include <algorithm>
#include <exception>
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
  ByteAccount::Hold memory;  // the body, until the generations are charged
};

namespace {

void refuse(const ReplyDone& reply, Endpoint endpoint, std::string_view base_model, const Error& error,
            std::string_view param = {}) {
  record_refusal(endpoint, base_model, error);
  reply(error_reply(error, param));
}

// Frees what is not needed once the prompts are encoded: the memory held for it is given back before the answer.
void keep_what_answers_need(Request& request) {
  request.messages = nullptr;
  request.tools = nullptr;
  request.variables = nullptr;
  if (!request.echo) std::vector<Prompt>().swap(request.prompts);
}

// Returns the bytes of the texts of echoed prompts, as kept_bytes() counts them.
int64_t echoed_bytes(const Request& request, const ModelText& text, const std::vector<std::vector<int32_t>>& prompts) {
  int64_t bytes = 0;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const auto* string = std::get_if<std::string>(&request.prompts[i]);
    bytes += string != nullptr ? static_cast<int64_t>(string->size()) : text.decoded_bytes_max(prompts[i]);
  }
  return bytes * (request.choices + 1);
}

}  // namespace

Service::Service(control::Generation& generation, const Clock& clock, std::shared_ptr<control::WorkPool> work)
    : generation_(generation), clock_(clock), texts_(std::make_unique<ModelTexts>()), work_(std::move(work)) {}

Service::~Service() = default;

Service::PendingPtr Service::complete(Endpoint endpoint, const control::UserId& user, const control::RequestId& id,
                                      std::string body, const telemetry::SpanContext& trace, ReplyDone reply) {
  const Nanos arrived = clock_.monotonic();
  auto pending = std::make_shared<Pending>();
  const int64_t cost = (static_cast<int64_t>(body.size()) + kRequestBytes) * kCostOfByte;
  auto memory = generation_.hold_memory(user, static_cast<int64_t>(body.size()));
  if (!memory.ok()) {
    refuse(reply, endpoint, {}, memory.error());
    return pending;
  }
  auto task = std::make_shared<Task>(
      Task{endpoint, user, std::move(body), id, trace, std::move(reply), arrived, std::move(*memory)});
  std::function<void()> work = [this, task, weak = std::weak_ptr(pending)] {
    const PendingPtr wanted = weak.lock();
    if (wanted == nullptr) return;
    if (work_->closed()) return task->reply(error_reply(control::shutting_down()));
    const telemetry::ContextScope scope(task->trace);
    try {
      prepare(*task, wanted);
    } catch (const std::exception& exception) {
      telemetry::log_error("openai.exception", exception.what());
      if (task->reply) refuse(task->reply, task->endpoint, {}, internal_error("a request could not be prepared"));
    }
  };
  const Status posted = work_->post(user, cost, std::move(work), "openai_queue_full");
  if (!posted.ok()) refuse(task->reply, endpoint, {}, posted.error());
  telemetry::report_thread_span(trace, arrived, clock_.monotonic());
  return pending;
}

Result<std::vector<std::vector<int32_t>>> Service::encode(const Request& request, const ModelText& text) const {
  std::vector<std::vector<int32_t>> prompts;
  if (request.endpoint == Endpoint::kChat) {
    TUFT_ASSIGN(prompts.emplace_back(), text.encode_chat(request, clock_.wall()));
    return prompts;
  }
  for (const Prompt& prompt : request.prompts) {
    if (const std::string* string = std::get_if<std::string>(&prompt)) {
      TUFT_ASSIGN(prompts.emplace_back(), text.encode_prompt(*string));
    } else {
      prompts.push_back(std::get<std::vector<int32_t>>(prompt));
    }
  }
  return prompts;
}

// Returns memory for the values that a body is parsed to.
Result<ByteAccount::Hold> Service::hold_values(const Task& task) const {
  constexpr int64_t kValueBytes = 32;   // a value, in a vector with room to grow
  constexpr int64_t kMemberBytes = 96;  // a name and its value, likewise
  const JsonShape shape = json_shape(task.body);
  return generation_.hold_memory(task.user,
                                 (shape.values + shape.containers) * kValueBytes + shape.members * kMemberBytes);
}

// Returns memory for the longest answer that the request can have.
Result<ByteAccount::Hold> Service::hold_answer(const control::UserId& user, const Request& request,
                                               const config::ModelConfig& model,
                                               const std::vector<std::vector<int32_t>>& prompts,
                                               int64_t echoed_bytes) const {
  int64_t tokens = 0;
  for (const auto& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.size());
    int64_t output = std::max<int64_t>(model.max_model_len - length, 0);
    if (request.params.has_max_tokens()) {
      output = std::min<int64_t>(output, request.params.max_tokens());
    } else if (model.default_max_tokens) {
      output = std::min<int64_t>(output, *model.default_max_tokens);
    }
    tokens += request.choices * (output + (request.echo ? length : 0));
  }
  return generation_.hold_memory(user, kept_bytes(request, tokens, echoed_bytes));
}

void Service::prepare(Task& task, const PendingPtr& pending) {
  const auto stage = telemetry::start_stage(task.trace, telemetry::TraceSpanName::PREPROCESS, clock_.monotonic());
  const auto refused = [&](std::string_view base_model, const Error& error, std::string_view param) {
    refuse(std::exchange(task.reply, {}), task.endpoint, base_model, error, param);
  };
  auto values = hold_values(task);
  if (!values.ok()) return refused({}, values.error(), {});
  Problem problem;
  Request request = read_request(task.endpoint, task.body, problem);
  std::string().swap(task.body);
  if (!problem.status.ok()) return refused({}, problem.status.error(), problem.param);
  const auto model = generation_.resolve(task.user, request.model);
  if (!model.ok()) return refused({}, model.error(), "model");
  const auto text = texts_->get(*model->config);
  if (!text.ok()) return refused(model->base_model, text.error(), "model");
  auto prompts = encode(request, **text);
  if (!prompts.ok()) {
    const std::string_view param = task.endpoint == Endpoint::kChat ? "messages" : "prompt";
    return refused(model->base_model, prompts.error(), prompts.error().reason == "tools_unsupported" ? "tools" : param);
  }
  keep_what_answers_need(request);
  const int64_t echoed = echoed_bytes(request, **text, *prompts);
  auto answer = hold_answer(task.user, request, *model->config, *prompts, echoed);
  if (!answer.ok()) return refused(model->base_model, answer.error(), {});
  record_preparation(task.endpoint, to_seconds(clock_.monotonic() - task.arrived));

  Completion::Parts parts{generation_, work_, task.user, task.id, clock_.wall() / kSecond};
  CompletionTelemetry observed(request, *model, task.user, parts.id, task.trace, task.arrived);
  int64_t tokens = 0;
  for (const auto& prompt : *prompts) tokens += static_cast<int64_t>(prompt.size());
  observed.prepared(tokens);
  parts.request = std::move(request);
  parts.text = *text;
  parts.prompts = std::move(*prompts);
  parts.echoed_bytes = echoed;
  parts.preprocess = stage.context();
  auto completion = std::make_shared<Completion>(std::move(parts), std::move(observed), std::exchange(task.reply, {}),
                                                 std::move(*answer));
  pending->set(completion);
  values->shrink_to(0);
  task.memory.shrink_to(0);
  completion->start();
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
