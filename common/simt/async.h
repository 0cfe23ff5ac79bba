// cp.async: copies from device to shared memory that go on beside the thread that asked for them.
//
// A copy is under way from the instruction until the asking thread has waited for its group. In between nobody may touch its
// destination, whatever barriers there are; after the wait it counts as a store by the asking thread, which others see through
// a barrier. When the bytes arrive is the hardware's choice. Here it is Options::async_mode's: as late as the rules allow, with
// the destination poisoned until then; at once; or at a random time. A correct kernel cannot tell.
#pragma once

#include <cstdint>
#include <vector>

#include "common/simt/memory.h"

namespace simt {

struct Lane;

struct AsyncCopy {
  std::uintptr_t to;    // in shared memory
  std::uintptr_t from;  // in device memory
  std::uint32_t bytes;
  std::uint32_t source_bytes;  // read; the rest is filled with zeros
  const void* pc;
  bool landed;
};

// The copies of one block.
class AsyncCopies {
 public:
  void begin_block(std::size_t threads, std::size_t shared_bytes);

  void issue(Lane& lane, const AsyncCopy& copy);
  void commit(Lane& lane);                     // cp.async.commit_group: what was issued since the last commit is one group
  void wait(Lane& lane, std::size_t pending);  // cp.async.wait_group: until at most `pending` groups are under way

  struct UnderWay {
    AsyncCopy copy;
    std::uint32_t thread;  // that asked for it
    std::uint32_t next;    // issued by that thread, or unused: an index into under_way_
    std::uint64_t group;
  };
  // The copy under way that touches these bytes of shared memory; null if there is none. Asked at every access, of words: a
  // copy covers whole ones.
  const UnderWay* find(std::size_t offset, std::size_t bytes) const {
    if (count_ == 0) return nullptr;
    for (std::size_t word = offset / 4; word < (offset + bytes + 3) / 4; ++word) {
      if (by_word_[word] != none) return &under_way_[by_word_[word]];
    }
    return nullptr;
  }

 private:
  static constexpr std::uint32_t none = 0xffffffffu;

  struct OfLane {  // a queue through UnderWay::next, since groups end in the order in which they were committed
    std::uint32_t first = none;
    std::uint32_t last = none;
    std::uint64_t group = 0;  // to which what is issued now will belong: so many were committed
  };
  void land(AsyncCopy& copy);
  void land_some(Lane& lane, const OfLane& mine);
  void complete_first(Lane& lane, OfLane& mine);
  template <class Set>
  void each_word(Lane& lane, const AsyncCopy& copy, Set set);

  std::vector<OfLane> lanes_;
  std::vector<UnderWay> under_way_;
  std::uint32_t unused_ = none;         // the first of under_way_ that is not in use
  std::vector<std::uint32_t> by_word_;  // of shared memory: which copy is under way there, or none
  std::size_t count_ = 0;
};

}  // namespace simt
