// Who may not have seen what: happens-before within a launch, and the accesses of shared and device memory that it leaves
// unordered.
//
// Two accesses to a byte race if they come from different threads, at least one is a store, they are not both atomic in a scope
// that holds the two (and of the same bytes: an atomic of 8 bytes does not see one of 4 as a whole), and nothing orders them.
// What orders is the same for both memories:
//   __syncthreads()   everything before it, by any thread of the block, comes before everything after it
//   bar.sync, arrive  what the arriving threads did before comes before what the waiting threads do after
//   __syncwarp(mask)  the same among the lanes of the mask
//   mbarrier          what threads did before they arrived in a phase comes before what others do that have waited for its end
//   of a cluster      what its threads did before they arrived comes before what they do after they have waited (cluster.h)
//   fence and flag    what comes before a fence comes before what follows another fence, if a flag leads from the first to the
//                     second: an atomic or volatile value that is stored after the first one, and read before the second one
// "Before" and "after" hold through barriers, too. So a fence is cumulative: it passes on what its thread did and all that came
// before that, by a barrier or another flag. And the flag may be stored by another thread than the one that made the fence, if
// a barrier lies between the two; so may it be read. (CUDA's fences are sequentially consistent, PTX's fence.sc: of two, one
// comes first, and here the flag says which.) A fence, an atomic or a flag counts for the threads of its scope: of the block,
// or of the device. (The whole system is to us one device.) Shuffles, votes and atomics alone order nothing.
//
// Time. Each block has a clock, which ticks whenever one of its threads lets others see what it did. Most of the time a thread
// has seen of its own block everything up to the last full barrier, and a few threads further (a vector clock); of other blocks
// nothing. Only what came by fences and flags, or from a cluster, leads further, and that is kept apart, by block: it is
// Knowledge.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/simt/simt.h"

namespace simt {

using Time = std::uint32_t;  // of the clock of a block, which starts at 1, and ends before `asynchronous`

// Not all that happens is a thread's doing. An asynchronous operation on which others wait at an mbarrier (async.h) is done by
// an actor of the block: one for each mbarrier, and one for each thread whose copies arrive at one. A record with this bit in
// its time is an actor's, and has its number where others have the thread. In clocks, actors stand behind the threads.
inline constexpr Time asynchronous = Time{1} << 31;

// What was seen of one block: everything up to one of its full barriers, and of single threads what came after that.
struct Seen {
  Time barrier = 0;
  std::map<std::uint16_t, Time> threads;
  bool operator==(const Seen&) const = default;
};

// What was seen of other blocks, by their numbers: a tree by the bits of these, the highest first. A tree never changes, so
// that thousands of blocks that each add themselves to what came before share nearly all of it.
struct Knowledge;
using SharedKnowledge = std::shared_ptr<const Knowledge>;  // null: none
struct Knowledge {
  std::uint32_t block;  // of a branch: the bits above its own
  std::uint32_t bit;    // by which the two below it differ, as a mask; 0: a leaf
  SharedKnowledge clear, set;
  Seen seen;  // of a leaf
};

// An atomic or volatile value: what it lets its readers see, after their fence.
struct Flag {
  SharedKnowledge of_device;                                    // any reader
  std::unordered_map<std::uint32_t, SharedKnowledge> of_block;  // readers of this block
};
using Flags = std::unordered_map<std::uintptr_t, Flag>;

// What goes from fence to fence. What stays within the block needs only fences of block scope.
struct Passed {
  SharedKnowledge in_block;
  SharedKnowledge in_device;
};

using Clocks = std::vector<Time>;  // by thread of the block, then by actor: how much of it was seen

// All that happened before the present of a thread, since the last full barrier of its block. A barrier of some hands it on
// from thread to thread as it is. A flag hands on `released`, into which a fence packs the rest.
struct Past {
  std::shared_ptr<const Clocks> clocks;  // of its own block; null: only its own accesses
  SharedKnowledge known;                 // of other blocks
  Passed released;                       // what its fences let others see
  Passed acquired;                       // what the flags that it read let it see after its next fence
};

// A barrier of some, while they gather. It may be one whose waiters come later, one by one, if ever: then each acquires what it
// has released.
struct Meeting {
  Past past;                                  // of all who came: but for the clocks, which stand here until all have come,
  Clocks clocks;                              // with what those had done
  Time barrier = 0;                           // the last full barrier before the last of them came
  std::shared_ptr<const Clocks> joined_last;  // warps that meet again and again all have seen the same
};

enum class Kind : std::uint8_t { read, write };

// An access, as it is remembered. Packed: there are many, and what looking for races costs is mostly the memory that they take.
class AccessRecord {
 public:
  AccessRecord() = default;
  // `bytes_mask`: of the aligned word of four bytes. `scope`: in which it is atomic; of the thread: not at all. `wide`: and
  // this word is half of it.
  AccessRecord(std::uint32_t block, Time time, const void* pc, std::uint16_t thread, std::uint8_t bytes_mask, Scope scope,
               bool wide)
      : when_(std::uint64_t{block} << 32 | time),
        who_(std::uint64_t{wide} << 63 | reinterpret_cast<std::uintptr_t>(pc) << 16 | thread << 6u | bytes_mask << 2u |
             static_cast<unsigned>(scope)) {}

