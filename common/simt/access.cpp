#include "common/simt/access.h"

#include <link.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>

#include "common/simt/cluster.h"
#include "common/simt/collectives.h"
#include "common/simt/cuda.h"
#include "common/simt/symbols.h"

namespace simt {
namespace {

// Code and data of the program itself: constants live there, and kernels may read them.
bool in_program_image(std::uintptr_t address) {
  struct Range {
    std::uintptr_t begin, end;
  };
  static const std::vector<Range> ranges = [] {
    std::vector<Range> found;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* list) {
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD) continue;
            const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
            static_cast<std::vector<Range>*>(list)->push_back({begin, begin + segment.p_memsz});
          }
          return 0;
        },
        &found);
    return found;
  }();
  return std::any_of(ranges.begin(), ranges.end(), [&](Range r) { return address >= r.begin && address < r.end; });
}

// threadIdx and its like.
bool is_builtin(std::uintptr_t address) {
  const auto within = [&](const auto& variable) {
    return address - reinterpret_cast<std::uintptr_t>(&variable) < sizeof(variable);
  };
  return within(threadIdx) || within(blockIdx) || within(blockDim) || within(gridDim);
}

const char* verb(Kind kind) { return kind == Kind::read ? "read" : "write"; }

std::string amount(const Access& access) {
  return std::string(verb(access.kind)) + " of " + std::to_string(access.bytes) + " bytes";
}

std::string describe_target(const Lane& lane, std::uintptr_t address) { return describe_target(*lane.block, address); }

void report(Lane& lane, std::string_view kind, const void* pc, const Run::MakeText& text) {
  const Unobserved unobserved;
  lane.block->run().report(std::string(kind), place_of(pc), pc,
                           [&] { return text() + "\n  by " + lane.block->describe(lane); });
}

}  // namespace

