// Who may not have seen what: happens-before over the shared memory of a block, and over device memory within a launch.
//
// Two accesses to a byte race if they come from different actors, at least one is a store, and nothing orders them. On shared
// memory the actors are the threads of the block; on device memory they are the blocks of the launch. What orders:
//   __syncthreads()   everything before it, by any thread, comes before everything after it
//   bar.sync, arrive  what the arriving threads did before comes before what the waiting threads do after
//   __syncwarp(mask)  the same among the lanes of the mask
//   fence and flag    what an actor did before its fence comes before what another does after its own fence, if that one saw,
//                     in between, an atomic or volatile value that the first one stored after the fence
// Shuffles, votes and atomics alone order nothing: two atomics never race with each other, and that is all.
//
// Each actor has a clock and knows how much of the others' time it has seen (a vector clock). A full barrier needs neither: it
// starts a new generation, in which all earlier accesses are known to all.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace simt {

enum class Kind { read, write };

struct AccessRecord {  // an access, as it is remembered
  std::uint32_t actor;
  std::uint32_t clock;
  const void* pc;
  std::uint16_t thread;     // in its block
  std::uint8_t bytes_mask;  // of the aligned word of four bytes
  bool atomic;
};

struct AccessedWord {
  std::uint64_t generation = 0;  // the records are of this generation; older ones race with nothing
  std::vector<AccessRecord> reads;
  std::vector<AccessRecord> writes;
  std::size_t compact_above = 64;  // reads
};

// The words of a memory, by index. Shared memory is small: an array.
class DenseWords {
 public:
  void reserve(std::size_t count) {
    if (words_.size() < count) words_.resize(count);
  }
  AccessedWord& operator[](std::size_t index) { return words_[index]; }

 private:
  std::vector<AccessedWord> words_;
};

// Device memory is large, and a launch touches little of it: pages, made when they are touched.
class SparseWords {
 public:
  AccessedWord& operator[](std::size_t index) {
    if (index / page_words != last_index_ || last_ == nullptr) {
      last_index_ = index / page_words;
      std::unique_ptr<AccessedWord[]>& page = pages_[last_index_];
      if (!page) page = std::make_unique<AccessedWord[]>(page_words);
      last_ = page.get();
    }
    return last_[index % page_words];
  }

 private:
  static constexpr std::size_t page_words = 256;
  std::unordered_map<std::size_t, std::unique_ptr<AccessedWord[]>> pages_;
  std::size_t last_index_ = 0;
  AccessedWord* last_ = nullptr;
};

using Clocks = std::vector<std::uint32_t>;  // by actor: how much of its time was seen

// A barrier of some, while they gather.
struct Meeting {
  Clocks clocks;                              // what those who came had done, and seen
  std::shared_ptr<const Clocks> joined_last;  // warps that meet again and again all have seen the same
};

template <class Words>
class Races {
 public:
  struct Who {
    std::uint32_t actor;
    std::uint16_t thread;
    const void* pc;
  };
  struct Conflict {
    AccessRecord earlier;
    Kind earlier_kind;
    std::size_t offset;  // of the first byte that both touch
  };

  explicit Races(std::size_t actors = 0) : actor_count_(actors), actors_(actors) {}
  void begin_block(std::size_t actors);  // forgets what went before

  // An access to bytes [offset, offset + bytes) of the memory. Returns an earlier access that it races with, if there is one.
  std::optional<Conflict> access(const Who& who, std::size_t offset, std::size_t bytes, Kind kind, bool atomic);

  void full_barrier() { ++generation_; }
  // Who waits at a meeting sees, once it is over, what those who arrived did before they arrived. Who waits has arrived.
  void arrive(Meeting& meeting, std::uint32_t actor);
  void end(Meeting& meeting, const std::vector<std::uint32_t>& waiting);
  void fence(std::uint32_t actor);
  void flag_stored(std::uint32_t actor, std::uintptr_t address, bool also_read);
  void flag_read(std::uint32_t actor, std::uintptr_t address);

  Words words;  // must cover every offset

 private:
  struct Actor {
    std::uint64_t generation = 0;  // that seen, released and acquired are of
    std::uint32_t clock = 1;
    std::shared_ptr<const Clocks> seen;  // what happened before the actor's present; null: nothing of this generation
    Clocks released;                     // what its last fence lets others see
    Clocks acquired;                     // what flags it read let it see after its next fence
  };

  Actor& current(std::uint32_t actor);
  void compact(std::vector<AccessRecord>& reads);
  bool ordered(const AccessRecord& earlier, std::uint32_t actor);

  std::uint64_t generation_ = 0;
  std::size_t actor_count_ = 0;
  std::vector<Actor> actors_;
  std::map<std::uintptr_t, Clocks> flags_;  // what each flag lets its readers see
  std::uint64_t flags_generation_ = 0;
  std::vector<std::uint64_t> compacted_;  // by actor, bytes and atomicity: the last compaction that kept such a read
  std::uint64_t compactions_ = 0;
};

using SharedRaces = Races<DenseWords>;   // actors are the threads of a block, offsets count from the start of its memory
using GlobalRaces = Races<SparseWords>;  // actors are the blocks of a launch, offsets count from the start of the heap

}  // namespace simt