  std::uint32_t block() const { return static_cast<std::uint32_t>(when_ >> 32); }
  Time time() const { return static_cast<Time>(when_); }  // with `asynchronous` of an actor's: later than any thread's
  bool is_asynchronous() const { return (time() & asynchronous) != 0; }
  bool is_by(std::uint32_t of_block, std::uint32_t its_thread) const {
    return thread() == its_thread && block() == of_block && !is_asynchronous();
  }
  const void* pc() const { return reinterpret_cast<const void*>(who_ << 1 >> 17); }  // addresses of a program have 47 bits
  std::uint16_t thread() const { return who_ >> 6 & 0x3ff; }                         // in its block; or the actor
  std::uint8_t bytes_mask() const { return who_ >> 2 & 15; }
  Scope scope() const { return static_cast<Scope>(who_ & 3); }
  bool wide() const { return who_ >> 63; }
  // The same for two accesses that differ in their times and places only.
  std::uint64_t key() const { return when_ >> 31 << 31 | who_ >> 63 << 16 | (who_ & 0xffff); }
  // And for two that differ in their times and lanes only: the same instruction of a warp.
  bool same_instruction(const AccessRecord& other) const {
    return (when_ ^ other.when_) >> 31 == 0 && ((who_ ^ other.who_) & ~lane_bits) == 0;
  }
  std::uint32_t lane_bit() const { return 1u << thread() % warp_size; }
  AccessRecord by_lane(unsigned lane) const { return {when_, (who_ & ~lane_bits) | std::uint64_t{lane} << 6}; }
  AccessRecord at(Time time) const { return {when_ >> 32 << 32 | time, who_}; }

 private:
  static constexpr std::uint64_t lane_bits = (warp_size - 1) << 6;
  AccessRecord(std::uint64_t when, std::uint64_t who) : when_(when), who_(who) {}
  std::uint64_t when_ = 0;
  std::uint64_t who_ = 0;
};
static_assert(sizeof(AccessRecord) == 16 && max_threads_per_block <= 1024);

// The same access by several lanes of a warp: all of them read the number that one of them needs, again and again.
struct LanesRecord {
  AccessRecord record;  // by one of the lanes
  std::uint32_t lanes;  // all of them
  // Is it so for every lane?
  template <class F>
  bool all(F of_one) const {
    for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
      if (!of_one(record.by_lane(static_cast<unsigned>(std::countr_zero(rest))))) return false;
    }
    return true;
  }
};

// What happens before what, for the threads of one block.
class Order {
 public:
  // `device_flags`: those of the launch that lie in device memory; null while nobody may read one. `shared_flags`: those in
  // shared memory of the block's cluster.
  void begin_block(std::uint32_t block, std::size_t threads, Flags* device_flags, Flags* shared_flags);

  std::uint32_t block() const { return block_; }
  Time now() const { return now_; }
  std::uint64_t epoch() const { return epoch_; }  // so many full barriers and meetings there were: of Marks (memory.h)
  bool before(const AccessRecord& earlier, std::uint32_t thread);