namespace {

// Whose shared memory it is, of the lane's cluster; null: nobody's.
Block* owner_of(Lane& lane, std::uintptr_t address) {
  return lane.block->arena().contains(address) ? lane.block : lane.block->cluster().owner_of(address);
}

// Of device memory, or shared memory of the cluster.
std::uint8_t& shadow_of(Lane& lane, std::uintptr_t address) {
  return Heap::contains(address) ? *Heap::shadow(address) : *owner_of(lane, address)->arena().shadow(address);
}

// The first byte of the access that lacks a mark: it may be the last of a vector, not its first.
std::uintptr_t first_without(Lane& lane, const Access& access, std::uint8_t mark) {
  std::uintptr_t address = access.address;
  while (address < access.address + access.bytes && (shadow_of(lane, address) & mark)) ++address;
  return address;
}

// The first byte of the access that has a mark.
std::uintptr_t first_with(Lane& lane, const Access& access, std::uint8_t mark) {
  std::uintptr_t address = access.address;
  while (address < access.address + access.bytes && !(shadow_of(lane, address) & mark)) ++address;
  return address;
}

// Neither device nor shared memory, nor the lane's own stack. Constants, parameters and built-in variables may be read; a GPU
// would stop at anything else.
void observe_no_memory(Lane& lane, const Access& access) {
  const Unobserved unobserved;
  const Launch& launch = lane.block->run().launch;
  const std::uintptr_t address = access.address;
  if (access.kind == Kind::read) {
    if (is_builtin(address) || in_program_image(address)) return;
    if (address - reinterpret_cast<std::uintptr_t>(launch.params) < launch.params_bytes) return;
  }
  std::ostringstream text;
  text << amount(access) << " at 0x" << std::hex << address << ", "
       << (lane.block->stacks().contains(address) ? "a local variable of another thread"
                                                  : "which is neither device memory nor shared memory");
  report(lane, std::string("wild ") + verb(access.kind), access.pc, [&] { return text.str(); });
  lane.block->stop(lane);
}

// A store to what an asynchronous operation, of any block, still reads.
void report_reader(Lane& lane, const Access& store) {
  Run& run = lane.block->run();
  const bool device = Heap::contains(store.address);
  for (Block* const block : device ? run.open : std::vector{owner_of(lane, store.address)}) {
    AsyncOp* const other = block->async_ops().find_reader({store.address, store.bytes});
    if (other == nullptr) continue;
    other->source_stored = true;
    const std::string place = place_of(store.pc);
    const std::string copy_place = place_of(other->pc);
    const auto text = [&] {
      return "write to " + describe_target(lane, std::max(store.address, other->reads.begin)) +
             ", from which an asynchronous copy is under way\n  copied at " + with_callers(copy_place, other->pc) + " by " +
             describe_thread(run.launch, block->linear_index(), other->issuer) +
             ", which has not waited for it\n  written at " + with_callers(place, store.pc) + " by " +
             lane.block->describe(lane);
    };
    run.report("race", place, store.pc, text, copy_place);
  }
}

// An access to what an asynchronous operation writes, of the block whose memory it is. False if there is none: the mark is of
// one that is over.
bool report_writer(Lane& lane, const Access& access) {
  const Unobserved unobserved;
  Block& block = *lane.block;
  const bool of_device = Heap::contains(access.address);
  Block* of = of_device ? &block : owner_of(lane, access.address);
  const AsyncOp* other = of->async_ops().find_writer({access.address, access.bytes});
  for (std::size_t i = 0; other == nullptr && of_device && i < block.run().open.size(); ++i) {
    of = block.run().open[i];
    other = of->async_ops().find_writer({access.address, access.bytes});
  }
  if (other == nullptr) return false;
  const std::string place = place_of(access.pc);
  const std::string copy_place = place_of(other->pc);
  const auto text = [&] {
    return std::string(access.kind == Kind::read ? "read of " : "write to ") +
           describe_target(lane, std::max(access.address, other->writes.begin)) +
           ", to which an asynchronous copy is under way\n  copied at " + with_callers(copy_place, other->pc) + " by " +
           describe_thread(block.run().launch, of->linear_index(), other->issuer) + ", which has not waited for it\n  " +
           (access.kind == Kind::write ? "written" : "read") + " at " + with_callers(place, access.pc) + " by " +
           lane.block->describe(lane);
  };
  block.run().report("race", place, access.pc, text, copy_place);
  return true;
}

}  // namespace

std::string describe_target(const Block& block, std::uintptr_t address) {
  const SharedArena& arena = block.arena();
  if (!arena.contains(address)) {
    const Block* const owner = block.cluster().owner_of(address);
    return owner == nullptr ? describe_address(address) : describe_target(*owner, address) + " of " + owner->describe();
  }
  if (address < arena.begin()) return std::to_string(arena.begin() - address) + " bytes before the start of shared memory";
  const std::size_t offset = address - arena.begin();
  if (offset >= arena.bytes()) {
    return std::to_string(offset - arena.bytes()) + " bytes past the end of shared memory (" + std::to_string(arena.bytes()) +
           " bytes)";
  }
  return block.shared_type() == nullptr ? "offset " + std::to_string(offset) + " of shared memory"
                                        : member_name(block.shared_type(), offset);
}

