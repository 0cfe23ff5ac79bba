// Who may not have seen what: happens-before over the shared memory of one block.
//
// Two accesses to a byte race if they come from different threads, at least one is a store, and nothing orders them. What
// orders:
//   __syncthreads()   everything before it, by any thread, comes before everything after it
//   __syncwarp(mask)  the same among the lanes of the mask
//   fence and flag    what a thread did before its fence comes before what another does after its own fence, if that one saw,
//   in
//                     between, an atomic or volatile value that the first one stored after the fence
// Shuffles, votes and atomics alone order nothing: two atomics never race with each other, and that is all.
//
// Each thread has a clock and knows how much of the others' time it has seen (a vector clock). A full barrier needs neither: it
// starts a new generation, in which all earlier accesses are known to all.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace simt {

enum class Kind { read, write };

class SharedRaces {
 public:
  struct Record {  // an access, as it is remembered
    std::uint16_t thread;
    std::uint8_t bytes_mask;  // of the aligned word of four bytes
    bool atomic;
    std::uint32_t clock;
    const void* pc;
  };

  void begin_block(std::size_t threads, std::size_t shared_bytes);

  // An access to bytes [offset, offset + bytes) of shared memory. Returns an earlier access that it races with, if there is
  // one.
  struct Conflict {
    Record earlier;
    Kind earlier_kind;
    std::size_t offset;  // of the first byte that both touch
  };
  std::optional<Conflict> access(int thread, std::size_t offset, std::size_t bytes, Kind kind, bool atomic, const void* pc);

  void block_barrier() { ++generation_; }
  void warp_barrier(int first_thread, std::uint32_t mask);
  void fence(int thread);
  void flag_stored(int thread, std::uintptr_t address, bool also_read);
  void flag_read(int thread, std::uintptr_t address);

 private:
  using Clocks = std::vector<std::uint32_t>;  // by thread; empty: has seen nothing of this generation

  struct Word {
    std::uint64_t generation = 0;  // the records are of this generation; older ones race with nothing
    std::vector<Record> reads;
    std::vector<Record> writes;
    std::size_t compact_above = 64;  // reads
  };

  struct Thread {
    std::uint64_t generation = 0;  // that seen, released and acquired are of
    std::uint32_t clock = 1;
    Clocks seen;      // what happened before the thread's present
    Clocks released;  // what its last fence lets others see
    Clocks acquired;  // what flags it read let it see after its next fence
  };

  Thread& current(int thread);
  bool ordered(const Record& earlier, int thread);
  static void join(Clocks& into, const Clocks& other);
  static bool same_but_for_time(const Record& a, const Record& b);
  static void compact(std::vector<Record>& reads);

  std::uint64_t generation_ = 0;
  std::size_t thread_count_ = 0;
  std::vector<Thread> threads_;
  std::vector<Word> words_;
  std::map<std::uintptr_t, Clocks> flags_;  // what each flag lets its readers see
  std::uint64_t flags_generation_ = 0;
};

}  // namespace simt