  void full_barrier();
  // Who waits at a meeting sees, once it is over, what those who arrived did before they arrived. Who waits has arrived.
  // `goes_on`: they do not wait.
  void arrive(Meeting& meeting, const std::vector<std::uint32_t>& threads, bool goes_on);
  void end(Meeting& meeting, const std::vector<std::uint32_t>& waiting);
  void meet(const std::vector<std::uint32_t>& threads);  // all arrive at once, and wait
  // Of a meeting at which nobody waits: a thread comes to it, and goes on; what those who came so far let others see; and a
  // thread joins that to what it has seen.
  void release(Meeting& meeting, std::uint32_t thread);
  Past released(const Meeting& meeting) const;
  void acquire(std::uint32_t thread, const Past& past);

  std::uint16_t new_actor() { return actors_ < most_actors ? actors_++ : most_actors; }  // the last number serves all the rest
  Time tick() { return now_++; }                                                         // the time until now
  // Who acquires it has seen the actor up to that time.
  void add(Past& past, std::uint16_t actor, Time time) const;
  void add(Meeting& meeting, std::uint16_t actor, Time time) const { add(meeting.clocks, actor, time); }
  bool has_seen(std::uint32_t thread, std::uint16_t actor, Time time) { return saw(thread, threads_.size() + actor, time); }
  // A barrier of the cluster. Each block adds to `all` what its threads let others see: those who arrived at the meeting, which
  // ends, or everyone up to the last full barrier. Then who has waited sees all of it, and `own`, which is for this block
  // alone.
  void hand_on(Meeting& meeting, Past& own, Past& all);
  void hand_on(Past& all);
  void acquire(const std::vector<std::uint32_t>& threads, const Past& own, const Past& all);
  void acquire(const Past& all);                                   // by all threads, at a full barrier
  bool knows_of(std::uint32_t thread, std::uint32_t other_block);  // has seen anything of it
  // A thread has waited for the launches before (dependent.h). To those who see that, it is one more block of which they know.
  void know_earlier_launches(std::uint32_t thread);
  bool knows_earlier_launches(std::uint32_t thread) { return knows_of(thread, earlier_launches); }
  void fence(std::uint32_t thread, Scope scope);
  void flag_stored(std::uint32_t thread, std::uintptr_t address, Scope scope, bool also_read);
  void flag_read(std::uint32_t thread, std::uintptr_t address, Scope scope);

 private:
  struct Thread {
    std::uint64_t generation = 0;  // that all of this is of
    Past past;
    bool has_news = false;  // for the other threads, at the next full barrier
  };

  static constexpr std::uint16_t most_actors = 1023;
  static constexpr std::uint32_t earlier_launches = 0xffffffff;  // no block's number

  void add(Clocks& clocks, std::uint16_t actor, Time time) const;
  bool saw(std::uint32_t thread, std::size_t whom, Time time);
  std::size_t place(const AccessRecord& record) const {  // in clocks
    return record.is_asynchronous() ? threads_.size() + record.thread() : record.thread();
  }
  Thread& current(std::uint32_t thread);
  void has_news(std::uint32_t thread);
  void join_meeting(Meeting& meeting, std::uint32_t thread);
  void see(Past& past, const SharedKnowledge& what) const;
  void learn(std::uint32_t thread, SharedKnowledge& what);  // and forgets it there
  Flag* flag_at(std::uintptr_t address, bool make);         // null: nobody has released anything there

  std::uint32_t block_ = 0;
  Time now_ = 1;
  Time barrier_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t generation_ = 0;
  std::uint16_t actors_ = 0;
  std::vector<Thread> threads_;
  struct {
    std::shared_ptr<const Clocks> mine, other, both;
  } last_joined_;                         // by acquire(): threads that have seen the same mostly acquire the same
  Past common_past_;                      // of all threads, at the last full barrier
  std::vector<std::uint32_t> with_news_;  // since then
  Flags* shared_flags_ = nullptr;
  Flags* device_flags_ = nullptr;
};

// ---- the accesses ----

// Most accesses are reads, and most of these by the thread that read the word before; most words are written by one thread at a
// time. They need no more than this, so this is small, and what else is remembered of the word lies apart.
struct AccessedWord {
  std::uint64_t generation = 0;  // of shared memory: the records are of this generation; older ones race with nothing
  AccessRecord last_read = {};
  AccessRecord last_write = {};
  // A warp may read the word again and again, and meet in between. Lanes that made the last read; and those that had made the
  // same one before, at an earlier time, which counts for those of them that have not made the last one.
  std::uint32_t read_lanes = 0, earlier_lanes = 0;
  Time earlier_time = 0;
  bool was_read = false;        // last_read is a read
  bool was_written = false;     // last_write is a store
  bool has_more_reads = false;  // there may be records in MoreOfWord
  bool has_more_writes = false;

