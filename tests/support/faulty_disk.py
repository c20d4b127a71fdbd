"""A disk that fails and a clock that jumps on demand, for a server that runs with tests/fault/fault_io.cc in LD_PRELOAD."""
import errno
import mmap
import os
import pathlib
import struct

LIBRARY = os.environ.get("TUFT_FAULT_IO", "")
MISSING = None if pathlib.Path(LIBRARY).is_file() else "there is no tests/fault/fault_io.cc (a build with sanitizers has none)"
HOW = {"disk full": errno.ENOSPC, "EIO": errno.EIO, "short write": 0, "kill -9": -1}
FOR_EVER = 2**62


class FaultyDisk:
    """Everything below `under` is on this disk."""

    def __init__(self, directory, under):
        path = pathlib.Path(directory) / "fault_control"
        path.write_bytes(bytes(40))
        self.environment = {"LD_PRELOAD": LIBRARY, "TUFT_FAULT_CONTROL": str(path), "TUFT_FAULT_UNDER": str(under)}
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 40)

    @property
    def calls(self):
        return struct.unpack_from("=q", self.memory, 0)[0]

    def fail(self, number, how, count=1):
        """The calls `number` (1 is the next one) to `number + count - 1` fail."""
        first = self.calls + number
        struct.pack_into("=q", self.memory, 24, HOW[how])
        struct.pack_into("=q", self.memory, 16, first + count - 1)
        struct.pack_into("=q", self.memory, 8, first)

    def set_clock(self, seconds_ahead):
        struct.pack_into("=q", self.memory, 32, seconds_ahead)

    def heal(self):
        struct.pack_into("=q", self.memory, 8, 0)
        struct.pack_into("=q", self.memory, 16, 0)