bool observe_fault(Lane& lane, const Access& access) {
  const Unobserved unobserved;
  if (!Heap::contains(access.address) && owner_of(lane, access.address) == nullptr) {
    observe_no_memory(lane, access);
    return false;
  }
  const std::uintptr_t end = access.address + access.bytes;
  if (const auto outside = first_without(lane, access, allocated); outside < end) {
    report(lane, std::string("out-of-bounds ") + verb(access.kind), access.pc,
           [&] { return amount(access) + ", " + describe_target(lane, outside); });
    return false;  // red zones lie there: going on harms nothing and may show more
  }
  if (const auto barrier = first_with(lane, access, is_mbarrier); barrier < end) {
    report(lane, "mbarrier misuse", access.pc,
           [&] { return amount(access) + " at " + describe_target(lane, barrier) + ", which is an mbarrier"; });
    return false;
  }
  if (access.aligned && access.address % access.bytes != 0) {
    report(lane, std::string("misaligned ") + verb(access.kind), access.pc, [&] {
      return amount(access) + " at " + describe_target(lane, access.address) + ", not a multiple of " +
             std::to_string(access.bytes);
    });
  }
  std::uint8_t* const shadow = &shadow_of(lane, access.address);
  const bool races = lane.block->run().races;
  if (races && !all_marked(shadow, access.bytes, 0, being_written) && report_writer(lane, access)) {
    if (access.kind == Kind::write) {  // the bytes that no copy writes count as stored
      for (std::uint32_t i = 0; i < access.bytes; ++i) {
        if (!(shadow[i] & being_written)) shadow[i] = shadow_after_store;
      }
      lane.stored = true;
    }
    return false;
  }
  if (access.kind == Kind::write) {
    if (races && !all_marked(shadow, access.bytes, 0, being_read)) report_reader(lane, access);
    for (std::uintptr_t address = access.address; address < end; ++address) {
      shadow_of(lane, address) = shadow_after_store;
    }
    lane.stored = true;
  } else if (const auto unwritten = first_without(lane, access, written); unwritten < end) {
    report(lane, "uninitialised read", access.pc,
           [&] { return amount(access) + " from " + describe_target(lane, unwritten) + ", which nothing has written"; });
  }
  return true;
}

void observe_division_by_zero(Lane& lane, const void* pc) {
  report(lane, "division by zero", pc, [] { return std::string("an integer division, or its remainder, by zero"); });
  lane.block->stop(lane);
}

void await_issued(Lane& lane) {
  if (!lane.is_ahead()) return;
  lane.state = Lane::State::too_far_ahead;
  lane.wait();
}

void note_access_of(Lane& lane, const Access& access, Form form) {
  const auto piece = static_cast<std::uint8_t>(access.bytes <= 16 ? access.bytes : access.bytes % 4 == 0 ? 4 : 1);
  for (std::uint32_t from = 0; from < access.bytes; from += piece) {
    note_access(lane, {.kind = access.kind, .form = form, .bytes = piece, .address = access.address + from, .pc = access.pc});
  }
}

namespace {

void report_race(Lane& lane, const Access& access, const AccessRecord& earlier, Kind earlier_kind, std::uintptr_t address,
                 bool sizes_differ) {
  const Unobserved unobserved;
  const bool earlier_wrote = earlier_kind == Kind::write;
  std::string order = access.kind == Kind::read ? "read after write" : earlier_wrote ? "write after write" : "write after read";
  if (sizes_differ) order += ", by atomics of different sizes,";
  const std::string place = place_of(access.pc);
  const std::string earlier_place = place_of(earlier.pc());
  const auto text = [&] {
    return order + " of " + describe_target(lane, address) + ", with nothing that orders them\n  " +
           (earlier_wrote ? "written" : "read") + " at " + with_callers(earlier_place, earlier.pc()) + " by " +
           (earlier.is_asynchronous() ? "an asynchronous copy, for which the thread below has not waited"
                                      : describe_thread(lane.block->run().launch, earlier.block(), earlier.thread())) +
           "\n  " + (access.kind == Kind::write ? "written" : "read") + " at " + with_callers(place, access.pc) + " by " +
           lane.block->describe(lane);
  };
  lane.block->run().report("race", place, access.pc, text, earlier_place);
}

template <class Conflict>
void report_race(Lane& lane, const Access& access, const Conflict& conflict, std::uintptr_t memory_begin) {
  report_race(lane, access, conflict.earlier, conflict.earlier_kind, memory_begin + conflict.offset, conflict.sizes_differ);
}

}  // namespace

