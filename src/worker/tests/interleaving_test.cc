// The steps of the engine, file and page threads and of clients in every order that a seed makes. Whatever the
// order: each call is answered once, nothing blocks, gradients and steps are those of the operations that succeeded,
// and samples do not depend on what runs beside them.
#include "base/testing/interleaving.h"

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "engine/tests/fake_engine.h"
#include "telemetry/testing/recorded_metrics.h"
#include "worker/conversion.h"
#include "worker/engine_loop.h"

namespace tuft::worker {
namespace {

using engine::testing::FakeEngine;
using testing::Interleaving;

constexpr int kNames = 4;  // of adapters, and of samplers
constexpr int kTokens = 3;

std::string tokens(const std::vector<int32_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int32_t)};
}

// A worker without threads, and what is known of its adapters from the answers.
class Scene {
 public:
  Scene(Interleaving& order, const std::filesystem::path& directory, std::map<std::string, std::vector<int32_t>>& drawn)
      : order_(order), directory_(directory), drawn_(drawn) {
    EngineLoopOptions options;
    options.base_model = "tiny";
    options.pager = {order.happens(50) ? 130 : 60, directory / "pages"};  // room for two adapters in training, or one
    options.trainer = {.batch_tokens = 4, .tokens_max = 64};
    options.sampler.batch_tokens = 16;
    options.sampler.tokens_max = 64;
    options.limits.rank_max = 8;
    options.operations_max = 24;
    options.threads = false;
    engine_.before_create = [this](const engine::AdapterId& id) { return lose(id); };
    loop_ = std::make_unique<EngineLoop>(engine_, options, engine::TokenBytes{}, clock_);
  }

  // One step of a client, of a thread, or of time.
  void step() {
    switch (order_.below(4)) {
      case 0:
        return client();
      case 1:
        run_files();
        return;
      case 2:
        run_engine();
        return;
      default:
        clock_.advance(static_cast<Nanos>(order_.below(20)) * kSecond / 1000);
    }
  }

