#include "common/simt/rows.h"

#include <algorithm>

namespace simt {
namespace {

std::uint16_t thread_of(Halves halves, std::uint16_t first, unsigned half) {
  switch (halves) {
    case Halves::of_one:
      return first;
    case Halves::of_pairs:
      return static_cast<std::uint16_t>(first + half / 2);
    case Halves::of_columns:
      return static_cast<std::uint16_t>(first + 4 * half);
  }
  return first;
}

}  // namespace

void SharedRaces::reserve(std::size_t bytes) {
  const std::size_t count = (bytes + row_bytes - 1) / row_bytes;
  if (rows_.size() < count) rows_.resize(count);
  words_.words.reserve(4 * count);
}

std::optional<SharedRaces::Conflict> SharedRaces::any_access(Order& order, const Who& who, std::size_t offset,
                                                             std::size_t bytes, Kind kind, Scope scope, bool wide) {
  if (bytes == row_bytes && offset % row_bytes == 0 && scope == Scope::thread &&
      touch_row(order, who, offset, kind, Halves::of_one))
    return {};
  for (std::size_t index = offset / row_bytes; index * row_bytes < offset + bytes; ++index) {
    if (!rows_[index].by_word || rows_[index].generation != words_.words.generation) keep_by_word(index);
  }
  return words_.access(order, who, offset, bytes, kind, scope, wide);
}

void SharedRaces::stored(Order& order, const Who& actor, Time time, std::size_t offset, std::size_t bytes) {
  const std::size_t end = offset + bytes;
  for (std::size_t index = offset / row_bytes; index * row_bytes < end; ++index) {
    Row& row = rows_[index];
    const std::size_t from = std::max(offset, index * row_bytes), to = std::min(end, (index + 1) * row_bytes);
    const bool by_word = row.by_word && row.generation == words_.words.generation;
    if (!by_word && to - from == row_bytes) {  // none of the earlier accesses counts any more
      row.generation = words_.words.generation;
      row.reads = 0;
      row.by_word = false;
      row.was_written = true;
      row.write = AccessRecord(order.block(), time | asynchronous, actor.pc, actor.thread,
                               static_cast<std::uint8_t>(Halves::of_one), Scope::thread, false);
      continue;
    }
    if (!by_word) keep_by_word(index);
    words_.done(order, actor, time, 0, from, to - from, Kind::write);
  }
}

bool SharedRaces::touch_row(Order& order, const Who& first, std::size_t offset, Kind kind, Halves halves) {
  const std::size_t index = offset / row_bytes;
  Row& row = rows_[index];
  const AccessRecord record(order.block(), order.now(), first.pc, first.thread, static_cast<std::uint8_t>(halves),
                            Scope::thread, false);
  if (row.generation != words_.words.generation) {
    row.generation = words_.words.generation;
    row.reads = 0;
    row.was_written = row.by_word = false;
  }
  if (row.by_word) return false;
  const auto reads = row.read.begin(), end = reads + row.reads;
  bool kept_by_word = row.was_written && may_race(order, row.write, record);
  if (kind == Kind::read) {
    const auto same = std::find_if(reads, end, [&](const AccessRecord& e) { return e.key() == record.key(); });
    if (same != end) {  // of a thread's reads the last is enough
      std::copy(same + 1, end, same);
      --row.reads;
    } else {
      kept_by_word |= row.reads == Row::most_reads;
    }
  } else {
    kept_by_word |= std::any_of(reads, end, [&](const AccessRecord& e) { return may_race(order, e, record); });
  }
  if (kept_by_word) {
    keep_by_word(index);
    return false;
  }
  if (kind == Kind::read) {
    row.read[row.reads++] = record;
  } else {  // what races with an access before this one races with this one, too
    row.write = record;
    row.was_written = true;
    row.reads = 0;
  }
  return true;
}

// False only if surely not: the threads are the same, or saw what the earlier ones did.
bool SharedRaces::may_race(Order& order, const AccessRecord& earlier, const AccessRecord& record) {
  if (earlier.key() == record.key()) return false;
  for (unsigned half = 0; half < 8; ++half) {
    const AccessRecord of_half(earlier.block(), earlier.time(), earlier.pc(),
                               thread_of(halves_of(earlier), earlier.thread(), half), 0, Scope::thread, false);
    if (!order.before(of_half, thread_of(halves_of(record), record.thread(), half))) return true;
  }
  return false;
}

// From now on, until all before is forgotten, the row's words are looked at one by one.
void SharedRaces::keep_by_word(std::size_t index) {
  Row& row = rows_[index];
  if (row.generation == words_.words.generation) {
    const auto put = [&](const AccessRecord& record, Kind kind) {
      const Halves halves = halves_of(record);
      for (unsigned half = 0; half < 8; ++half) {
        const auto thread = thread_of(halves, record.thread(), half);
        const bool both = halves != Halves::of_columns;  // halves of the word are the same thread's
        if (both && half % 2 == 1) continue;
        const auto mask = static_cast<std::uint8_t>(both ? 15 : half % 2 == 0 ? 3 : 12);
        words_.put(4 * index + half / 2,
                   AccessRecord(record.block(), record.time(), record.pc(), thread, mask, Scope::thread, false), kind);
      }
    };
    if (row.was_written) put(row.write, Kind::write);
    for (unsigned i = 0; i < row.reads; ++i) put(row.read[i], Kind::read);
  }
  row.generation = words_.words.generation;
  row.by_word = true;
}

}  // namespace simt