void report_race(Lane& lane, const Access& access, const AccessRecord& earlier, Kind earlier_kind) {
  report_race(lane, access, earlier, earlier_kind, access.address, false);
}

void note_generic_store(Lane& lane, const Access& store) {
  Block& block = *lane.block;
  if (!block.proxies().on()) return;
  block.proxies().stored(store.address - block.arena().begin(), store.bytes,
                         {block.order().now(), static_cast<std::uint16_t>(lane.index), store.pc});
}

namespace {

void observe_shared_of(Block& owner, Lane& lane, const Access& access) {
  const auto thread = static_cast<std::uint16_t>(lane.index);
  const auto conflict = owner.races().access(lane.block->order(), {thread, access.pc}, access.address - owner.arena().begin(),
                                             access.bytes, access.kind, access.scope, access.wide);
  if (conflict) [[unlikely]]
    report_race(lane, access, *conflict, owner.arena().begin());
}

}  // namespace

void observe_shared(Lane& lane, const Access& access) {
  observe_shared_of(*lane.block, lane, access);
  if (access.kind == Kind::write) note_generic_store(lane, access);
}

void observe_elsewhere(Lane& lane, const Access& access) {
  Cluster& cluster = lane.block->cluster();
  Block* const owner =
      cluster.size() > 1 ? cluster.owner_of(access.address) : nullptr;  // parameters and constants lie here, too
  if (owner == nullptr) return observe_no_memory(lane, access);
  lane.block->counters().reaches_others(access.pc);
  if (!cluster.reaches(lane, *owner, access)) return;
  if (!observe_bytes(lane, access, owner->arena().shadow(access.address))) return;
  if (lane.block->run().races) observe_shared_of(*owner, lane, access);
}

void observe_device(Lane& lane, const Access& access) {
  Block& block = *lane.block;
  const auto conflict =
      block.run().device_races.access(block.order(), {static_cast<std::uint16_t>(lane.index), access.pc},
                                      access.address - Heap::base, access.bytes, access.kind, access.scope, access.wide);
  if (conflict) [[unlikely]]
    report_race(lane, access, *conflict, Heap::base);
}

void observe_matrix_row(Lane& lane, const Access& row) {
  SharedArena& arena = lane.block->arena();
  const bool load = row.kind == Kind::read;
  if (!arena.contains(row.address)) {
    report(lane, std::string("wild ") + verb(row.kind), row.pc, [&] {
      const bool of_cluster = owner_of(lane, row.address) != nullptr;
      return std::string(load ? "ldmatrix reads" : "stmatrix writes") +
             (of_cluster ? " the block's own shared memory, and this address lies in another block's"
                         : " shared memory, and this address lies elsewhere");
    });
    lane.block->stop(lane);
  }
  const std::uint8_t needed = load ? allocated | written : allocated;
  if (row.address % row.bytes != 0 || !all_marked(arena.shadow(row.address), row.bytes, needed, is_mbarrier)) [[unlikely]] {
    observe_fault(lane, row);
  }
}

void observe_matrix_row_stored(Lane& lane, std::uintptr_t row) {
  constexpr std::uint32_t bytes = 16;
  std::uint8_t* const shadow = lane.block->arena().shadow(row);
  if (!all_marked(shadow, bytes, allocated)) return;  // was reported
  add_marks(shadow, bytes, shadow_after_store);
  lane.stored = true;
}

void observe_matrix_part(Lane& lane, const Access& part) {
  const SharedArena& arena = lane.block->arena();
  const std::size_t offset = part.address - arena.begin();
  if (offset + part.bytes > arena.bytes() || offset >= arena.bytes()) return;  // it was reported
  const std::uint8_t* const shadow = lane.block->arena().shadow(part.address);
  if (!all_marked(shadow, part.bytes, 0, being_written) && report_writer(lane, part)) return;
  if (part.kind == Kind::write && !all_marked(shadow, part.bytes, 0, being_read)) report_reader(lane, part);
  observe_shared(lane, part);
}

