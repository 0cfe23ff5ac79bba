#include "common/simt/fiber.h"

#include <sys/mman.h>

#include <new>

#include "common/simt/simt.h"

namespace simt {

const std::size_t StackPool::total_bytes = max_threads_per_block * stack_bytes;

StackPool::StackPool() {
  void* memory = mmap(nullptr, total_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  base_ = reinterpret_cast<std::uintptr_t>(memory);
}

void StackPool::prepare(int count) {
  for (; guarded_ < count; ++guarded_) mprotect(reinterpret_cast<void*>(low(guarded_)), 4096, PROT_NONE);
}

StackPool::~StackPool() { munmap(reinterpret_cast<void*>(base_), total_bytes); }

}  // namespace simt
