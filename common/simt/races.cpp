#include "common/simt/races.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace simt {
namespace {

void join(Clocks& into, const Clocks& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

bool same_but_for_time(const AccessRecord& a, const AccessRecord& b) {
  return a.actor == b.actor && a.bytes_mask == b.bytes_mask && a.atomic == b.atomic;
}

}  // namespace

template <class Words>
void Races<Words>::begin_block(std::size_t actors) {
  ++generation_;
  actor_count_ = actors;
  if (actors_.size() < actors) actors_.resize(actors);
}

template <class Words>
typename Races<Words>::Actor& Races<Words>::current(std::uint32_t actor) {
  Actor& a = actors_[actor];
  if (a.generation != generation_) {
    a.generation = generation_;
    a.seen.reset();
    a.released.clear();
    a.acquired.clear();
  }
  return a;
}

// Of an actor's reads of the same bytes only the last is needed: forgets the others.
template <class Words>
void Races<Words>::compact(std::vector<AccessRecord>& reads) {
  compacted_.resize(actor_count_ * 32);
  ++compactions_;
  std::reverse(reads.begin(), reads.end());  // the latest first
  std::erase_if(reads, [&](const AccessRecord& read) {
    const std::size_t like = read.actor * 32u + read.bytes_mask * 2u + read.atomic;
    return std::exchange(compacted_[like], compactions_) == compactions_;
  });
  std::reverse(reads.begin(), reads.end());
}

template <class Words>
bool Races<Words>::ordered(const AccessRecord& earlier, std::uint32_t actor) {
  if (earlier.actor == actor) return true;
  const auto& seen = current(actor).seen;
  return seen != nullptr && (*seen)[earlier.actor] >= earlier.clock;
}

template <class Words>
std::optional<typename Races<Words>::Conflict> Races<Words>::access(const Who& who, std::size_t offset, std::size_t bytes,
                                                                    Kind kind, bool atomic) {
  std::optional<Conflict> conflict;
  const std::uint32_t clock = current(who.actor).clock;
  const std::size_t end = offset + bytes;
  for (std::size_t index = offset / 4; index * 4 < end; ++index) {
    AccessedWord& word = words[index];
    if (word.generation != generation_) {
      word.generation = generation_;
      word.reads.clear();
      word.writes.clear();
      word.compact_above = 64;
    }
    const std::size_t first = std::max(offset, index * 4) % 4;
    const std::size_t last = std::min(end - index * 4, std::size_t{4});
    const auto mask = static_cast<std::uint8_t>((1u << last) - (1u << first));
    const AccessRecord record{who.actor, clock, who.pc, who.thread, mask, atomic};

    const auto check = [&](const std::vector<AccessRecord>& earlier, Kind earlier_kind) {
      for (const AccessRecord& e : earlier) {
        if ((e.bytes_mask & mask) == 0 || (e.atomic && atomic) || ordered(e, who.actor)) continue;
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
      const auto covered = [&](const AccessRecord& e) { return (e.bytes_mask & ~mask) == 0 && (e.atomic || !atomic); };
      std::erase_if(word.reads, covered);
      std::erase_if(word.writes, covered);
      word.writes.push_back(record);
    }
  }
  return conflict;
}

template <class Words>
void Races<Words>::arrive(Meeting& meeting, std::uint32_t actor) {
  meeting.clocks.resize(actor_count_);
  Actor& a = current(actor);
  if (a.seen != nullptr && a.seen != meeting.joined_last) {
    join(meeting.clocks, *a.seen);
    meeting.joined_last = a.seen;
  }
  meeting.clocks[actor] = a.clock++;
}

template <class Words>
void Races<Words>::end(Meeting& meeting, const std::vector<std::uint32_t>& waiting) {
  const auto all_seen = std::make_shared<const Clocks>(std::move(meeting.clocks));
  for (const std::uint32_t actor : waiting) current(actor).seen = all_seen;
}

template <class Words>
void Races<Words>::fence(std::uint32_t actor) {
  Actor& a = current(actor);
  Clocks seen = a.seen == nullptr ? Clocks() : *a.seen;
  join(seen, a.acquired);
  seen.resize(actor_count_);
  a.released = seen;
  a.released[actor] = a.clock++;
  a.seen = std::make_shared<const Clocks>(std::move(seen));
}

template <class Words>
void Races<Words>::flag_stored(std::uint32_t actor, std::uintptr_t address, bool also_read) {
  if (flags_generation_ != generation_) flags_.clear();
  flags_generation_ = generation_;
  Clocks& flag = flags_[address];
  if (!also_read) flag.clear();  // a plain store ends what earlier ones released
  join(flag, current(actor).released);
}

template <class Words>
void Races<Words>::flag_read(std::uint32_t actor, std::uintptr_t address) {
  if (flags_generation_ != generation_) return;
  if (const auto flag = flags_.find(address); flag != flags_.end()) join(current(actor).acquired, flag->second);
}

template class Races<DenseWords>;
template class Races<SparseWords>;

}  // namespace simt
