#include "engine/native/arena.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace tuft::engine::native::test {
namespace {

constexpr size_t kLarge = size_t{5} << 20;  // floats; more than the smallest chunk has

TEST(Arena, PiecesGrowALittleEachTimeThenOnlyTheNewestMemoryIsKept) {
  Arena arena;
  for (size_t pass = 0; pass < 40; ++pass) {
    arena.reset();
    const size_t size = kLarge + pass * 1000;
    (void)arena.take(100);
    (void)arena.take(size);
    EXPECT_LT(arena.size(), 3 * size) << pass;
  }
  arena.reset();
  (void)arena.take(100);
  EXPECT_LT(arena.size(), kLarge + 41'000) << "all in one chunk";
}

TEST(Arena, MemoryIsGivenBackThenPiecesOfAKnownSumLieInOneChunk) {
  constexpr size_t kSum = 3 * kLarge + 1000;
  Arena arena;
  (void)arena.take(kLarge);
  arena.renew(kSum);
  EXPECT_EQ(arena.size(), 0U);
  for (int i = 0; i < 3; ++i) (void)arena.take(kLarge);
  EXPECT_EQ(arena.size(), kSum);
  EXPECT_EQ(arena.most(), kSum);
}

// As a pass does in which each block returns its scratch memory.
TEST(Arena, AnySizesThenPiecesInUseNeverOverlap) {
  Arena arena;
  for (int pass = 0; pass < 4; ++pass) {
    arena.reset();
    struct Piece {
      float* memory;
      size_t size;
    };
    std::vector<Piece> pieces;
    const auto take = [&](size_t size) {
      pieces.push_back({arena.take(size), size});
      std::fill_n(pieces.back().memory, size, static_cast<float>(pieces.size()));
    };
    take(1000);
    take(kLarge / 2);
    {
      const ArenaScope scope(arena);
      std::fill_n(arena.take(kLarge), kLarge, -1.0F);
      std::fill_n(arena.take(10), 10, -1.0F);
    }
    take(kLarge);
    take(17);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const float* memory = pieces[i].memory;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0U);
      EXPECT_EQ(std::count(memory, memory + pieces[i].size, static_cast<float>(i + 1)),
                static_cast<ptrdiff_t>(pieces[i].size));
    }
  }
}

}  // namespace
}  // namespace tuft::engine::native::test