  void finish(const telemetry::testing::RecordedMetrics& metrics) {
    if (order_.happens(20)) {
      stopping_ = true;
      loop_->stop();
      order_.step("stop");
    }
    for (int idle = 0; idle < 64 && !stopping_; ++idle) {
      if (order_.happens(50) ? run_files() : run_engine()) idle = 0;
      clock_.advance(kSecond / 1000);
      ASSERT_LT(order_.steps(), 100'000) << "the worker does not come to an end";
    }
    for (const auto& call : calls_) EXPECT_EQ(call->answers, 1) << call->name;
    if (!stopping_) {
      const auto running = metrics.gauge("tuft.scheduler.requests", {{"base_model", "tiny"}, {"state", "running"}});
      EXPECT_EQ(running, 0);
    }
    loop_.reset();
    EXPECT_EQ(engine_.open_sequences(), 0U);
  }

 private:
  // An adapter in training, as the answers describe it.
  struct Known {
    int64_t step = 0;
    int gradient = 0;  // tokens
  };
  struct Sent {
    explicit Sent(std::string what) : name(std::move(what)) {}
    virtual ~Sent() = default;
    const std::string name;
    int answers = 0;
  };
  template <typename Request>
  struct SentRequest final : Sent {
    using Sent::Sent;
    Request request;
  };

  template <typename Message>
  SentRequest<Message>& add(std::string name) {
    order_.step(name);
    auto sent = std::make_shared<SentRequest<Message>>(std::move(name));
    calls_.push_back(sent);
    return *sent;
  }
  template <typename Response, typename Then>
  Reply<Response> answer_to(Sent& sent, Then then) {
    return [this, &sent, then = std::move(then)](Result<Response> result) {
      ++sent.answers;
      order_.step("  " + sent.name + ": " + (result.ok() ? "ok" : result.error().reason));
      if (!result.ok() && (result.error().reason == "worker_queue_full" || stopping_)) return;
      then(std::move(result));
    };
  }
  template <typename Method, typename Then>
  void send(SentRequest<typename Method::Request>& sent, Then then) {
    loop_->post(
        make_operation(Call<Method>{sent.request, {}, answer_to<typename Method::Response>(sent, std::move(then))}));
  }

  // Now and then an adapter cannot be made, or is damaged on its way back from its page.
  Status lose(const engine::AdapterId& id) {
    if (!order_.happens(8)) return {};
    order_.step("  lose " + id.str());
    known_.erase(id.str().substr(id.str().find('/') + 1));
    samplers_.erase(id.str().substr(id.str().find('/') + 1));
    return data_loss("the page is damaged", "damaged");
  }
  static bool is_lost(const std::string& reason) { return reason == "damaged" || reason == "adapter_page_lost"; }

  // The reasons for which an operation on an adapter may fail.
  template <typename Response>
  void expect_refusal(const std::string& adapter, const Result<Response>& result) {
    const std::string& reason = result.error().reason;
    if (reason == "adapter_removed" || is_lost(reason)) return;  // it waited when the adapter was removed or lost
    EXPECT_EQ(reason, "adapter_not_loaded") << result.error().message;
    EXPECT_FALSE(known_.contains(adapter)) << adapter << " is loaded";
  }

  // Return false if there was nothing to do.
  bool run_engine() {
    order_.step("engine");
    return loop_->run_engine_step();
  }
  bool run_files() {
    order_.step("file");
    if (order_.happens(50)) return loop_->run_page_step() || loop_->run_file_step();
    return loop_->run_file_step() || loop_->run_page_step();
  }

  // Mostly returns one that is known.
  template <typename Known>
  std::string name_of(const char* prefix, const Known& known) {
    if (known.empty() || order_.happens(15)) return prefix + std::to_string(order_.below(kNames));
    auto at = known.begin();
    std::advance(at, static_cast<ptrdiff_t>(order_.below(known.size())));
    if constexpr (requires { at->first; })
      return at->first;
    else
      return *at;
  }
  void client() {
    const std::string adapter = name_of("a", known_);
    const std::string sampler = name_of("s", samplers_);
    const size_t what = order_.below(32);
    if (what < 3) return create("a" + std::to_string(order_.below(kNames)));
    if (what < 5) return remove(adapter);
    if (what < 6) return remove_sampler(sampler);
    if (what < 7) return save(adapter);
    if (what < 8) return load(adapter);
    if (what < 9) return add_sampler("s" + std::to_string(order_.below(kNames)));
    if (what < 11) return publish(adapter, "s" + std::to_string(order_.below(kNames)));
    if (what < 17) return sample(sampler);
    if (what < 18) return cancel();
    if (what < 23) return optim_step(adapter);
    forward_backward(adapter);
  }

  void create(const std::string& adapter) {
    auto& sent = add<v1::CreateAdapterRequest>("create " + adapter);
    sent.request.set_adapter_id(adapter);
    sent.request.set_optimizer("adamw");
    sent.request.mutable_spec()->set_rank(4);
    sent.request.mutable_spec()->set_alpha(8);
    sent.request.mutable_spec()->set_train_attn(true);
    send<rpc::CreateAdapter>(sent, [this, adapter](auto result) {
      if (result.ok()) {
        EXPECT_TRUE(known_.emplace(adapter, Known{}).second) << adapter << " was created twice";
      } else if (result.error().reason == "adapter_exists") {
        EXPECT_TRUE(known_.contains(adapter));
      } else {
        EXPECT_TRUE(is_lost(result.error().reason) || result.error().reason == "adapter_removed")
            << result.error().message;
      }
    });
  }
  void remove(const std::string& adapter) {
    auto& sent = add<v1::RemoveAdapterRequest>("remove " + adapter);
    sent.request.set_adapter_id(adapter);
    send<rpc::RemoveAdapter>(sent, [this, adapter](auto result) {
      if (!result.ok()) return expect_refusal(adapter, result);
      EXPECT_EQ(known_.erase(adapter), 1U);
    });
  }
  void forward_backward(const std::string& adapter) {
    const int datums = 1 + static_cast<int>(order_.below(3));
    auto& sent = add<v1::ForwardBackwardRequest>("forward_backward " + adapter + " " + std::to_string(datums));
    auto& pass = *sent.request.mutable_request();
    pass.set_loss_fn("cross_entropy");
    for (int i = 0; i < datums; ++i) {
      auto& datum = *pass.add_data();
      datum.add_model_input()->mutable_encoded_text()->set_tokens(tokens({1, 2, 3}));
      auto& target = (*datum.mutable_loss_fn_inputs())["target_tokens"];
      target.set_dtype(tinker_public::DTYPE_INT32);
      target.set_dense(tokens({2, 3, 4}));
    }
    sent.request.set_adapter_id(adapter);
    auto train = to_train_request(pass, training_adapter(adapter), "tiny");
    ASSERT_TRUE(train.ok()) << train.error().message;
    train->tenant = adapter < "a2" ? "alice" : "bob";
    const auto then = [this, adapter, datums](auto result) {
      if (!result.ok()) return expect_refusal(adapter, result);
      ASSERT_TRUE(known_.contains(adapter)) << adapter << " was trained, but is not loaded";
      known_[adapter].gradient += datums * kTokens;
      EXPECT_EQ(result->tokens(), datums * kTokens);
    };
    loop_->post(make_forward_backward(
        Call<rpc::ForwardBackward>{sent.request, {}, answer_to<v1::ForwardBackwardResponse>(sent, then)},
        std::move(train).value()));
  }
  void optim_step(const std::string& adapter) {
    auto& sent = add<v1::OptimStepRequest>("optim_step " + adapter);
    sent.request.set_adapter_id(adapter);
    sent.request.mutable_params()->set_learning_rate(1e-3);
    sent.request.mutable_params()->set_beta1(0.9);
    sent.request.mutable_params()->set_beta2(0.95);
    send<rpc::OptimStep>(sent, [this, adapter](auto result) {
      if (!result.ok()) return expect_refusal(adapter, result);
      ASSERT_TRUE(known_.contains(adapter)) << adapter << " made a step, but is not loaded";
      Known& known = known_[adapter];
      EXPECT_EQ(result->step(), ++known.step) << adapter;
      EXPECT_NEAR(result->grad_norm(), std::exchange(known.gradient, 0), 1e-6) << adapter;
    });
  }
  void save(const std::string& adapter) {
    const std::string directory = (directory_ / ("save" + std::to_string(++saves_))).string();
    auto& sent = add<v1::SaveStateRequest>("save " + adapter);
    sent.request.set_adapter_id(adapter);
    sent.request.set_directory(directory);
    sent.request.set_base_model("tiny");
    send<rpc::SaveState>(sent, [this, adapter, directory](auto result) {
      if (!result.ok()) return expect_refusal(adapter, result);
      saved_.push_back(directory);
    });
  }
  void load(const std::string& adapter) {
    if (saved_.empty()) return;
    auto& sent = add<v1::LoadStateRequest>("load " + adapter);
    sent.request.set_adapter_id(adapter);
    sent.request.set_directory(saved_[order_.below(saved_.size())]);
    send<rpc::LoadState>(sent, [this, adapter](auto result) {
      if (!result.ok()) return expect_refusal(adapter, result);
      ASSERT_TRUE(known_.contains(adapter));
      known_[adapter] = {};  // the file has no optimizer
    });
  }
  void publish(const std::string& adapter, const std::string& sampler) {
    auto& sent = add<v1::PublishAdapterRequest>("publish " + adapter + " as " + sampler);
    sent.request.set_adapter_id(adapter);
    sent.request.set_sampler_id(sampler);
    send<rpc::PublishAdapter>(sent, [this, adapter, sampler](auto result) {
      if (result.ok()) {
        EXPECT_TRUE(samplers_.insert(sampler).second) << sampler << " was made twice";
      } else if (result.error().reason == "adapter_exists") {
        EXPECT_TRUE(samplers_.contains(sampler));
      } else {
        expect_refusal(adapter, result);
      }
    });
  }
  void add_sampler(const std::string& sampler) {
    if (saved_.empty()) return;
    auto& sent = add<v1::AddSamplerRequest>("add " + sampler);
    sent.request.set_sampler_id(sampler);
    sent.request.set_directory(saved_[order_.below(saved_.size())]);
    send<rpc::AddSampler>(sent, [this, sampler](auto result) {
      if (result.ok()) {
        EXPECT_TRUE(samplers_.insert(sampler).second) << sampler << " was made twice";
      } else {
        if (is_lost(result.error().reason)) return;
        // A published version may take the name while the file is read.
        EXPECT_TRUE(result.error().reason == "sampler_exists" || result.error().reason == "adapter_exists")
            << result.error().message;
        EXPECT_TRUE(samplers_.contains(sampler));
      }
    });
  }
  void remove_sampler(const std::string& sampler) {
    auto& sent = add<v1::RemoveSamplerRequest>("remove " + sampler);
    sent.request.set_sampler_id(sampler);
    ++removing_[sampler];
    send<rpc::RemoveSampler>(sent, [this, sampler](auto result) {
      --removing_[sampler];
      if (result.ok()) {
        EXPECT_EQ(samplers_.erase(sampler), 1U);
      } else {
        EXPECT_TRUE(result.error().reason == "adapter_not_loaded" || is_lost(result.error().reason));
        EXPECT_FALSE(samplers_.contains(sampler));
      }
    });
  }

  void sample(const std::string& sampler) {
    const bool base = order_.happens(30);
    const int length = 1 + static_cast<int>(order_.below(9));
    const std::string name = (base ? "base" : sampler) + " " + std::to_string(length);
    order_.step("sample " + name);
    calls_.push_back(std::make_shared<Sent>("sample " + name));
    Sent& sent = *calls_.back();
    engine::SampleRequest request;
    if (!base) request.adapter = sampler_adapter(sampler);
    request.scope = sampler < "s2" ? "alice" : "bob";
    request.prompt = {1, 2, 3};
    request.params.max_tokens = length;
    request.params.seed = 5;
    const EngineLoop::Ticket ticket = loop_->next_ticket();
    tickets_.push_back(ticket);
    loop_->post_sample(ticket, std::move(request), [=, this, &sent](Result<engine::SampleResult> result) {
      ++sent.answers;
      order_.step("  " + sent.name + ": " + (result.ok() ? "ok" : result.error().reason));
      if (!result.ok()) return expect_sample_refusal(base, sampler, ticket, result.error());
      const std::vector<int32_t>& got = result->sequences.at(0).tokens;
      const auto [first, is_first] = drawn_.emplace(name, got);
      EXPECT_EQ(got, first->second) << name;
    });
  }
  void expect_sample_refusal(bool base, const std::string& sampler, EngineLoop::Ticket ticket, const Error& error) {
    if (error.reason == "worker_queue_full" || stopping_) return;
    if (error.reason == "cancelled") {
      EXPECT_TRUE(cancelled_.contains(ticket));
    } else if (is_lost(error.reason)) {
      EXPECT_FALSE(base);
    } else if (error.reason == "sampler_removed") {
      EXPECT_GT(removing_[sampler], 0);
    } else {
      EXPECT_TRUE(error.reason == "sampler_not_loaded" || error.reason == "adapter_not_loaded") << error.message;
      EXPECT_FALSE(base || samplers_.contains(sampler)) << sampler << ": " << error.message;
    }
  }
  void cancel() {
    if (tickets_.empty()) return;
    const EngineLoop::Ticket ticket = tickets_[order_.below(tickets_.size())];
    order_.step("cancel");
    cancelled_.insert(ticket);
    loop_->cancel_sample(ticket);
  }

  Interleaving& order_;
  const std::filesystem::path directory_;
  std::map<std::string, std::vector<int32_t>>& drawn_;  // of the first sample of each name
  FakeClock clock_;
  FakeEngine engine_{16, 40, clock_};
  std::unique_ptr<EngineLoop> loop_;
  bool stopping_ = false;

  std::vector<std::shared_ptr<Sent>> calls_;
  std::map<std::string, Known> known_;
  std::set<std::string> samplers_;
  std::map<std::string, int> removing_;
  std::vector<std::string> saved_;
  int saves_ = 0;
  std::vector<EngineLoop::Ticket> tickets_;
  std::set<EngineLoop::Ticket> cancelled_;
};

TEST(WorkerInterleavings, EveryOrderOfStepsKeepsThePromises) {
  const telemetry::testing::RecordedMetrics metrics;
  std::map<std::string, std::vector<int32_t>> drawn;
  testing::for_each_interleaving(300, [&](Interleaving& order) {
    const TempDir directory;
    Scene scene(order, directory / "files", drawn);
    for (int step = 0; step < 400; ++step) scene.step();
    scene.finish(metrics);
  });
}

}  // namespace
}  // namespace tuft::worker
