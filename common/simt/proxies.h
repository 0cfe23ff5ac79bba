// Which stores the asynchronous proxy cannot see yet. A bulk copy does not go the way of a thread's own loads and stores, and
// no barrier alone makes these meet: whoever stored to shared memory must say fence.proxy.async before it lets others know. PTX
// ISA, "proxies". (PTX may be read so that a fence behind the barrier is enough; CUTLASS and CUDA's guide put it before, and so
// it is asked for here.) What threads only read needs no more than order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/simt/races.h"

namespace simt {

// Of one block. It remembers the last store to each half of a word of shared memory, whatever barriers come; so it is kept only
// in launches with bulk copies.
class Proxies {
 public:
  struct Store {
    Time time = 0;  // none; with `asynchronous` of a cp.async for which others than its thread wait, and then its actor's
    std::uint16_t thread = 0;
    const void* pc = nullptr;
  };

  void begin_block(bool on, std::size_t bytes, std::size_t threads);
  bool on() const { return !fences_.empty(); }
  void stored(std::size_t offset, std::size_t bytes, const Store& store);
  void forget(std::size_t offset, std::size_t bytes) { stored(offset, bytes, {}); }  // an asynchronous operation has it now
  void fence(Order& order, std::uint32_t thread);                                    // fence.proxy.async
  void fence_mbarriers(Order& order, std::uint32_t thread);                          // fence.mbarrier_init

  // One that the thread has seen, with no fence behind it that it has seen.
  std::optional<Store> unfenced(Order& order, std::uint32_t thread, std::size_t offset, std::size_t bytes) const;
  // Has an mbarrier been fenced that was made then?
  bool fenced(Order& order, std::uint32_t thread, const AccessRecord& made) const;

 private:
  using Times = std::vector<Time>;  // of a thread's fences
  Time last_seen(Order& order, std::uint32_t thread, std::uint16_t whose, const std::vector<Times>& fences) const;

  std::vector<Store> halves_;
  std::vector<Times> fences_;  // by thread
  std::vector<Times> of_mbarriers_;
};

}  // namespace simt
