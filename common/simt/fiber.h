// A fiber: a stack of its own, and a switch to it and back that costs about ten nanoseconds (Boost.Context).
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace simt {

// Stacks for the fibers of one block: touched as they are used, reused by block after block.
class StackPool {
 public:
  static constexpr std::size_t stack_bytes = 256 * 1024;  // kernels hold large register arrays; only touched pages cost memory

  StackPool() = default;
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;
  ~StackPool() { release(); }

  // Before stacks 0 … count − 1 are used, and while none is. A stack that overflows shall hit a guard page; of tens of
  // thousands of stacks at once, the system has no room for so many, and the last ones have none.
  void prepare(int count);

  std::uintptr_t low(int index) const { return base_ + static_cast<std::size_t>(index) * stack_bytes; }
  bool contains(std::uintptr_t address) const { return address - base_ < static_cast<std::size_t>(count_) * stack_bytes; }
  // Where stack `index` begins (stacks grow down). Staggered: 1024 stacks whose tops agree in their low address bits would
  // all fall into the same few cache sets.
  std::uintptr_t top(int index) const {
    return low(index) + stack_bytes - static_cast<std::size_t>(index) * 192 % 4032 / 64 * 64;
  }

 private:
  void release();

  std::uintptr_t base_ = 0;
  int count_ = 0;
  int guarded_ = 0;  // stacks that have their guard page: the first ones
};

class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() { abandon(); }

  // Makes the fiber ready to run body() on a stack of the pool; resume() starts it.
  template <class Body>
  void start(const StackPool& pool, int index, Body body) {
    abandon();
    const std::uintptr_t low = pool.low(index);
    const std::uintptr_t top = pool.top(index);
    const boost::context::preallocated stack(reinterpret_cast<void*>(top), top - low,
                                             {top - low, reinterpret_cast<void*>(top)});
    self_ = boost::context::fiber(std::allocator_arg, stack, Borrowed{},
                                  [this, body = std::move(body)](boost::context::fiber&& outside) mutable {
                                    outside_ = std::move(outside);
                                    body();
                                    return std::move(outside_);
                                  });
  }

  void resume() { self_ = std::move(self_).resume(); }         // from outside: runs the fiber until it suspends or ends
  void suspend() { outside_ = std::move(outside_).resume(); }  // from inside: back to whoever resumed

  // Forgets a fiber that has not ended. Its frames are dropped, not unwound: kernels own nothing that needs a destructor.
  void abandon() {
    if (self_) new boost::context::fiber(std::move(self_));  // the handle leaks on purpose: its destructor would unwind
  }

 private:
  struct Borrowed {  // the pool owns the stacks
    void deallocate(boost::context::stack_context&) {}
  };

  boost::context::fiber self_;
  boost::context::fiber outside_;
};

}  // namespace simt
