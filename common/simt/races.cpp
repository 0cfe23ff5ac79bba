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

void join(SharedKnowledge& into, const SharedKnowledge& other) {
  if (other == nullptr || other == into) return;
  if (into == nullptr) {
    into = other;
    return;
  }
  auto both = std::make_shared<Knowledge>(*into);
  for (const auto& [block, seen] : *other) join((*both)[block], seen);
  into = std::move(both);
}

void join(Passed& into, const Passed& other) {
  join(into.in_block, other.in_block);
  join(into.in_device, other.in_device);
}

bool holds_devices_threads(Scope scope) { return scope >= Scope::device; }

// Neither can be seen half done by the other.
bool both_atomic(Scope a, Scope b, bool in_one_block) {
  return std::min(a, b) >= (in_one_block ? Scope::block : Scope::device);
}

}  // namespace

// ---- order ----

void Order::begin_block(std::uint32_t block, std::size_t threads, Flags* device_flags) {
  block_ = block;
  now_ = 1;
  barrier_ = 0;
  ++generation_;
  threads_.assign(threads, {});
  known_.reset();
  released_ = acquired_ = {};
  with_news_.clear();
  flags_.clear();
  device_flags_ = device_flags;
}

Order::Thread& Order::current(std::uint32_t thread) {
  Thread& t = threads_[thread];
  if (t.generation != generation_) {
    t.generation = generation_;
    t.seen.reset();
    t.known = known_;
    t.released = released_;
    t.acquired = acquired_;
    t.has_news = false;
  }
  return t;
}

void Order::has_news(std::uint32_t thread) {
  if (!std::exchange(current(thread).has_news, true)) with_news_.push_back(thread);
}

bool Order::before(const AccessRecord& earlier, std::uint32_t thread) {
  if (earlier.block() == block_) {
    if (earlier.thread() == thread || earlier.time() <= barrier_) return true;
    const auto& seen = current(thread).seen;
    return seen != nullptr && (*seen)[earlier.thread()] >= earlier.time();
  }
  const SharedKnowledge& known = current(thread).known;
  if (known == nullptr) return false;
  const auto block = known->find(earlier.block());
  if (block == known->end()) return false;
  const auto& [barrier, threads] = block->second;
  const auto found = threads.find(earlier.thread());
  return earlier.time() <= barrier || (found != threads.end() && earlier.time() <= found->second);
}

void Order::full_barrier() {
  for (const std::uint32_t thread : with_news_) {
    join(known_, threads_[thread].known);
    join(released_, threads_[thread].released);
    join(acquired_, threads_[thread].acquired);
  }
  with_news_.clear();
  barrier_ = now_++;
  ++generation_;
}

void Order::join_meeting(Meeting& meeting, std::uint32_t thread) {
  meeting.clocks.resize(threads_.size());
  const Thread& t = current(thread);
  if (t.seen != nullptr && t.seen != meeting.joined_last) {
    join(meeting.clocks, *t.seen);
    meeting.joined_last = t.seen;
  }
  join(meeting.known, t.known);
  join(meeting.released, t.released);
  join(meeting.acquired, t.acquired);
  meeting.clocks[thread] = now_;
}

void Order::arrive(Meeting& meeting, std::uint32_t thread) {
  join_meeting(meeting, thread);
  ++now_;
}

void Order::end(Meeting& meeting, const std::vector<std::uint32_t>& waiting) {
  const auto all_seen = std::make_shared<const Clocks>(std::move(meeting.clocks));
  for (const std::uint32_t thread : waiting) {
    Thread& t = current(thread);
    t.seen = all_seen;
    t.known = meeting.known;
    t.released = meeting.released;
    t.acquired = meeting.acquired;
  }
}

Time Order::meet(const std::vector<std::uint32_t>& threads) {
  Meeting meeting;
  for (const std::uint32_t thread : threads) join_meeting(meeting, thread);
  end(meeting, threads);
  return now_++;
}

void Order::learn(std::uint32_t thread, SharedKnowledge& what) {
  if (what == nullptr) return;
  Thread& t = current(thread);
  if (const auto own = what->find(block_); own != what->end() && own->second.barrier == barrier_) {
    Clocks seen = t.seen == nullptr ? Clocks() : *t.seen;
    seen.resize(threads_.size());
    for (const auto& [other, time] : own->second.threads) seen[other] = std::max(seen[other], time);
    t.seen = std::make_shared<const Clocks>(std::move(seen));
  }
  join(t.known, what);
  what.reset();
}

void Order::fence(std::uint32_t thread, Scope scope) {
  Thread& t = current(thread);
  learn(thread, t.acquired.in_block);
  if (holds_devices_threads(scope)) learn(thread, t.acquired.in_device);

  auto all = t.known == nullptr ? std::make_shared<Knowledge>() : std::make_shared<Knowledge>(*t.known);
  Seen& own = (*all)[block_];
  own = {barrier_, {}};
  for (std::size_t i = 0; t.seen != nullptr && i < t.seen->size(); ++i) {
    if (const Time time = (*t.seen)[i]; time > barrier_) own.threads[static_cast<std::uint16_t>(i)] = time;
  }
  own.threads[static_cast<std::uint16_t>(thread)] = now_++;
  t.released.in_block = all;
  if (holds_devices_threads(scope)) t.released.in_device = all;
  has_news(thread);
}

