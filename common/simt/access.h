// Every memory access of a kernel passes through here, once, before it happens: observe() is the one place where checks look.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/simt/engine.h"
#include "common/simt/races.h"

namespace simt {

// What lies at an address of device or shared memory, in the program's own words.
std::string describe_target(const Block& block, std::uintptr_t address);

struct Access {
  std::uintptr_t address;
  std::uint32_t bytes;
  Kind kind;
  bool aligned;                 // must be a multiple of its size, as every access of a GPU must
  const void* pc;               // return address of the hook: names the line
  Scope scope = Scope::thread;  // in which it is atomic
  bool counted = false;         // as part of something else, or not to be
  bool wide = false;            // one atomic of 8 bytes, not two of 4
};

// The slow path: the access is wrong. False if it cannot take part in a race.
bool observe_fault(Lane& lane, const Access& access);
// The slow path where it goes to neither device memory nor the block's shared memory: perhaps to that of another block of the
// cluster.
void observe_elsewhere(Lane& lane, const Access& access);
// Looks for races of an access that is otherwise sound.
void observe_shared(Lane& lane, const Access& access);
void observe_device(Lane& lane, const Access& access);
// A store to shared memory that is no bulk copy's: these must be fenced for one.
void note_generic_store(Lane& lane, const Access& store);
// The two ends of a cp.async, when it is issued and when its thread has waited for it. False if it is so wrong that nothing can
// be copied.
bool observe_async(Lane& lane, const AsyncOp& op);
void observe_landing(Lane& lane, const AsyncOp& op);
// The same of an operation that a thread has waited for at an mbarrier.
void observe_done(Block& block, const AsyncOp& op, std::uint16_t actor, Time time);
// The source of a copy: read at some time from now to the wait, and until then nobody may store there.
void observe_source(Lane& lane, const Access& source);
// The far end of a bulk store, when its thread has waited; or when its block has ended, and nobody ever could.
void observe_bulk_written(Lane& lane, const AsyncOp& op);
void observe_never_waited(Block& block, const AsyncOp& op);
// An access to eight bytes of shared memory that are kept in no record, and an earlier one that nothing orders before it.
void report_race(Lane& lane, const Access& access, const AccessRecord& earlier, Kind earlier_kind);
// A row of ldmatrix or stmatrix, which must lie in shared memory; and a part of it, read by the lane that gets it, or written
// by the lane that holds it. What stmatrix stores counts as written from the moment when all lanes have come.
void observe_matrix_row(Lane& lane, const Access& row);
void observe_matrix_part(Lane& lane, const Access& part);
void observe_matrix_row_stored(Lane& lane, std::uintptr_t row);
// An atomic without a result, which must go to device memory. False if nothing can be added there.
bool observe_reduction(Lane& lane, const Access& access);
void observe_division_by_zero(Lane& lane, const void* pc);
// Waits until the warp has issued what the lane has accessed.
void await_issued(Lane& lane);
// While counting: keeps the access until the warp issues it, and waits for that now and then.
[[gnu::always_inline]] inline void note_access(Lane& lane, PendingAccess access) {
  access.lane = static_cast<std::uint8_t>(lane.lane());
  lane.accesses.add(access);
  if (lane.accesses.full()) await_issued(lane);
}
// The same for an ordinary access. One of more than 16 bytes, a copy of a struct, is as many as it has words.
void note_access_of(Lane& lane, const Access& access, Form form);
// The same for an instruction that is no access, in the traced warp; elsewhere nothing happens.
[[gnu::always_inline]] inline void note_traced(Lane& lane, const char* op, int operand, const void* pc) {
  if (lane.traced) [[unlikely]]
    note_access(lane, {.kind = Kind::read,
                       .form = Form::global,
                       .operand = static_cast<std::int16_t>(std::min(operand, 32767)),
                       .pc = pc,
                       .op = op});
}

// Are all `bytes` shadow bytes marked with all bits of `mask`, and none with a bit of `without`? In one word where the size is
// a power of two, as it nearly always is.
[[gnu::always_inline]] inline bool all_marked(const std::uint8_t* shadow, std::uint32_t bytes, std::uint8_t mask,
                                              std::uint8_t without = 0) {
  constexpr std::uint64_t each_byte = 0x0101010101010101u;
  const auto test = [&](auto word, std::size_t from = 0) {
    const auto wanted = static_cast<decltype(word)>(each_byte * mask);
    const auto looked_at = static_cast<decltype(word)>(each_byte * (mask | without));
    std::memcpy(&word, shadow + from, sizeof(word));
    return (word & looked_at) == wanted;
  };
  switch (bytes) {
    case 1:
      return test(std::uint8_t{});
    case 2:
      return test(std::uint16_t{});
    case 4:
      return test(std::uint32_t{});
    case 8:
      return test(std::uint64_t{});
    case 16:
      return test(std::uint64_t{}) && test(std::uint64_t{}, 8);
    default:
      return std::all_of(shadow, shadow + bytes, [&](std::uint8_t byte) { return (byte & (mask | without)) == mask; });
  }
}

// The same on several workers at once, and faster: where there may be a race, the launch runs again, in order.
[[gnu::always_inline]] inline void observe_marks(Lane& lane, const Access& access) {
  if (Marks::suspicious(access.address, access.bytes, access.kind == Kind::write, access.scope, access.wide, lane.marker,
                        access.pc)) [[unlikely]] {
    lane.block->run_again(lane);
  }
}

// In a dependent launch: is the access ordered behind the launches before?
[[gnu::always_inline]] inline void observe_behind_earlier(Lane& lane, const Access& access) {
  const EarlierLaunches* const earlier = lane.block->run().earlier;
  if (earlier != nullptr && (!lane.waited || earlier->any_lost())) [[unlikely]]
    observe_earlier(lane, access);
}

// What the shadow of its bytes says of an access. False if it cannot take part in a race.
[[gnu::always_inline]] inline bool observe_bytes(Lane& lane, const Access& access, std::uint8_t* shadow) {
  const bool read = access.kind == Kind::read;
  const std::uint8_t needed = read ? allocated | written : allocated;
  const std::uint8_t wrong = read ? being_written | is_mbarrier : being_read | being_written | is_mbarrier;
  const bool aligned = !access.aligned || access.address % access.bytes == 0;
  if (!aligned || !all_marked(shadow, access.bytes, needed, wrong)) [[unlikely]] {
    return observe_fault(lane, access);
  }
  if (!read) {
    std::memset(shadow, shadow_after_store, access.bytes);
    lane.stored = true;
  }
  return true;
}

[[gnu::always_inline]] inline void observe(Lane& lane, const Access& access) {
  if (access.address - lane.stack_low < StackPool::stack_bytes) {  // registers and local arrays
    if (lane.queue.has_place_in(access.address, access.bytes)) await_products(lane);
    return;
  }
  std::uint8_t* shadow;
  bool shared = false;
  if (Heap::contains(access.address)) {
    shadow = Heap::shadow(access.address);
  } else if (access.address - lane.arena_low < SharedArena::total) {
    shadow = lane.arena_shadow + (access.address - lane.arena_low);
    shared = true;
  } else {
    observe_elsewhere(lane, access);
    return;
  }
  if (lane.counting && !access.counted) note_access_of(lane, access, shared ? Form::shared : Form::global);
  if (!observe_bytes(lane, access, shadow)) return;
  const Run& run = lane.block->run();
  if (!run.races) return;
  if (shared) return observe_shared(lane, access);
  observe_behind_earlier(lane, access);
  if (run.ordered) {
    observe_device(lane, access);
  } else {
    observe_marks(lane, access);
  }
}

}  // namespace simt
