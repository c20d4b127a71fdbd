// The part of Schedule that says what tokens cost and divides a step among the tenants.
#include <algorithm>
#include <cmath>

#include "engine/sample/schedule.h"

namespace tuft::engine {

// Token `begin` attends to begin + 1 positions, the next one to one more.
size_t Schedule::attention_cost(size_t begin, size_t count) const {
  return (count * begin + count * (count + 1) / 2) / positions_per_token_;
}

size_t Schedule::prompt_cost(const Request& request, size_t begin, size_t count) const {
  return request.prompt_cost(begin, count) + attention_cost(begin, count);
}

size_t Schedule::full_cost(const Slot& who, size_t begin, size_t count) const {
  return who.prompt != nullptr ? prompt_cost(*who.prompt, begin, count) : count + attention_cost(begin, count);
}

// Who is alone pays for tokens only.
size_t Schedule::cost_of(const Slot& who, size_t begin, size_t count) const {
  return tenants_.size() > 1 ? full_cost(who, begin, count) : count;
}

void Schedule::pay(Tenant& tenant, size_t& part, size_t cost) {
  if (cost > part) tenant.debt += cost - part;
  part -= std::min(part, cost);
}

// Returns how many of the tokens the tenant's part of the step pays for; one that it pays partly counts.
size_t Schedule::affordable(const Slot& who, size_t begin, size_t tokens) const {
  const size_t left = who.request().tenant->tokens_left;
  if (left == 0) return 0;
  size_t enough = 1;
  size_t too_many = std::min(tokens, left) + 1;
  while (too_many - enough > 1) {
    const size_t middle = enough + (too_many - enough) / 2;
    (cost_of(who, begin, middle) <= left ? enough : too_many) = middle;
  }
  return enough;
}

size_t Schedule::step_cost() const {
  size_t cost = 0;
  for (const Slot& slot : slots_) {
    cost += full_cost(slot, slot.prompt != nullptr ? slot.prompt->prompt_fed : slot.running->length(), slot.tokens);
  }
  return cost;
}

// Divides the tokens of the step: who wants least is served first, and takes no more than an equal part of the rest.
void Schedule::share_tokens() {
  size_t decodes = 0;
  for (const Tenant* tenant : turns_) decodes += tenant->decodes;
  const auto places = static_cast<size_t>(options_.sequences_max);
  size_t left = std::max(static_cast<size_t>(options_.batch_tokens), std::min(decodes, places));
  std::vector<Tenant*> order = turns_;
  std::stable_sort(order.begin(), order.end(), [](const Tenant* one, const Tenant* other) {
    return one->decodes + one->wanted < other->decodes + other->wanted;
  });
  if (order.size() > 1) left = limited_for(order.front()->decodes + order.front()->wanted, left);
  for (size_t i = 0; i < order.size(); ++i) {
    Tenant& tenant = *order[i];
    size_t tokens = std::max<size_t>(1, left / (order.size() - i));
    // The last one keeps the rest, for what is preempted meanwhile.
    if (i + 1 < order.size()) tokens = std::min(tokens, tenant.decodes + tenant.wanted);
    left -= std::min(left, tokens);
    if (order.size() == 1) tenant.debt = 0;
    const size_t paid = std::min(tokens, tenant.debt);
    tenant.debt -= paid;
    pays_debts_ = pays_debts_ || paid > 0;
    tenant.decodes = std::min(tenant.decodes, tokens - paid);
    tenant.tokens_left = tokens - paid - tenant.decodes;
  }
  const Tenant* oldest = turns_.empty() || turns_.front()->items.empty() ? nullptr : turns_.front();
  oldest_pays_ = oldest != nullptr && oldest->decodes + oldest->tokens_left == 0;
  if (oldest_pays_) keep_blocks(oldest->items.front().request());
}

// While the oldest request that can be fed pays a debt, nobody takes its blocks.
void Schedule::keep_blocks(Request& request) const {
  request.planned = step_number_;
  for (const auto& running : request.running) running->planned = step_number_;
}

// Returns how many of the tokens a step may have that k tenants share: it may take k times as long as one with the
// tokens of the lightest tenant alone.
size_t Schedule::limited_for(size_t lightest, size_t tokens) const {
  if (!cost_.fixed_in_tokens()) return tokens;
  const auto tenants = static_cast<double>(turns_.size());
  const double most = tenants * static_cast<double>(lightest) + (tenants - 1) * *cost_.fixed_in_tokens();
  return most < static_cast<double>(tokens) ? static_cast<size_t>(std::lround(most)) : tokens;
}

}  // namespace tuft::engine