void observe_source(Lane& lane, const Access& source) {
  std::uint8_t* const shadow = Heap::shadow(source.address);
  if (!all_marked(shadow, source.bytes, allocated | written, being_written) && !observe_fault(lane, source)) return;
  const Run& run = lane.block->run();
  if (!run.races) return;
  observe_behind_earlier(lane, source);
  if (run.ordered) {
    observe_device(lane, source);
    add_marks(shadow, source.bytes, being_read);
  } else if (Marks::suspicious_copy(source.address, source.bytes, lane.marker, source.pc)) {
    lane.block->run_again(lane);
  }
}

bool observe_async(Lane& lane, const AsyncOp& op) {
  const SharedArena& arena = lane.block->arena();
  const auto say = [&](const char* kind, const std::string& why) {
    report(lane, kind, op.pc, [&] { return "cp.async of " + std::to_string(op.writes.count) + " bytes: " + why; });
  };
  const auto wild = [&](const char* kind, const char* why) {
    say(kind, why);
    lane.block->stop(lane);
  };
  if (!arena.contains(op.writes.begin)) {
    const bool of_cluster = owner_of(lane, op.writes.begin) != nullptr;
    wild("wild write",
         of_cluster ? "the destination is in the shared memory of another block" : "the destination is not in shared memory");
  }
  if (op.reads.count > 0 && !Heap::contains(op.reads.begin)) wild("wild read", "the source is not in device memory");
  if (op.reads.count > op.writes.count) {
    say("cp.async misuse", "reads " + std::to_string(static_cast<std::int32_t>(op.reads.count)) + " of them");
    return false;
  }
  const std::uintptr_t end = arena.begin() + arena.bytes();
  if (op.writes.begin < arena.begin() || op.writes.begin + op.writes.count > end) {
    say("out-of-bounds write",
        describe_target(lane, op.writes.begin < arena.begin() ? op.writes.begin : std::max(op.writes.begin, end)));
    return false;
  }
  if (op.writes.begin % op.writes.count != 0)
    say("misaligned write", describe_target(lane, op.writes.begin) + " is not a multiple of that");
  if (op.reads.begin % op.writes.count != 0)
    say("misaligned read", describe_target(lane, op.reads.begin) + " is not a multiple of that");
  if (op.reads.count > 0) observe_source(lane, {op.reads.begin, op.reads.count, Kind::read, false, op.pc});
  observe(lane, {op.writes.begin, op.writes.count, Kind::write, false, op.pc, Scope::thread, true});
  return true;
}

bool observe_reduction(Lane& lane, const Access& access) {
  if (!Heap::contains(access.address)) {
    report(lane, "wild write", access.pc,
           [] { return std::string("red.global adds to device memory, and this address lies elsewhere"); });
    lane.block->stop(lane);
  }
  if (lane.counting) {
    note_access_of(lane, access, Form::reduction);
  }
  const std::uint8_t* const shadow = Heap::shadow(access.address);
  if (!all_marked(shadow, access.bytes, allocated)) return observe_fault(lane, access);
  if (!all_marked(shadow, access.bytes, written)) {  // it reads what it adds to
    observe_fault(lane, {access.address, access.bytes, Kind::read, false, access.pc});
  }
  observe(lane, access);
  return true;
}

void observe_landing(Lane& lane, const AsyncOp& op) {
  const Run& run = lane.block->run();
  if (!run.races) return;
  // The source was read at some time up to now: whoever stores there must have waited until now.
  if (run.ordered && op.reads.count > 0 && !op.source_stored) {
    observe_device(lane, {op.reads.begin, op.reads.count, Kind::read, false, op.pc});
  }
  observe_shared(lane, {op.writes.begin, op.writes.count, Kind::write, false, op.pc});
}

