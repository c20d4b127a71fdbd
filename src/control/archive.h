// The tar of a checkpoint, made while it is read: headers from memory, contents from its files. POSIX ustar, with a pax
// header where a file is over 8 GiB.
#pragma once

#include <memory>

#include "base/result.h"
#include "control/checkpoint_actions.h"
#include "control/checkpoint_store.h"
#include "control/disk_worker.h"

namespace tuft::control {

// [disk] Opens the files of `checkpoint`, which stay until the archive is gone. `disk` is used, in the turns of `user`,
// while `alive` can be locked; without it a read fails with kUnavailable.
Result<std::unique_ptr<Archive>> open_tar(const CheckpointStore::Ptr& checkpoint, const UserId& user,
                                          std::weak_ptr<void> alive, DiskWorker& disk);

}  // namespace tuft::control
