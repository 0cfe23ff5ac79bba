// Every memory access of a kernel passes through here, once, before it happens: observe() is the one place where checks look.
#pragma once

#include <cstdint>

#include "common/simt/engine.h"

namespace simt {

enum class Kind { read, write };

struct Access {
  std::uintptr_t address;
  std::uint32_t bytes;
  Kind kind;
  bool aligned;    // must be a multiple of its size, as vector accesses on a GPU must
  const void* pc;  // return address of the hook: names the line
};

// The slow path: an access that is wrong, or that goes to neither device nor shared memory nor the lane's own stack.
void observe_elsewhere(Lane& lane, const Access& access);
void report_unwritten(Lane& lane, const Access& access);
void report_misaligned(Lane& lane, const Access& access);

// Are all `bytes` shadow bytes marked with all bits of `mask`?
inline bool all_marked(const std::uint8_t* shadow, std::uint32_t bytes, std::uint8_t mask) {
  std::uint8_t common = 0xff;
  for (std::uint32_t i = 0; i < bytes; ++i) common &= shadow[i];
  return (common & mask) == mask;
}

inline void observe(Lane& lane, const Access& access) {
  if (access.address - lane.stack_low < StackPool::stack_bytes) return;  // registers and local arrays
  SharedArena& arena = lane.block->arena();
  std::uint8_t* shadow;
  if (Heap::contains(access.address)) {
    shadow = Heap::shadow(access.address);
  } else if (arena.contains(access.address)) {
    shadow = arena.shadow(access.address);
  } else {
    observe_elsewhere(lane, access);
    return;
  }
  if (!all_marked(shadow, access.bytes, allocated)) [[unlikely]] {
    observe_elsewhere(lane, access);
    return;
  }
  if (access.aligned && access.address % access.bytes != 0) [[unlikely]]
    report_misaligned(lane, access);
  if (access.kind == Kind::read) {
    if (!all_marked(shadow, access.bytes, written)) [[unlikely]]
      report_unwritten(lane, access);
  } else {
    for (std::uint32_t i = 0; i < access.bytes; ++i) shadow[i] = shadow_after_store;
    lane.block->count_store();
  }
}

}  // namespace simt
