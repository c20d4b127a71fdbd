#include "worker/kept_calls.h"

#include <algorithm>
#include <new>

#include "rpc/methods.h"

namespace tuft::worker {
namespace {

Error not_begun() {
  return not_found("the worker does not know the call that this one resumes", "not_begun");
}

}  // namespace

KeptCalls::KeptCallPtr KeptCalls::begin(std::string_view method, const std::string& adapter, const v1::CallIds& ids,
                                        Deliver deliver) {
  std::optional<Answer> answer;
  {
    MutexLock lock(mutex_);
    const auto held = adapters_.find(adapter);
    const KeptCallPtr known = held == adapters_.end() ? nullptr : find(held->second, method, ids);
    if (known != nullptr && !known->answer) {
      known->waiting.push_back(std::move(deliver));
      return nullptr;
    }
    const bool is_remembered = known == nullptr && (!ids.resumes() || held != adapters_.end());
    if (is_remembered) {
      auto call = std::make_shared<KeptCall>();
      call->method = method;
      call->ids = ids;
      call->adapter = adapter;
      adapters_[adapter].calls.push_back(call);
      if (!ids.resumes()) {
        call->waiting.push_back(std::move(deliver));
        return call;
      }
      // Its server reports it failed, so it must not run if it comes late.
      call->answer = Answer(not_begun());
      keep_locked(*call);
    }
    answer = known == nullptr ? Answer(not_begun()) : *known->answer;
  }
  deliver(*answer);
  return nullptr;
}

KeptCalls::KeptCallPtr KeptCalls::find(const Adapter& adapter, std::string_view method, const v1::CallIds& ids) {
  for (const KeptCallPtr& call : adapter.calls) {
    if (call->method == method && call->ids.request_id() == ids.request_id()) return call;
  }
  return nullptr;
}

void KeptCalls::end(const KeptCallPtr& call, Answer answer) {
  std::vector<Deliver> waiting;
  {
    MutexLock lock(mutex_);
    waiting.swap(call->waiting);
    call->answer = std::move(answer);
    try {
      keep_locked(*call);
    } catch (const std::bad_alloc&) {
      // It is delivered, but it may not be remembered.
    }
  }
  for (const Deliver& deliver : waiting) deliver(*call->answer);
}

void KeptCalls::keep_locked(KeptCall& call) {
  const auto found = adapters_.find(call.adapter);
  if (found == adapters_.end()) return;
  Adapter& adapter = found->second;
  const bool is_ok = call.answer->ok();
  if (is_ok) note_adapter_locked(call.method, call.adapter);
  // The history of an adapter that is gone, or could not be made, is of no use.
  if (!adapters_.contains(call.adapter)) return;
  if (!adapter.exists) return forget_adapter_locked(call.adapter);
  const bool is_remembered = std::any_of(adapter.calls.begin(), adapter.calls.end(),
                                         [&](const KeptCallPtr& each) { return each.get() == &call; });
  if (!is_remembered) return;
  Tenant& tenant = tenants_[call.ids.tenant()];
  call.in_tenant = tenant.answered.insert(tenant.answered.end(), &call);
  if (is_ok) call.bytes = static_cast<int64_t>((**call.answer)->ByteSizeLong());
  tenant.bytes += call.bytes;
  bytes_ += call.bytes;
  forget_over_limits_locked(adapter);
}

void KeptCalls::forget_all(const std::string& adapter) {
  MutexLock lock(mutex_);
  const auto found = adapters_.find(adapter);
  if (found == adapters_.end()) return;
  forget_calls_locked(found->second);
  found->second.before.clear();
}

void KeptCalls::note_adapter(std::string_view method, const std::string& adapter) {
  MutexLock lock(mutex_);
  note_adapter_locked(method, adapter);
}

void KeptCalls::note_adapter_locked(std::string_view method, const std::string& adapter) {
  if (method == rpc::CreateAdapter::kMethod.name) adapters_[adapter].exists = true;
  if (method == rpc::RemoveAdapter::kMethod.name) forget_adapter_locked(adapter);
}

void KeptCalls::forget_adapter_locked(const std::string& adapter) {
  const auto found = adapters_.find(adapter);
  if (found == adapters_.end()) return;
  forget_calls_locked(found->second);
  adapters_.erase(found);
}

void KeptCalls::note_sampler(std::string_view method, const std::string& sampler) {
  MutexLock lock(mutex_);
  if (method == rpc::RemoveSampler::kMethod.name) {
    samplers_.erase(sampler);
  } else {
    samplers_.insert(sampler);
  }
}

void KeptCalls::forget_answer_locked(KeptCall& call) {
  if (!call.in_tenant) return;
  const auto tenant = tenants_.find(call.ids.tenant());
  tenant->second.answered.erase(*call.in_tenant);
  call.in_tenant.reset();
  tenant->second.bytes -= call.bytes;
  bytes_ -= call.bytes;
  if (tenant->second.answered.empty()) tenants_.erase(tenant);
}

void KeptCalls::forget_calls_locked(Adapter& adapter) {
  for (const KeptCallPtr& call : adapter.calls) forget_answer_locked(*call);
  adapter.calls.clear();
}

void KeptCalls::forget_through_locked(Adapter& adapter, const KeptCall& last) {
  bool is_last = false;
  while (!adapter.calls.empty() && !is_last) {
    const KeptCallPtr call = std::move(adapter.calls.front());
    adapter.calls.pop_front();
    is_last = call.get() == &last;
    adapter.before = call->ids.request_id();
    forget_answer_locked(*call);
  }
}

// Only what has been answered is forgotten: a call that runs is the newest one of its adapter.
void KeptCalls::forget_over_limits_locked(Adapter& adapter) {
  if (adapter.calls.size() > kCallsOfAdapter && adapter.calls.front()->answer) {
    forget_through_locked(adapter, *adapter.calls.front());
  }
  while (bytes_ > bytes_max_) {
    const auto largest = std::max_element(tenants_.begin(), tenants_.end(),
                                          [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
    KeptCall& oldest = *largest->second.answered.front();
    forget_through_locked(adapters_.at(oldest.adapter), oldest);
  }
}

v1::ListHoldingsResponse KeptCalls::list() const {
  v1::ListHoldingsResponse response;
  MutexLock lock(mutex_);
  for (const auto& [id, adapter] : adapters_) {
    if (!adapter.exists) continue;
    v1::HeldAdapter& held = *response.add_adapters();
    held.set_adapter_id(id);
    held.set_before(adapter.before);
    for (const KeptCallPtr& call : adapter.calls) {
      v1::HeldCall& kept = *held.add_calls();
      kept.set_method(call->method);
      *kept.mutable_ids() = call->ids;
    }
  }
  for (const std::string& sampler : samplers_) response.add_samplers(sampler);
  return response;
}

size_t KeptCalls::adapters() const {
  MutexLock lock(mutex_);
  return static_cast<size_t>(
      std::count_if(adapters_.begin(), adapters_.end(), [](const auto& each) { return each.second.exists; }));
}

}  // namespace tuft::worker
