#include "common/simt/races.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/simt/memory.h"

namespace simt {
namespace {

void join(Clocks& into, const Clocks& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

// Who has seen a later barrier has seen all that the threads did before it, too.
void join(Seen& into, const Seen& other) {
  if (other.barrier > into.barrier) {
    into = other;
  } else if (other.barrier == into.barrier) {
    for (const auto& [thread, time] : other.threads) into.threads[thread] = std::max(into.threads[thread], time);
  }
}

SharedKnowledge leaf(std::uint32_t block, Seen seen) {
  return std::make_shared<const Knowledge>(Knowledge{block, 0, nullptr, nullptr, std::move(seen)});
}

std::uint32_t above(std::uint32_t block, std::uint32_t bit) { return block & ~(2 * bit - 1); }

// Both trees in one, of their own branches wherever one side has all that the other one has. (Okasaki and Gill, Fast mergeable
// integer maps, 1998.)
SharedKnowledge merged(const SharedKnowledge& a, const SharedKnowledge& b) {
  if (a == nullptr || a == b) return b;
  if (b == nullptr) return a;
  if (a->bit < b->bit) return merged(b, a);
  const auto branch = [&](std::uint32_t bit, const SharedKnowledge& clear, const SharedKnowledge& set) -> SharedKnowledge {
    for (const SharedKnowledge& same : {a, b}) {
      if (same->bit == bit && same->clear == clear && same->set == set) return same;
    }
    return std::make_shared<const Knowledge>(Knowledge{above(a->block, bit), bit, clear, set, {}});
  };
  if (a->bit == b->bit && a->block == b->block) {
    if (a->bit > 0) return branch(a->bit, merged(a->clear, b->clear), merged(a->set, b->set));
    Seen seen = a->seen;
    join(seen, b->seen);
    return seen == a->seen ? a : seen == b->seen ? b : leaf(a->block, std::move(seen));
  }
  if (a->bit > b->bit && above(b->block, a->bit) == a->block) {
    const bool in_set = (b->block & a->bit) != 0;
    return branch(a->bit, in_set ? a->clear : merged(a->clear, b), in_set ? merged(a->set, b) : a->set);
  }
  const std::uint32_t bit = std::bit_floor(a->block ^ b->block);
  return (a->block & bit) != 0 ? branch(bit, b, a) : branch(bit, a, b);
}

void join(SharedKnowledge& into, const SharedKnowledge& other) { into = merged(into, other); }

// What is known of a block; null: nothing.
const Seen* seen_of(const SharedKnowledge& known, std::uint32_t block) {
  const Knowledge* at = known.get();
  while (at != nullptr && at->bit > 0) at = ((block & at->bit) != 0 ? at->set : at->clear).get();
  return at != nullptr && at->block == block ? &at->seen : nullptr;
}

void join(Passed& into, const Passed& other) {
  join(into.in_block, other.in_block);
  join(into.in_device, other.in_device);
}

// All but the clocks.
void join_knowledge(Past& into, const Past& other) {
  join(into.known, other.known);
  join(into.released, other.released);
  join(into.acquired, other.acquired);
}

LanesRecord only(const AccessRecord& record) { return {record, record.lane_bit()}; }

bool holds_devices_threads(Scope scope) { return scope >= Scope::device; }

// Neither can be seen half done by the other, if they are of the same bytes.
bool in_one_scope(Scope a, Scope b, bool in_one_block) {
  return std::min(a, b) >= (in_one_block ? Scope::block : Scope::device);
}

}  // namespace

// ---- order ----

void Order::begin_block(std::uint32_t block, std::size_t threads, Flags* device_flags, Flags* shared_flags) {
  block_ = block;
  now_ = 1;
  barrier_ = 0;
  epoch_ = 0;
  ++generation_;
  actors_ = 0;
  last_joined_ = {};
  threads_.assign(threads, {});
  common_past_ = {};
  with_news_.clear();
  shared_flags_ = shared_flags;
  device_flags_ = device_flags;
}

Order::Thread& Order::current(std::uint32_t thread) {
  Thread& t = threads_[thread];
  if (t.generation != generation_) t = {generation_, common_past_};
  return t;
}

void Order::has_news(std::uint32_t thread) {
  if (!std::exchange(current(thread).has_news, true)) with_news_.push_back(thread);
}

bool Order::saw(std::uint32_t thread, std::size_t whom, Time time) {
  if (time <= barrier_) return true;
  const auto& seen = current(thread).past.clocks;
  return seen != nullptr && whom < seen->size() && (*seen)[whom] >= time;
}

bool Order::before(const AccessRecord& earlier, std::uint32_t thread) {
  const Time time = earlier.time() & ~asynchronous;
  if (earlier.block() == block_) {
    return earlier.time() <= barrier_ || (earlier.thread() == thread && !earlier.is_asynchronous()) ||
           saw(thread, place(earlier), time);
  }
  const Seen* const seen = seen_of(current(thread).past.known, earlier.block());
  if (seen == nullptr) return false;
  const auto found = seen->threads.find(static_cast<std::uint16_t>(place(earlier)));  // all blocks have as many threads
  return time <= seen->barrier || (found != seen->threads.end() && time <= found->second);
}

void Order::full_barrier() {
  for (const std::uint32_t thread : with_news_) join_knowledge(common_past_, threads_[thread].past);
  with_news_.clear();
  barrier_ = now_++;
  ++epoch_;
  ++generation_;
}

void Order::join_meeting(Meeting& meeting, std::uint32_t thread) {
  if (meeting.clocks.size() < threads_.size()) meeting.clocks.resize(threads_.size());
  const Past& past = current(thread).past;
  if (past.clocks != nullptr && past.clocks != meeting.joined_last) {
    join(meeting.clocks, *past.clocks);
    meeting.joined_last = past.clocks;
  }
  join_knowledge(meeting.past, past);
  meeting.clocks[thread] = now_;
  meeting.barrier = barrier_;
}

void Order::arrive(Meeting& meeting, const std::vector<std::uint32_t>& threads, bool goes_on) {
  for (const std::uint32_t thread : threads) join_meeting(meeting, thread);
  if (goes_on) ++now_;
}

void Order::end(Meeting& meeting, const std::vector<std::uint32_t>& waiting) {
  meeting.past.clocks = std::make_shared<const Clocks>(std::move(meeting.clocks));
  for (const std::uint32_t thread : waiting) current(thread).past = meeting.past;
  ++now_;
}

void Order::meet(const std::vector<std::uint32_t>& threads) {
  Meeting meeting;
  for (const std::uint32_t thread : threads) join_meeting(meeting, thread);
  end(meeting, threads);
  ++epoch_;
}

void Order::release(Meeting& meeting, std::uint32_t thread) {
  join_meeting(meeting, thread);
  ++now_;
}

Past Order::released(const Meeting& meeting) const {
  Past past = meeting.past;
  past.clocks = std::make_shared<const Clocks>(meeting.clocks);
  return past;
}

void Order::add(Clocks& clocks, std::uint16_t actor, Time time) const {
  const std::size_t at = threads_.size() + actor;
  if (clocks.size() <= at) clocks.resize(at + 1);
  clocks[at] = std::max(clocks[at], time);
}

void Order::add(Past& past, std::uint16_t actor, Time time) const {
  Clocks clocks = past.clocks == nullptr ? Clocks() : *past.clocks;
  add(clocks, actor, time);
  past.clocks = std::make_shared<const Clocks>(std::move(clocks));
}

void Order::acquire(std::uint32_t thread, const Past& past) {
  Past& mine = current(thread).past;
  if (mine.clocks == nullptr) {
    mine.clocks = past.clocks;
  } else if (past.clocks != nullptr && past.clocks != mine.clocks) {
    if (last_joined_.mine != mine.clocks || last_joined_.other != past.clocks) {
      Clocks both = *mine.clocks;
      join(both, *past.clocks);
      last_joined_ = {mine.clocks, past.clocks, std::make_shared<const Clocks>(std::move(both))};
    }
    mine.clocks = last_joined_.both;
  }
  join_knowledge(mine, past);
  if (past.known != nullptr || past.released.in_block != nullptr || past.acquired.in_block != nullptr) has_news(thread);
}

namespace {

// What holds in other blocks, too.
Past for_all(const Past& past, SharedKnowledge known) {
  const SharedKnowledge& released = past.released.in_device;
  return {nullptr, std::move(known), {released, released}, {nullptr, past.acquired.in_device}};
}

}  // namespace

void Order::hand_on(Meeting& meeting, Past& own, Past& all) {
  own = std::move(meeting.past);
  if (meeting.clocks.empty()) return;  // nobody let others see anything
  Seen seen{meeting.barrier, {}};
  for (std::size_t i = 0; i < meeting.clocks.size(); ++i) {
    if (meeting.clocks[i] > seen.barrier) seen.threads[static_cast<std::uint16_t>(i)] = meeting.clocks[i];
  }
  join_knowledge(all, for_all(own, merged(own.known, leaf(block_, std::move(seen)))));
  meeting = {};
}

void Order::hand_on(Past& all) {
  join_knowledge(all, for_all(common_past_, merged(common_past_.known, leaf(block_, {barrier_, {}}))));
}

void Order::acquire(const std::vector<std::uint32_t>& threads, const Past& own, const Past& all) {
  Past before, after;  // of the last thread: mostly all know the same
  bool first = true;
  for (const std::uint32_t thread : threads) {
    Past& past = current(thread).past;
    if (std::exchange(first, false) || past.clocks != before.clocks || past.known != before.known) {
      before = past;
      see(past, all.known);
      after = past;
    } else {
      past.clocks = after.clocks;
      past.known = after.known;
    }
    for (const Past* const other : {&own, &all}) {
      join(past.released, other->released);
      join(past.acquired, other->acquired);
    }
    has_news(thread);
  }
}

void Order::acquire(const Past& all) { join_knowledge(common_past_, all); }

bool Order::knows_of(std::uint32_t thread, std::uint32_t other_block) {
  return seen_of(current(thread).past.known, other_block) != nullptr;
}

void Order::know_earlier_launches(std::uint32_t thread) {
  join(current(thread).past.known, leaf(earlier_launches, {.barrier = 1, .threads = {}}));
  has_news(thread);
}

void Order::see(Past& past, const SharedKnowledge& what) const {
  if (what == nullptr) return;
  if (const Seen* const own = seen_of(what, block_); own != nullptr && own->barrier == barrier_) {
    Clocks seen = past.clocks == nullptr ? Clocks() : *past.clocks;
    seen.resize(
        std::max({seen.size(), threads_.size(), own->threads.empty() ? 0 : own->threads.rbegin()->first + std::size_t{1}}));
    for (const auto& [other, time] : own->threads) seen[other] = std::max(seen[other], time);
    past.clocks = std::make_shared<const Clocks>(std::move(seen));
  }
  join(past.known, what);
}

void Order::learn(std::uint32_t thread, SharedKnowledge& what) {
  see(current(thread).past, what);
  what.reset();
}

void Order::fence(std::uint32_t thread, Scope scope) {
  Past& past = current(thread).past;
  learn(thread, past.acquired.in_block);
  if (holds_devices_threads(scope)) learn(thread, past.acquired.in_device);

  Seen own{barrier_, {}};
  for (std::size_t i = 0; past.clocks != nullptr && i < past.clocks->size(); ++i) {
    if (const Time time = (*past.clocks)[i]; time > barrier_) own.threads[static_cast<std::uint16_t>(i)] = time;
  }
  own.threads[static_cast<std::uint16_t>(thread)] = now_++;
  const SharedKnowledge all = merged(past.known, leaf(block_, std::move(own)));
  past.released.in_block = all;
  if (holds_devices_threads(scope)) past.released.in_device = all;
  has_news(thread);
}

Flag* Order::flag_at(std::uintptr_t address, bool make) {
  Flags* const flags = Heap::contains(address) ? device_flags_ : shared_flags_;
  if (flags == nullptr) return nullptr;
  if (make) return &(*flags)[address];
  const auto found = flags->find(address);
  return found == flags->end() ? nullptr : &found->second;
}

void Order::flag_stored(std::uint32_t thread, std::uintptr_t address, Scope scope, bool also_read) {
  const Passed& released = current(thread).past.released;
  Flag* flag = flag_at(address, released.in_block != nullptr);
  if (flag == nullptr) return;
  if (!also_read) *flag = {};  // a plain store ends what earlier ones released
  if (released.in_block != nullptr) join(flag->of_block[block_], released.in_block);
  if (holds_devices_threads(scope)) join(flag->of_device, released.in_device);
}

void Order::flag_read(std::uint32_t thread, std::uintptr_t address, Scope scope) {
  const Flag* flag = flag_at(address, false);
  if (flag == nullptr) return;
  Passed& acquired = current(thread).past.acquired;
  if (const auto found = flag->of_block.find(block_); found != flag->of_block.end()) join(acquired.in_block, found->second);
  if (holds_devices_threads(scope)) join(acquired.in_device, flag->of_device);
  has_news(thread);
}

// ---- accesses ----

// Of a thread's accesses to the same bytes only the last is needed: forgets the others.
template <class Words>
void Races<Words>::compact(std::vector<LanesRecord>& records) {
  ++compactions_;
  slots_.resize(std::max(slots_.size(), std::bit_ceil(2 * records.size())));
  const auto seen_before = [&](LanesRecord& record) {
    const std::uint64_t key = record.record.by_lane(0).key();
    std::size_t at = (key ^ key >> 29) * 0x9e3779b97f4a7c15u >> 20;
    for (;; ++at) {
      Slot& slot = slots_[at & (slots_.size() - 1)];
      if (slot.compaction != compactions_) slot = {key, compactions_};
      if (slot.key != key) continue;
      record.lanes &= ~slot.lanes;
      slot.lanes |= record.lanes;
      return record.lanes == 0;
    }
  };
  std::reverse(records.begin(), records.end());  // the latest first
  std::erase_if(records, seen_before);
  std::reverse(records.begin(), records.end());
}

template <class Words>
void Races<Words>::add(AccessRecords& records, const LanesRecord& record) {
  records.add(record);
  if (records.all.size() <= records.compact_above) return;
  compact(records.all);
  records.compact_above = 2 * records.all.size() + 64;
}

template <class Words>
[[gnu::always_inline]] inline AccessedWord& Races<Words>::word_at(std::size_t index) {
  AccessedWord& word = words[index];
  if constexpr (Words::forgets) {
    if (word.generation != words.generation) {
      if (word.has_more_reads || word.has_more_writes) words.more(index).forget();
      word = {.generation = words.generation};
    }
  }
  return word;
}

template <class Words>
void Races<Words>::add_read(AccessedWord& word, std::size_t index, const LanesRecord& record) {
  add(words.more(index).reads, record);
  word.has_more_reads = true;
}

template <class Words>
template <class Covered>
[[gnu::always_inline]] inline void Races<Words>::keep_write(AccessedWord& word, std::size_t index, const AccessRecord& record,
                                                            Covered covered) {
  if (word.has_more_reads) {
    AccessRecords& reads = words.more(index).reads;
    if (!reads.race_with_none(record)) std::erase_if(reads.all, covered);
  }
  if (word.has_more_writes) {
    AccessRecords& writes = words.more(index).writes;
    if (!writes.race_with_none(record)) std::erase_if(writes.all, covered);
  }
  if (word.was_read && covered(word.earlier_reads())) word.earlier_lanes = 0;
  if (word.was_read && covered(word.last_reads())) {
    if ((word.earlier_lanes & ~word.read_lanes) != 0) add_read(word, index, word.earlier_reads());
    word.earlier_lanes = 0;
    word.was_read = false;
  }
  if (word.was_written && !covered(only(word.last_write))) {
    add(words.more(index).writes, only(word.last_write));
    word.has_more_writes = true;
  }
  word.last_write = record;
  word.was_written = true;
}

template <class Words>
void Races<Words>::done(Order& order, const Who& actor, Time time, std::uint32_t issuer, std::size_t offset, std::size_t bytes,
                        Kind kind) {
  const std::size_t end = offset + bytes;
  for (std::size_t index = offset / 4; index * 4 < end; ++index) {
    AccessedWord& word = word_at(index);
    const auto mask =
        static_cast<std::uint8_t>((1u << std::min(end - index * 4, std::size_t{4})) - (1u << std::max(offset, index * 4) % 4));
    const AccessRecord record(order.block(), time | asynchronous, actor.pc, actor.thread, mask, Scope::thread, false);
    if (kind == Kind::read) {
      const unsigned lane = issuer % warp_size;
      const auto issued = [&](const AccessRecord& any) {
        const AccessRecord e = any.by_lane(lane);
        return e.pc() == actor.pc && e.is_by(order.block(), issuer);
      };
      if (word.has_more_reads) {
        std::erase_if(words.more(index).reads.all, [&](LanesRecord& reads) {
          if (issued(reads.record)) reads.lanes &= ~(1u << lane);
          return reads.lanes == 0;
        });
      }
      if (word.was_read && issued(word.last_read)) {
        word.read_lanes &= ~(1u << lane);
        word.earlier_lanes &= ~(1u << lane);
        if (word.read_lanes == 0) {
          if (word.earlier_lanes != 0) add_read(word, index, word.earlier_reads());
          word.earlier_lanes = 0;
          word.was_read = false;
        }
      }
      keep_read(word, index, record);
    } else {
      keep_write(word, index, record, [&](const LanesRecord& e) { return (e.record.bytes_mask() & ~mask) == 0; });
    }
  }
}

template <class Words>
void Races<Words>::put(std::size_t index, const AccessRecord& record, Kind kind) {
  AccessedWord& word = word_at(index);
  if (kind == Kind::read) return keep_read(word, index, record);
  add(words.more(index).writes, only(record));
  word.has_more_writes = true;
}

template <class Words>
std::optional<typename Races<Words>::Conflict> Races<Words>::access(Order& order, const Who& who, std::size_t offset,
                                                                    std::size_t bytes, Kind kind, Scope scope, bool wide) {
  std::optional<Conflict> conflict;
  const std::size_t end = offset + bytes;
  for (std::size_t index = offset / 4; index * 4 < end; ++index) {
    AccessedWord& word = word_at(index);
    const std::size_t first = std::max(offset, index * 4) % 4;
    const std::size_t last = std::min(end - index * 4, std::size_t{4});
    const auto mask = static_cast<std::uint8_t>((1u << last) - (1u << first));
    const AccessRecord record(order.block(), order.now(), who.pc, who.thread, mask, scope, wide);

    const auto same_bytes = [&](const AccessRecord& e) { return e.bytes_mask() == mask && e.wide() == wide; };
    const auto both_atomic = [&](const AccessRecord& e) { return in_one_scope(e.scope(), scope, e.block() == order.block()); };
    const auto check = [&](const LanesRecord& lanes, Kind earlier_kind) {
      const AccessRecord& any = lanes.record;
      const auto both = static_cast<std::uint8_t>(any.bytes_mask() & mask);
      if (both == 0 || (both_atomic(any) && same_bytes(any))) return;
      lanes.all([&](const AccessRecord& e) {
        if (order.before(e, who.thread)) return true;
        conflict = {e, earlier_kind, index * 4 + static_cast<std::size_t>(std::countr_zero(both)), both_atomic(e)};
        return false;
      });
    };
    const auto check_all = [&](const AccessRecords& records, Kind earlier_kind) {
      if (records.race_with_none(record)) return;
      for (const LanesRecord& e : records.all) check(e, earlier_kind);
    };
    if (word.has_more_writes) check_all(words.more(index).writes, Kind::write);
    if (word.was_written) check(only(word.last_write), Kind::write);
    if (kind == Kind::read) {
      keep_read(word, index, record);
    } else {
      if (word.has_more_reads) check_all(words.more(index).reads, Kind::read);
      if (word.was_read) {
        check(word.earlier_reads(), Kind::read);
        check(word.last_reads(), Kind::read);
      }
      // What races with a forgotten access must race with this store, too. So only those are forgotten that came before it (or
      // race with it, which was reported), and that later atomics race with no more than with this one.
      const auto covered = [&](const LanesRecord& lanes) {
        const AccessRecord& any = lanes.record;
        if ((any.bytes_mask() & ~mask) != 0 || scope > any.scope() || (scope != Scope::thread && !same_bytes(any)))
          return false;
        return !both_atomic(any) || lanes.all([&](const AccessRecord& e) { return order.before(e, who.thread); });
      };
      keep_write(word, index, record, covered);
    }
  }
  return conflict;
}

template class Races<DenseWords>;
template class Races<SparseWords>;

}  // namespace simt
