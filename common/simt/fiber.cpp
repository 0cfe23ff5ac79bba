#include "common/simt/fiber.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

#include "common/simt/memory.h"

namespace simt {
namespace {

// A guard page costs the process two mappings, of 65530 that Linux gives by default. What this leaves is for everything else.
constexpr int most_guards = 24000;
std::atomic<int> guards = 0;

bool guard(std::uintptr_t page) {
  if (++guards <= most_guards && mprotect(reinterpret_cast<void*>(page), 4096, PROT_NONE) == 0) return true;
  --guards;
  return false;
}

}  // namespace

void StackPool::prepare(int count) {
  if (count > count_) {
    release();
    base_ = reinterpret_cast<std::uintptr_t>(reserve(static_cast<std::size_t>(count) * stack_bytes));
    count_ = count;
  }
  while (guarded_ < count_ && guard(low(guarded_))) ++guarded_;  // the rest goes without
}

void StackPool::release() {
  if (count_ > 0) munmap(reinterpret_cast<void*>(base_), static_cast<std::size_t>(count_) * stack_bytes);
  guards -= std::exchange(guarded_, 0);
  count_ = 0;
}

}  // namespace simt
