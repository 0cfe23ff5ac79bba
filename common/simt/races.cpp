#include "common/simt/races.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace simt {

void SharedRaces::begin_block(std::size_t threads, std::size_t shared_bytes) {
  ++generation_;  // what earlier blocks did races with nothing
  thread_count_ = threads;
  if (threads_.size() < threads) threads_.resize(threads);
  const std::size_t words = (shared_bytes + 3) / 4;
  if (words_.size() < words) words_.resize(words);
}

SharedRaces::Thread& SharedRaces::current(int thread) {
  Thread& t = threads_[static_cast<std::size_t>(thread)];
  if (t.generation != generation_) {
    t.generation = generation_;
    t.seen.clear();
    t.released.clear();
    t.acquired.clear();
  }
  return t;
}

void SharedRaces::join(Clocks& into, const Clocks& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

bool SharedRaces::ordered(const Record& earlier, int thread) {
  if (earlier.thread == thread) return true;
  const Clocks& seen = current(thread).seen;
  return earlier.thread < seen.size() && seen[earlier.thread] >= earlier.clock;
}

std::optional<SharedRaces::Conflict> SharedRaces::access(int thread, std::size_t offset, std::size_t bytes, Kind kind,
                                                         bool atomic, const void* pc) {
  std::optional<Conflict> conflict;
  const std::uint32_t clock = current(thread).clock;
  const std::size_t end = offset + bytes;
  for (std::size_t index = offset / 4; index * 4 < end; ++index) {
    Word& word = words_[index];
    if (word.generation != generation_) {
      word.generation = generation_;
      word.reads.clear();
      word.writes.clear();
      word.compact_above = 64;
    }
    const std::size_t first = std::max(offset, index * 4) % 4;
    const std::size_t last = std::min(end - index * 4, std::size_t{4});
    const auto mask = static_cast<std::uint8_t>((1u << last) - (1u << first));
    const Record record{static_cast<std::uint16_t>(thread), mask, atomic, clock, pc};

    const auto check = [&](const std::vector<Record>& earlier, Kind earlier_kind) {
      for (const Record& e : earlier) {
        if ((e.bytes_mask & mask) == 0 || (e.atomic && atomic) || ordered(e, thread)) continue;
        const auto both = static_cast<std::uint8_t>(e.bytes_mask & mask);
        conflict = {e, earlier_kind, index * 4 + static_cast<std::size_t>(std::countr_zero(both))};
      }
    };
    check(word.writes, Kind::write);
    if (kind == Kind::read) {
      // Of a thread that reads the same bytes again and again, the last time is enough.
      if (!word.reads.empty() && same_but_for_time(word.reads.back(), record)) {
        word.reads.back() = record;
      } else {
        word.reads.push_back(record);
        if (word.reads.size() > word.compact_above) {
          compact(word.reads);
          word.compact_above = 2 * word.reads.size() + 64;
        }
      }
    } else {
      check(word.reads, Kind::read);
      // A later access that races with one of the forgotten ones races with this store too: unless this store is atomic, which
      // later atomics do not race with, while they do with a plain access.
      const auto covered = [&](const Record& e) { return (e.bytes_mask & ~mask) == 0 && (e.atomic || !atomic); };
      std::erase_if(word.reads, covered);
      std::erase_if(word.writes, covered);
      word.writes.push_back(record);
    }
  }
  return conflict;
}

bool SharedRaces::same_but_for_time(const Record& a, const Record& b) {
  return a.thread == b.thread && a.bytes_mask == b.bytes_mask && a.atomic == b.atomic;
}

// Of reads that differ in nothing but their time, keeps the last.
void SharedRaces::compact(std::vector<Record>& reads) {
  std::sort(reads.begin(), reads.end(), [](const Record& a, const Record& b) {
    return std::tuple(a.thread, a.bytes_mask, a.atomic, b.clock) < std::tuple(b.thread, b.bytes_mask, b.atomic, a.clock);
  });  // the latest first
  reads.erase(std::unique(reads.begin(), reads.end(), same_but_for_time), reads.end());
}

void SharedRaces::warp_barrier(int first_thread, std::uint32_t mask) {
  Clocks joined(thread_count_);
  for (int lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    Thread& t = current(first_thread + lane);
    join(joined, t.seen);
    const auto self = static_cast<std::size_t>(first_thread) + static_cast<std::size_t>(lane);
    joined[self] = t.clock++;
  }
  for (int lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1) current(first_thread + lane).seen = joined;
  }
}

void SharedRaces::fence(int thread) {
  Thread& t = current(thread);
  join(t.seen, t.acquired);
  t.released = t.seen;
  if (t.released.size() <= static_cast<std::size_t>(thread)) t.released.resize(static_cast<std::size_t>(thread) + 1);
  t.released[static_cast<std::size_t>(thread)] = t.clock++;
}

void SharedRaces::flag_stored(int thread, std::uintptr_t address, bool also_read) {
  if (flags_generation_ != generation_) flags_.clear();
  flags_generation_ = generation_;
  Clocks& flag = flags_[address];
  if (!also_read) flag.clear();  // a plain store ends what earlier ones released
  join(flag, current(thread).released);
}

void SharedRaces::flag_read(int thread, std::uintptr_t address) {
  if (flags_generation_ != generation_) return;
  if (const auto flag = flags_.find(address); flag != flags_.end()) join(current(thread).acquired, flag->second);
}

}  // namespace simt
