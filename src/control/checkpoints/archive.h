// Archives of checkpoints that clients download, produced while they are read. A tar archive has headers from memory
// and contents from the files; its format is POSIX ustar, with a pax header for a file over 8 GiB.
#pragma once

#include <memory>
#include <string>

#include "base/byte_account.h"
#include "base/result.h"
#include "control/checkpoints/checkpoint_actions.h"
#include "control/checkpoints/checkpoint_store.h"
#include "control/queues/disk_worker.h"

namespace tuft::control {

// [disk] Opens the files of `checkpoint`, which are kept until the archive is destroyed, like `place`, which counts it.
// Reads use `disk` in the turns of `user`. When `alive` has expired, `disk` is not used and a read fails with
// kUnavailable.
Result<std::unique_ptr<Archive>> open_tar(const CheckpointStore::Ptr& checkpoint, const UserId& user,
                                          ByteAccount::Hold place, std::weak_ptr<void> alive, DiskWorker& disk);

// [disk] The same for one file of the checkpoint as it is.
Result<std::unique_ptr<Archive>> open_single(const CheckpointStore::Ptr& checkpoint, const std::string& name,
                                             const UserId& user, ByteAccount::Hold place, std::weak_ptr<void> alive,
                                             DiskWorker& disk);

}  // namespace tuft::control
