// Device memory and shared memory, each with a shadow that knows what every byte is.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <compare>
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
  written = 2,            // by the host or by a kernel
  written_by_launch = 4,  // by the launch that runs now
  being_read = 8,         // by an asynchronous operation; in device memory, of an ordered launch. Perhaps it is over
  being_written = 16,     // by an asynchronous operation that is under way; in device memory, of an ordered launch
  is_mbarrier = 32        // its bytes are no plain access's
};
inline constexpr std::uint8_t shadow_after_store = allocated | written | written_by_launch;

inline void add_marks(std::uint8_t* shadow, std::size_t bytes, std::uint8_t marks) {
  for (std::size_t i = 0; i < bytes; ++i) shadow[i] |= marks;
}
inline void remove_marks(std::uint8_t* shadow, std::size_t bytes, std::uint8_t marks) {
  for (std::size_t i = 0; i < bytes; ++i) shadow[i] &= static_cast<std::uint8_t>(~marks);
}

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

// Who touched a word of device memory last: enough to see, on several workers at once and in a few nanoseconds, that two
// threads may have raced. A mark knows neither lines nor bytes, nor fences, flags and barriers of a few. Where marks make the
// engine suspicious, the launch is run again under DeviceRaces, which knows all of these.
//
// 64 bits hold it, the block highest, so that marks of earlier launches are the smaller numbers.
struct Mark {
  static constexpr std::uint32_t last_epoch = (1u << 19) - 1;           // later ones look like it: never known to be over
  static constexpr std::uint32_t some_of_warp = max_threads_per_block;  // + warp
  static constexpr std::uint32_t some_of_block = some_of_warp + max_threads_per_block / warp_size;

  // The device is the system. Atomics of 8 bytes have a number of their own: with those of 4 bytes they race.
  static constexpr std::uint64_t device = 2, device_wide = 3;
  static constexpr std::uint64_t scope_of(Scope scope, bool wide) {
    if (scope >= Scope::device) return wide ? device_wide : device;
    return wide ? 0 : static_cast<std::uint64_t>(scope);  // a wide one of a block is rare: the exact rules judge it
  }

  // Of two accesses: what races with either of them races with it.
  static constexpr std::uint64_t narrowest(std::uint64_t a, std::uint64_t b) {
    if (a == b) return a;
    return std::max(a, b) == device_wide ? 0 : std::min(a, b);
  }

  std::uint64_t halves : 2;  // of the word, that were touched
  std::uint64_t scope : 2;   // the narrowest of these accesses; see scope_of
  // The time of the thread's last full barrier, or of its warp's, on the clock of its block: all accesses with the mark are of
  // this epoch or of earlier ones.
  std::uint64_t epoch : 19;
  std::uint64_t who : 11;    // a thread of the block, or several
  std::uint64_t block : 30;  // since the program began; the number before a launch's first stands for several of its blocks

  auto operator<=>(const Mark& other) const {
    return std::bit_cast<std::uint64_t>(*this) <=> std::bit_cast<std::uint64_t>(other);
  }
  bool operator==(const Mark& other) const { return (*this <=> other) == 0; }
};

// What a thread leaves on the words that it touches.
struct Marker {
  Marker() = default;
  Marker(std::uint32_t first, std::uint64_t block, std::uint32_t thread)  // numbers: of the launch, in the launch, in the block
      : launch{0, 0, 0, 0, first}, covers{} {
    const std::uint64_t whos[] = {thread, Mark::some_of_warp + thread / warp_size, Mark::some_of_block};
    for (int i = 0; i < 3; ++i) covers[i] = {3, 0, 0, whos[i], first + 1 + block};
    covers[3] = {3, 0, 0, Mark::some_of_block, first};
  }
  void begin_epoch(std::uint64_t epoch) {
    for (int i = 0; i < 3; ++i) covers[i].epoch = std::min<std::uint64_t>(epoch, Mark::last_epoch);
  }
  // Of an asynchronous copy: whatever barriers a later store has behind it, it may be too early.
  Mark copying() const {
    Mark mark = covers[1];
    mark.epoch = Mark::last_epoch;
    return mark;
  }
  void begin_barrier_epoch(std::uint64_t epoch) {
    begin_epoch(epoch);
    barrier = covers[0].epoch;
  }
  const Mark& mine() const { return covers[0]; }

  std::uint64_t barrier = 0;  // the epoch that the last full barrier began
  Mark launch;                // those of earlier launches are less
  Mark covers[4];             // of one who reads now: mine, and as good: some of my warp, of my block, of several blocks
};

class Marks {
 public:
  // Numbers for the blocks of a launch: no mark of an earlier one is among them. Not while a launch runs.
  static std::uint32_t first_of(std::size_t blocks);
  static void forget(std::uintptr_t address, std::size_t bytes);  // gives the memory of the marks back