  LanesRecord last_reads() const { return {last_read, read_lanes}; }
  LanesRecord earlier_reads() const { return {last_read.at(earlier_time), earlier_lanes & ~read_lanes}; }
  bool last_read_by_others(const AccessRecord& record) const {
    return was_read && (last_read.key() != record.key() || ((read_lanes | earlier_lanes) & ~record.lane_bit()) != 0);
  }
};
static_assert(sizeof(AccessedWord) == 56);

// Accesses of one kind to a word.
struct AccessRecords {
  std::vector<LanesRecord> all;
  std::size_t compact_above = 64;
  // Thousands of threads draw tickets from one word. None of these atomics races with another one, so there is no need to look
  // at them one by one: as long as all are atomic for the device, and of the same bytes, this says of which.
  std::uint8_t alike = none;

  static constexpr std::uint8_t none = 0, mixed = 255;
  static std::uint8_t kind_of(const AccessRecord& record) {
    return record.scope() >= Scope::device ? static_cast<std::uint8_t>(record.bytes_mask() << 1 | record.wide()) : mixed;
  }
  bool race_with_none(const AccessRecord& record) const { return all.empty() || (alike != mixed && alike == kind_of(record)); }
  void add(const LanesRecord& record) {
    const std::uint8_t kind = kind_of(record.record);
    alike = all.empty() || alike == kind ? kind : mixed;
    all.push_back(record);
  }
  void forget() {  // and keep the space
    all.clear();
    compact_above = 64;
  }
};

struct MoreOfWord {  // before the last
  AccessRecords reads;
  AccessRecords writes;

  void forget() {
    reads.forget();
    writes.forget();
  }
};

// The words of a memory, by index. Shared memory is small: an array. It forgets at each barrier that orders all who may come.
class DenseWords {
 public:
  static constexpr bool forgets = true;
  std::uint64_t generation = 1;  // of the records: all that comes now races with none of an older one
  void reserve(std::size_t count) {
    if (words_.size() >= count) return;
    words_.resize(count);
    more_.resize(count);
  }
  AccessedWord& operator[](std::size_t index) { return words_[index]; }
  MoreOfWord& more(std::size_t index) { return more_[index]; }

 private:
  std::vector<AccessedWord> words_;
  std::vector<MoreOfWord> more_;
};

// Device memory is large, and a launch touches little of it: pages, made when they are touched.
class SparseWords {
 public:
  static constexpr bool forgets = false;
  AccessedWord& operator[](std::size_t index) { return page_of(index).words[index % page_words]; }
  MoreOfWord& more(std::size_t index) {
    auto& more = page_of(index).more;
    if (!more) more = std::make_unique<std::array<MoreOfWord, page_words>>();
    return (*more)[index % page_words];
  }
  // Calls visit(index, word, more) for each word of the pages; more: null, if there was never any.
  template <class Visit>
  void visit(Visit visit) const {
    for (const auto& [number, page] : pages_) {
      for (std::size_t i = 0; i < page_words; ++i) {
        visit(number * page_words + i, page->words[i], page->more ? &(*page->more)[i] : nullptr);
      }
    }
  }

 private:
  static constexpr std::size_t page_words = 256;
  struct Page {
    std::array<AccessedWord, page_words> words;
    std::unique_ptr<std::array<MoreOfWord, page_words>> more;
  };
  Page& page_of(std::size_t index) {
    if (index / page_words != last_index_ || last_ == nullptr) {
      last_index_ = index / page_words;
      std::unique_ptr<Page>& page = pages_[last_index_];
      if (!page) page = std::make_unique<Page>();
      last_ = page.get();
    }
    return *last_;
  }

  std::unordered_map<std::size_t, std::unique_ptr<Page>> pages_;
  std::size_t last_index_ = 0;
  Page* last_ = nullptr;
};

template <class Words>
class Races {
 public:
  struct Who {
    std::uint16_t thread;
    const void* pc;
  };
  struct Conflict {
    AccessRecord earlier;
    Kind earlier_kind;
    std::size_t offset;  // of the first byte that both touch
    bool sizes_differ;   // both are atomic, but of different bytes
  };

