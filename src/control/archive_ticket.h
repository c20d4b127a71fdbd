// Tickets for archives: who shows one may read that checkpoint for a while.
//
// A ticket is the path, the time of its end and who asked for it, under an HMAC-SHA256 with a key that this process
// drew and nobody else has.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "control/checkpoint_path.h"
#include "control/types.h"

namespace tuft::control {

struct ArchiveGrant {
  CheckpointPath path;
  Nanos expires = 0;  // wall clock
  UserId user;        // who asked for it, and whose turns at the disk its downloads take
};

// Thread-safe.
class ArchiveTickets {
 public:
  ArchiveTickets();

  std::string issue(const ArchiveGrant& grant) const;  // URL-safe
  // kPermissionDenied for what we did not issue, what was changed and what has expired.
  Result<ArchiveGrant> check(std::string_view ticket, Nanos wall) const;

 private:
  std::string sign(std::string_view text) const;

  std::array<unsigned char, 32> key_;
};

}  // namespace tuft::control