Flag* Order::flag_at(std::uintptr_t address) {
  if (!Heap::contains(address)) return &flags_[address];
  return device_flags_ == nullptr ? nullptr : &(*device_flags_)[address];
}

void Order::flag_stored(std::uint32_t thread, std::uintptr_t address, Scope scope, bool also_read) {
  Flag* flag = flag_at(address);
  if (flag == nullptr) return;
  if (!also_read) *flag = {};  // a plain store ends what earlier ones released
  const Passed& released = current(thread).released;
  if (released.in_block != nullptr) join(flag->of_block[block_], released.in_block);
  if (holds_devices_threads(scope)) join(flag->of_device, released.in_device);
}

void Order::flag_read(std::uint32_t thread, std::uintptr_t address, Scope scope) {
  Flag* flag = flag_at(address);
  if (flag == nullptr) return;
  Passed& acquired = current(thread).acquired;
  if (const auto found = flag->of_block.find(block_); found != flag->of_block.end()) join(acquired.in_block, found->second);
  if (holds_devices_threads(scope)) join(acquired.in_device, flag->of_device);
  has_news(thread);
}

// ---- accesses ----

// Of a thread's reads of the same bytes only the last is needed: forgets the others.
template <class Words>
void Races<Words>::compact(std::vector<AccessRecord>& reads) {
  ++compactions_;
  slots_.resize(std::max(slots_.size(), std::bit_ceil(2 * reads.size())));
  const auto seen_before = [&](const AccessRecord& read) {
    const std::uint64_t key = read.key();
    std::size_t at = (key ^ key >> 29) * 0x9e3779b97f4a7c15u >> 20;
    for (;; ++at) {
      Slot& slot = slots_[at & (slots_.size() - 1)];
      if (slot.compaction == compactions_ && slot.key != key) continue;
      return std::exchange(slot, {key, compactions_}).compaction == compactions_;
    }
  };
  std::reverse(reads.begin(), reads.end());  // the latest first
  std::erase_if(reads, seen_before);
  std::reverse(reads.begin(), reads.end());
}

template <class Words>
std::optional<typename Races<Words>::Conflict> Races<Words>::access(Order& order, const Who& who, std::size_t offset,
                                                                    std::size_t bytes, Kind kind, Scope scope) {
  std::optional<Conflict> conflict;
  const std::size_t end = offset + bytes;
  for (std::size_t index = offset / 4; index * 4 < end; ++index) {
    AccessedWord& word = words[index];
    if (Words::of_one_block && word.generation != order.generation()) {
      if (word.has_more) words.more(index).forget();
      word = {.generation = order.generation()};
    }
    const std::size_t first = std::max(offset, index * 4) % 4;
    const std::size_t last = std::min(end - index * 4, std::size_t{4});
    const auto mask = static_cast<std::uint8_t>((1u << last) - (1u << first));
    const AccessRecord record(order.block(), order.now(), who.pc, who.thread, mask, scope);

    const auto check = [&](const AccessRecord& e, Kind earlier_kind) {
      if ((e.bytes_mask() & mask) == 0 || both_atomic(e.scope(), scope, e.block() == order.block()) ||
          order.before(e, who.thread))
        return;
      const auto both = static_cast<std::uint8_t>(e.bytes_mask() & mask);
      conflict = {e, earlier_kind, index * 4 + static_cast<std::size_t>(std::countr_zero(both))};
    };
    if (word.has_more) {
      for (const AccessRecord& e : words.more(index).writes) check(e, Kind::write);
    }
    if (kind == Kind::read) {
      // Of a thread that reads the same bytes again and again, the last time is enough.
      if (word.was_read && word.last_read.key() != record.key()) {
        MoreOfWord& more = words.more(index);
        more.reads.push_back(word.last_read);
        if (more.reads.size() > more.compact_above) {
          compact(more.reads);
          more.compact_above = 2 * more.reads.size() + 64;
        }
        word.has_more = true;
      }
      word.last_read = record;
      word.was_read = true;
    } else {
      MoreOfWord& more = words.more(index);
      for (const AccessRecord& e : more.reads) check(e, Kind::read);
      if (word.was_read) check(word.last_read, Kind::read);
      // What races with a forgotten access must race with this store, too. So only those are forgotten that came before it (or
      // race with it, which was reported), and that later atomics race with no more than with this one.
      const auto covered = [&](const AccessRecord& e) {
        if ((e.bytes_mask() & ~mask) != 0 || scope > e.scope()) return false;
        return !both_atomic(e.scope(), scope, e.block() == order.block()) || order.before(e, who.thread);
      };
      std::erase_if(more.reads, covered);
      if (word.was_read && covered(word.last_read)) word.was_read = false;
      std::erase_if(more.writes, covered);
      more.writes.push_back(record);
      word.has_more = true;
    }
  }
  return conflict;
}

template class Races<DenseWords>;
template class Races<SparseWords>;

}  // namespace simt