void observe_done(Block& block, const AsyncOp& op, std::uint16_t actor, Time time) {
  Run& run = block.run();
  if (!run.races) return;
  if (run.ordered && op.reads.count > 0 && !op.source_stored) {
    run.device_races.done(block.order(), {actor, op.pc}, time, op.issuer, op.reads.begin - Heap::base, op.reads.count,
                          Kind::read);
  }
  const std::size_t offset = op.writes.begin - block.arena().begin();
  if (block.proxies().on()) {
    if (op.barrier == nullptr) {  // a cp.async is no bulk copy: these must be fenced for
      block.proxies().stored(offset, op.writes.count, {time | asynchronous, actor, op.pc});
    } else {
      block.proxies().forget(offset, op.writes.count);
    }
  }
  block.races().stored(block.order(), {actor, op.pc}, time, offset, op.writes.count);
}

void observe_bulk_written(Lane& lane, const AsyncOp& op) {
  const Run& run = lane.block->run();
  if (run.races && run.ordered) observe_device(lane, {op.writes.begin, op.writes.count, Kind::write, false, op.pc});
}

void observe_never_waited(Block& block, const AsyncOp& op) {
  Run& run = block.run();
  constexpr Time never = asynchronous - 1;
  if (!run.races || !run.ordered) return;
  for (std::uintptr_t at = op.writes.begin; at < op.writes.begin + op.writes.count; at += 4) {
    run.device_races.put((at - Heap::base) / 4,
                         {block.linear_index(), never, op.pc, static_cast<std::uint16_t>(op.issuer), 15, Scope::thread, false},
                         Kind::write);
  }
}

// ---- for cuda.h: accesses that kernels report themselves, because the compiler would not report them as one ----

void report_access(const void* address, std::size_t bytes, bool is_write, const void* pc) {
  if (Lane* lane = current_lane) {
    observe(*lane, {reinterpret_cast<std::uintptr_t>(address), static_cast<std::uint32_t>(bytes),
                    is_write ? Kind::write : Kind::read, true, pc});
  }
}

void report_no_access(const void* pc) {
  Lane* lane = current_lane;
  if (lane == nullptr || !lane->counting) return;
  note_access(*lane, {.kind = Kind::write, .form = Form::global, .predicated_off = true, .pc = pc});
}

namespace {

// Other threads may be waiting for this access, or it for them: let them run. Across blocks that takes one worker.
void order_and_yield(Lane& lane, std::uintptr_t address) {
  if (Heap::contains(address) && !lane.block->run().ordered) lane.block->run_again(lane);
  lane.yield();
}

// An atomic reads and stores; that is one access, a store to whoever may race with it.
void observe_update(Lane& lane, Access access) {
  if (Heap::contains(access.address) || owner_of(lane, access.address) != nullptr) {
    const std::uint8_t* const shadow = &shadow_of(lane, access.address);
    if (access.address % access.bytes == 0 && all_marked(shadow, access.bytes, allocated | written)) {
      access.kind = Kind::write;
      return observe(lane, access);
    }
  }
  const bool sound = observe_fault(lane, access);  // says of the read what is wrong
  access.kind = Kind::write;
  access.aligned = false;
  if (sound) observe(lane, access);
}

// What an atomic or volatile access is about to find.
void note_found(Lane& lane, std::uintptr_t address, std::size_t bytes, const void* pc) {
  std::uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(address), std::min(bytes, sizeof(value)));
  lane.note_found(address, value, pc);
}

void flag_read(Lane& lane, std::uintptr_t address, Scope scope) {
  lane.block->order().flag_read(static_cast<std::uint32_t>(lane.index), address, scope);
  if (lane.block->arena().contains(address)) lane.block->cluster().found(*lane.block, address);
}

void flag_stored(Lane& lane, std::uintptr_t address, Scope scope, bool also_read) {
  lane.block->order().flag_stored(static_cast<std::uint32_t>(lane.index), address, scope, also_read);
}

}  // namespace

