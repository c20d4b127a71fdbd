// The names that are visible in a part of a template.
#pragma once

#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/value.h"

namespace tuft::chat {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> names;  // the names point into the template or the options
  bool captured = false;                                  // a macro can read it

  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
      for (const auto& [known, value] : scope->names) {
        if (known == name) return &value;
      }
    }
    return nullptr;
  }

  void set(std::string_view name, Value value) {
    for (auto& [known, held] : names) {
      if (known == name) {
        held = std::move(value);
        return;
      }
    }
    names.emplace_back(name, std::move(value));
  }

  // Marks this scope and its parents as captured by a macro.
  void capture() {
    for (Scope* scope = this; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
  }
};

// Owns the scopes of one rendering. A captured scope lives until the end of the rendering; others are reused.
class Scopes {
 public:
  // A scope inside `parent`, as long as this object lives.
  class Inner {
   public:
    Inner(Scopes& scopes, Scope* parent) : scopes_(scopes), scope_(scopes.take(parent)) {}
    ~Inner() { scopes_.give_back(scope_); }
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;

    Scope* get() const { return scope_; }

   private:
    Scopes& scopes_;
    Scope* scope_;
  };

 private:
  Scope* take(Scope* parent) {
    if (free_.empty()) free_.push_back(&all_.emplace_back());
    Scope* scope = free_.back();
    free_.pop_back();
    scope->parent = parent;
    return scope;
  }

  void give_back(Scope* scope) {
    if (scope->captured) return;
    scope->names.clear();
    free_.push_back(scope);
  }

  std::deque<Scope> all_;
  std::vector<Scope*> free_;
};

}  // namespace tuft::chat