  // Leaves a mark of the access on its words; true if an earlier access to them may race with it. `pc`: where it is made.
  [[gnu::always_inline]] static bool suspicious(std::uintptr_t address, std::size_t bytes, bool is_write, Scope scope,
                                                bool wide, const Marker& marker, const void* pc) {
    const std::uintptr_t begin = address - Heap::base;
    Mark me = marker.mine();
    const std::uintptr_t from = begin % 4, to = from + bytes;
    if (bytes < 4) me.halves = to <= 2 ? 1 : from >= 2 && to <= 4 ? 2 : 3;  // across two words: perhaps both halves of each
    if (scope != Scope::thread) me.scope = Mark::scope_of(scope, wide);
    bool found = false;
    for (std::uintptr_t word = begin / 4; word < (begin + bytes + 3) / 4; ++word) {
      OfWord& marks = of_words[word];
      // Each side leaves its mark before it looks for the other's: one of two that race will see it.
      if (is_write) {
        const Mark writer = marks.writer.load(std::memory_order_relaxed);
        if (writer != me) found |= may_race(leave(word, Side::writer, writer, me, marker, pc), me, marker);
        const Mark reader = marks.reader.load();
        if (reader >= marker.launch && reader != me) found |= may_race(reader, me, marker);
      } else {
        const Mark reader = marks.reader.load(std::memory_order_relaxed);
        const Mark* covers = marker.covers;
        if (reader != covers[3] && reader != covers[0] && reader != covers[1] && reader != covers[2]) {
          leave(word, Side::reader, reader, me, marker, pc);
        }
        const Mark writer = marks.writer.load();
        if (writer >= marker.launch && writer != me) found |= may_race(writer, me, marker);
      }
    }
    return found;
  }

  // The same of what a cp.async reads. Its mark says that every later store may race with it, until the launch ends: nobody
  // tells the marks when the copy is over.
  static bool suspicious_copy(std::uintptr_t address, std::size_t bytes, const Marker& marker, const void* pc) {
    const std::uintptr_t begin = address - Heap::base;
    const Mark me = marker.copying();
    bool found = false;
    for (std::uintptr_t word = begin / 4; word < (begin + bytes + 3) / 4; ++word) {
      OfWord& marks = of_words[word];
      const Mark reader = marks.reader.load(std::memory_order_relaxed);
      if (reader != me && reader != marker.covers[3]) leave(word, Side::reader, reader, me, marker, pc);
      const Mark writer = marks.writer.load();
      found |= writer >= marker.launch && writer != marker.mine() && may_race(writer, marker.mine(), marker);
    }
    return found;
  }

  // And of what a bulk copy writes.
  static bool suspicious_bulk_store(std::uintptr_t address, std::size_t bytes, const Marker& marker, const void* pc) {
    const std::uintptr_t begin = address - Heap::base;
    const Mark me = marker.copying();
    bool found = false;
    for (std::uintptr_t word = begin / 4; word < (begin + bytes + 3) / 4; ++word) {
      OfWord& marks = of_words[word];
      leave(word, Side::writer, marks.writer.load(std::memory_order_relaxed), me, marker, pc);
      const Mark reader = marks.reader.load();
      found |= reader >= marker.launch && reader != marker.mine() && may_race(reader, marker.mine(), marker);
    }
    return found;
  }

  // What the last launch left on a word, if its numbers begin with `first`: calls visit(mark, pc) for its writers, then for its
  // readers. `kernel` is its kernel's: of a place the marks keep 32 bits, and the others are those of the kernel.
  template <class Visit>
  static void visit_last(std::uintptr_t address, std::uint32_t first, Function kernel, Visit visit) {
    const std::uintptr_t word = (address - Heap::base) / 4;
    const auto of = [&](Side side, Mark mark) {
      if (mark.block < first) return;
      const auto near = reinterpret_cast<std::uintptr_t>(kernel);
      const auto place = places[word][static_cast<int>(side)].load(std::memory_order_relaxed);
      const auto distance = static_cast<std::int32_t>(place - static_cast<std::uint32_t>(near));
      visit(side == Side::writer, mark, reinterpret_cast<const void*>(near + static_cast<std::uintptr_t>(distance)));
    };
    of(Side::writer, of_words[word].writer.load(std::memory_order_relaxed));
    of(Side::reader, of_words[word].reader.load(std::memory_order_relaxed));
  }

 private:
  enum class Side { writer, reader };
  struct OfWord {
    std::atomic<Mark> writer;
    std::atomic<Mark> reader;
  };
  using Places = std::atomic<std::uint32_t>[2];  // in the code: of a writer, and of a reader
  // Returns what was there.
  static Mark leave(std::uintptr_t word, Side side, Mark old, Mark me, const Marker& marker, const void* pc);
  static bool may_race(Mark old, Mark me, const Marker& marker);

  static OfWord* of_words;  // of the heap
  static Places* places;
};

// The contents of all device memory before a launch: to find bytes that changed although no hook saw a store, and to undo a
// launch that must run again in order. It lies at a fixed distance from the memory, as the shadow does, and stays there from
// launch to launch: only what has changed since then is copied. Not more than one at a time.
class Snapshot {
 public:
  Snapshot();  // also clears every mark of a launch
  void restore() const;
  std::vector<std::uintptr_t> changed_unseen() const;  // the first such byte of each allocation
  static void forget(std::uintptr_t address, std::size_t bytes);

 private:
  static std::uint8_t* bytes_;  // of the heap, and of its shadow
  static std::uint8_t* shadow_;
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
  std::uint8_t* shadow(std::uintptr_t address) { return shadows_ + (address - low_); }

 private:
  std::uintptr_t low_;
  std::size_t bytes_ = 0;
  std::uint8_t* shadows_;
};

}  // namespace simt
