// Device memory and shared memory, each with a shadow that knows what every byte is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/simt/simt.h"

namespace simt {

// Address space that costs memory only where it is touched; it reads as zero.
void* reserve(std::size_t bytes);

// One shadow byte for each byte of memory. Unallocated memory (red zones too) has shadow 0.
enum Shadow : std::uint8_t {
  allocated = 1,
  written = 2,           // by the host or by a kernel
  written_by_launch = 4  // by the launch that runs now
};
inline constexpr std::uint8_t shadow_after_store = allocated | written | written_by_launch;

// The device heap: one reserved range of addresses, so that "is this device memory?" is one comparison, and the shadow of an
// address lies at a fixed distance.
struct Heap {
  static constexpr std::size_t reserved = std::size_t{1} << 37;
  static constexpr std::size_t alignment = 256;
  static constexpr std::size_t red_zone = 4096;

  static std::uintptr_t base;    // of the memory
  static std::uint8_t* shadows;  // of the shadow

  static bool contains(std::uintptr_t address) { return address - base < reserved; }
  static std::uint8_t* shadow(std::uintptr_t address) { return shadows + (address - base); }
};

struct Allocation {
  std::string name;
  std::uintptr_t begin;
  std::size_t bytes;
};

std::vector<Allocation> live_allocations();

// The allocation that holds the address, or the nearest one before or after it; null when there is none.
const Allocation* nearest_allocation(std::uintptr_t address);

// Which block of a launch touched which word of device memory: enough to see, on several workers at once and in a few
// nanoseconds, that two blocks may have raced. It remembers neither lines nor bytes nor order. Where it suspects something, the
// launch is run again under GlobalRaces, which knows all of these.
class BlockMarks {
 public:
  // Numbers for a launch: no mark of an earlier one is among them. Not while a launch runs.
  static std::uint32_t first_of(std::size_t blocks);
  static void forget(std::uintptr_t address, std::size_t bytes);  // gives the memory of the marks back

  // Marks an access by block `first + 1 + linear index`; true if another block's access to these words may race with it.
  // `first` itself stands for several blocks.
  static bool suspicious(std::uintptr_t address, std::size_t bytes, bool is_write, std::uint32_t first, std::uint32_t me) {
    const std::uintptr_t end = (address - Heap::base + bytes + 3) / 4;
    bool found = false;
    for (std::uintptr_t word = (address - Heap::base) / 4; word < end; ++word) {
      Mark& mark = marks[word];
      if (is_write) {
        if (mark.writer.load(std::memory_order_relaxed) != me) found |= is_other(mark.writer.exchange(me), first, me);
        found |= is_other(mark.reader.load(), first, me);
      } else {
        const std::uint32_t reader = mark.reader.load(std::memory_order_relaxed);
        if (reader != me && reader != first && is_other(mark.reader.exchange(me), first, me)) mark.reader.store(first);
        found |= is_other(mark.writer.load(), first, me);
      }
    }
    return found;
  }

 private:
  struct Mark {
    std::atomic<std::uint32_t> writer;  // each side leaves its mark before it looks for the other's: one of them will see it
    std::atomic<std::uint32_t> reader;
  };
  static bool is_other(std::uint32_t mark, std::uint32_t first, std::uint32_t me) { return mark >= first && mark != me; }
  static Mark* marks;  // of each word of the heap
};

// The contents of all device memory before a launch: to find bytes that changed although no hook saw a store, and to undo a
// launch that must run again in order.
class Snapshot {
 public:
  Snapshot();  // also clears every written_by_launch mark
  void restore() const;
  std::vector<std::uintptr_t> changed_unseen() const;  // the first such byte of each allocation

 private:
  struct Copy {
    Allocation allocation;
    std::vector<std::uint8_t> bytes;
    std::vector<std::uint8_t> shadow;
  };
  std::vector<Copy> copies_;
};

// The shared memory of the block that a worker runs, between red zones.
class SharedArena {
 public:
  static constexpr std::size_t red_zone = 64 * 1024;
  static constexpr std::size_t total = red_zone + max_shared_bytes + red_zone;

  SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;
  ~SharedArena();

  void begin_block(std::size_t bytes);  // nothing is written yet

  std::uintptr_t low() const { return low_; }
  std::uintptr_t begin() const { return low_ + red_zone; }
  std::size_t bytes() const { return bytes_; }
  bool contains(std::uintptr_t address) const { return address - low_ < total; }
  std::uint8_t* shadow(std::uintptr_t address) { return shadows_.data() + (address - low_); }

 private:
  std::uintptr_t low_;
  std::size_t bytes_ = 0;
  std::vector<std::uint8_t> shadows_;
};

}  // namespace simt