  // An access to bytes [offset, offset + bytes) of the memory, by a thread of the order's block. Returns an earlier access that
  // it races with, if there is one.
  // `wide`: an atomic of 8 bytes, not two of 4.
  std::optional<Conflict> access(Order& order, const Who& who, std::size_t offset, std::size_t bytes, Kind kind, Scope scope,
                                 bool wide = false);

  // A plain access to a whole word that surely races with none. False if that takes a longer look; then nothing is recorded.
  // Nearly all that a block does is sure: of this generation the word has records, its last store came before this, and it
  // is read, or nobody else has read it.
  [[gnu::always_inline]] bool sure_access(Order& order, const Who& who, std::size_t index, Kind kind) requires Words::forgets;

  // What an asynchronous operation did, once somebody has waited for it: checked when it was issued, and since then nobody
  // could touch these bytes without a report. `actor`: with its number for the thread's. What was kept of it as the access of
  // the thread that issued it is forgotten.
  void done(Order& order, const Who& actor, Time time, std::uint32_t issuer, std::size_t offset, std::size_t bytes, Kind kind);

  // An access that races with none so far, as access() would have kept it.
  void put(std::size_t index, const AccessRecord& record, Kind kind);

  Words words;  // must cover every offset

 private:
  static constexpr std::uint8_t whole_word = 15;  // a mask of its bytes
  struct Slot {                                   // of a hash table
    std::uint64_t key = 0;
    std::uint64_t compaction = 0;  // that put the key there; of an earlier one, the slot is free
    std::uint32_t lanes = 0;       // that were seen with it
  };
  AccessedWord& word_at(std::size_t index);
  void keep_read(AccessedWord& word, std::size_t index, const AccessRecord& record);
  template <class Covered>
  void keep_write(AccessedWord& word, std::size_t index, const AccessRecord& record, Covered covered);
  void add_read(AccessedWord& word, std::size_t index, const LanesRecord& record);
  void add(AccessRecords& records, const LanesRecord& record);
  void compact(std::vector<LanesRecord>& records);

  std::vector<Slot> slots_;
  std::uint64_t compactions_ = 0;
};

// Of a thread that reads the same bytes again and again, the last time is enough.
template <class Words>
[[gnu::always_inline]] inline void Races<Words>::keep_read(AccessedWord& word, std::size_t index, const AccessRecord& record) {
  const std::uint32_t lane = record.lane_bit();
  if (word.was_read && word.last_read.same_instruction(record)) {
    if (word.last_read.time() == record.time()) {
      word.read_lanes |= lane;
      return;
    }
    if ((word.earlier_lanes & ~word.read_lanes) != 0) add_read(word, index, word.earlier_reads());
    word.earlier_lanes = word.read_lanes;
    word.earlier_time = word.last_read.time();
  } else {
    if (word.last_read_by_others(record)) {
      add_read(word, index, word.last_reads());
      if ((word.earlier_lanes & ~word.read_lanes) != 0) add_read(word, index, word.earlier_reads());
    }
    word.earlier_lanes = 0;
  }
  word.last_read = record;
  word.read_lanes = lane;
  word.was_read = true;
}

template <class Words>
[[gnu::always_inline]] inline bool Races<Words>::sure_access(Order& order, const Who& who, std::size_t index,
                                                             Kind kind) requires Words::forgets {
  AccessedWord& word = words[index];
  if (word.generation != words.generation || word.has_more_writes ||
      (word.was_written && !word.last_write.is_by(order.block(), who.thread) && !order.before(word.last_write, who.thread)))
    return false;
  const AccessRecord record(order.block(), order.now(), who.pc, who.thread, whole_word, Scope::thread, false);
  if (kind == Kind::read) {
    keep_read(word, index, record);
    return true;
  }
  if (word.has_more_reads || word.last_read_by_others(record) || (word.was_written && word.last_write.thread() != who.thread))
    return false;
  word.last_write = record;
  word.was_written = true;
  word.was_read = false;
  word.earlier_lanes = 0;
  return true;
}

using DeviceRaces = Races<SparseWords>;  // offsets count from the start of the heap

}  // namespace simt
