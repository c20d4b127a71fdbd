// Overwrites what this thread gives back, and the stack that it has used.
//
// A file with secrets leaves copies in memory that its reader does not own: a YAML library keeps characters, tokens and
// nodes in strings and containers of its own. While an object of this type exists, every block that its thread returns
// with operator delete is overwritten first. What is still in use at its end is not. When the outermost object ends, 64
// KiB of the stack below it and the registers that copying uses are overwritten, because the dynamic linker saves
// registers on the stack when a library calls a function for the first time.
#pragma once

namespace tuft::config {

// Not copyable. Objects may be nested. Programs that are built with a sanitizer, which has its own memory functions,
// overwrite the stack only.
class WipesFreedMemory {
 public:
  WipesFreedMemory();
  ~WipesFreedMemory();
  WipesFreedMemory(const WipesFreedMemory&) = delete;
  WipesFreedMemory& operator=(const WipesFreedMemory&) = delete;

  static bool is_possible();
};

}  // namespace tuft::config