bool report_atomic(const void* address, std::size_t bytes, Scope scope, bool stores, const void* pc) {
  Lane* lane = current_lane;
  if (lane == nullptr) return false;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const bool unordered = Heap::contains(at) && !lane->block->run().ordered;
  if (!unordered) lane->yield();
  Access access{at, static_cast<std::uint32_t>(bytes), Kind::read, true, pc, scope, true, bytes == 8};
  if (stores) {
    observe_update(*lane, access);
  } else {
    observe(*lane, access);
  }
  if (!unordered) note_found(*lane, at, bytes, pc);
  flag_read(*lane, at, scope);
  return unordered;
}

void report_atomic_store(const void* address, std::size_t bytes, Scope scope, bool stores, const void* pc) {
  if (Lane* lane = current_lane) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (!stores) observe(*lane, {at, static_cast<std::uint32_t>(bytes), Kind::write, true, pc, scope, true, bytes == 8});
    flag_stored(*lane, at, scope, true);
  }
}

namespace {

// As red.add.f32 on device memory treats subnormal numbers, whatever the kernel was compiled for.
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

}  // namespace

void red_add(float* to, int elements, float a, float b, float c, float d) {
  Lane& lane = lane_or_die();
  await_products(lane);  // others may see this
  const auto at = reinterpret_cast<std::uintptr_t>(to);
  const auto bytes = static_cast<std::uint32_t>(4 * elements);
  constexpr Scope scope = Scope::device;
  if (!observe_reduction(lane, {at, bytes, Kind::write, true, __builtin_return_address(0), scope, true})) return;
  const float values[4] = {a, b, c, d};
  for (int i = 0; i < elements; ++i) {  // each an atomic of its own; other workers may add at the same time
    const std::uintptr_t address = at + 4 * static_cast<std::uintptr_t>(i);
    flag_stored(lane, address, scope, true);
    auto* const bits = reinterpret_cast<std::uint32_t*>(address);
    std::uint32_t old = __atomic_load_n(bits, __ATOMIC_RELAXED);
    std::uint32_t sum;
    do {
      sum = std::bit_cast<std::uint32_t>(flushed(flushed(std::bit_cast<float>(old)) + flushed(values[i])));
    } while (!__atomic_compare_exchange_n(bits, &old, sum, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  }
}

namespace {

bool host_accesses_are_checked = false;

[[gnu::noinline]] void observe_host(std::uintptr_t address, simt::Kind kind, const void* pc) {
  if (!Heap::contains(address)) return;
  host_accesses_are_checked = false;
  std::fprintf(stderr, "simulator: %s: host code %ss %s, which is device memory: a program on a GPU ends here\n",
               place_of(pc).c_str(), verb(kind), describe_address(address).c_str());
  std::_Exit(1);
}

}  // namespace

void check_host_accesses() { host_accesses_are_checked = true; }

void use_unordered_result() { current_lane->block->run_again(*current_lane); }

}  // namespace simt

// ---- the compiler's hooks: g++ -fsanitize=thread calls them before each access that it cannot prove to be local ----

namespace {

[[gnu::always_inline]] inline void hook(void* address, std::uint32_t bytes, simt::Kind kind, bool aligned, const void* pc) {
  if (simt::Lane* lane = simt::current_lane) {
    simt::observe(*lane, {reinterpret_cast<std::uintptr_t>(address), bytes, kind, aligned, pc});
  } else if (simt::host_accesses_are_checked) {
    simt::observe_host(reinterpret_cast<std::uintptr_t>(address), kind, pc);
  }
}

[[gnu::always_inline]] inline void volatile_hook(void* address, std::uint32_t bytes, simt::Kind kind, const void* pc) {
  if (simt::Lane* lane = simt::current_lane) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (at - lane->stack_low < simt::StackPool::stack_bytes) {
      if (lane->queue.has_place_in(at, bytes)) simt::await_products(*lane);
      return;
    }
    simt::order_and_yield(*lane, at);
    constexpr simt::Scope scope = simt::Scope::system;
    simt::observe(*lane, {at, bytes, kind, true, pc, scope, false, bytes > 4});  // as an atomic: flags are made of it
    simt::note_found(*lane, at, bytes, pc);
    if (kind == simt::Kind::read) {
      simt::flag_read(*lane, at, scope);
    } else {
      simt::flag_stored(*lane, at, scope, false);
    }
  }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

#define HOOKS_OF_SIZE(n)                                                                                          \
  void __tsan_read##n(void* p) { hook(p, n, simt::Kind::read, true, __builtin_return_address(0)); }               \
  void __tsan_write##n(void* p) { hook(p, n, simt::Kind::write, true, __builtin_return_address(0)); }             \
  void __tsan_unaligned_read##n(void* p) { hook(p, n, simt::Kind::read, false, __builtin_return_address(0)); }    \
  void __tsan_unaligned_write##n(void* p) { hook(p, n, simt::Kind::write, false, __builtin_return_address(0)); }  \
  void __tsan_volatile_read##n(void* p) { volatile_hook(p, n, simt::Kind::read, __builtin_return_address(0)); }   \
  void __tsan_volatile_write##n(void* p) { volatile_hook(p, n, simt::Kind::write, __builtin_return_address(0)); } \
  void __tsan_unaligned_volatile_read##n(void* p) { __tsan_volatile_read##n(p); }                                 \
  void __tsan_unaligned_volatile_write##n(void* p) { __tsan_volatile_write##n(p); }
HOOKS_OF_SIZE(1)
HOOKS_OF_SIZE(2)
HOOKS_OF_SIZE(4)
HOOKS_OF_SIZE(8)
HOOKS_OF_SIZE(16)
#undef HOOKS_OF_SIZE

void __tsan_read_range(void* p, std::size_t n) {
  hook(p, static_cast<std::uint32_t>(n), simt::Kind::read, false, __builtin_return_address(0));
}
void __tsan_write_range(void* p, std::size_t n) {
  hook(p, static_cast<std::uint32_t>(n), simt::Kind::write, false, __builtin_return_address(0));
}

// And before each division whose divisor is zero (-fsanitize=integer-divide-by-zero). A GPU computes something and goes on;
// the host would end the program.
void __ubsan_handle_divrem_overflow(void*, void*, void*) {
  if (simt::Lane* lane = simt::current_lane) {
    simt::observe_division_by_zero(*lane, __builtin_return_address(0));
  }
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// Atomics of the host code in a kernel file (reference counts, say): the hook must perform the operation.
#define ATOMICS_OF_SIZE(bits, type)                                                                                          \
  type __tsan_atomic##bits##_load(const volatile type* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }              \
  void __tsan_atomic##bits##_store(volatile type* p, type v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }              \
  type __tsan_atomic##bits##_exchange(volatile type* p, type v, int) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
  type __tsan_atomic##bits##_fetch_add(volatile type* p, type v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); } \
  type __tsan_atomic##bits##_fetch_sub(volatile type* p, type v, int) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); } \
  type __tsan_atomic##bits##_fetch_and(volatile type* p, type v, int) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); } \
  type __tsan_atomic##bits##_fetch_or(volatile type* p, type v, int) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }   \
  type __tsan_atomic##bits##_fetch_xor(volatile type* p, type v, int) { return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST); } \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* expected, type v, int, int) {                    \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                           \
  }                                                                                                                          \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile type* p, type* expected, type v, int, int) {                      \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                           \
  }
ATOMICS_OF_SIZE(8, std::uint8_t)
ATOMICS_OF_SIZE(16, std::uint16_t)
ATOMICS_OF_SIZE(32, std::uint32_t)
ATOMICS_OF_SIZE(64, std::uint64_t)
#undef ATOMICS_OF_SIZE

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
#pragma GCC visibility pop
