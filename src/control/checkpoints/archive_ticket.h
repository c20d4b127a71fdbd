// Tickets for downloads. The bearer of a ticket may read one checkpoint, or one file of it, for a limited time.
//
// A ticket contains the path, the file, the time of expiry and the user who requested it, signed with HMAC-SHA256. The
// key is random and known to this process only.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "control/types/checkpoint_path.h"
#include "control/types/types.h"

namespace tuft::control {

struct ArchiveGrant {
  CheckpointPath path;
  Nanos expires = 0;      // wall clock
  UserId user;            // who requested it; downloads use this user's turns at the disk
  std::string file = {};  // one of the checkpoint; empty: all in an archive. No blanks
};

// Thread-safe.
class ArchiveTickets {
 public:
  ArchiveTickets();

  std::string issue(const ArchiveGrant& grant) const;  // URL-safe
  // Returns kPermissionDenied for a ticket that was not issued by this process, was changed or has expired.
  Result<ArchiveGrant> check(std::string_view ticket, Nanos wall) const;

 private:
  std::string sign(std::string_view text) const;

  std::array<unsigned char, 32> key_;
};

}  // namespace tuft::control
