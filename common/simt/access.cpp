#include "common/simt/access.h"

#include <link.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>

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

// What lies at an address of device or shared memory, in the program's own words.
std::string describe_target(Lane& lane, std::uintptr_t address) {
  SharedArena& arena = lane.block->arena();
  if (!arena.contains(address)) return describe_address(address);
  if (address < arena.begin()) return std::to_string(arena.begin() - address) + " bytes before the start of shared memory";
  const std::size_t offset = address - arena.begin();
  if (offset >= arena.bytes()) {
    return std::to_string(offset - arena.bytes()) + " bytes past the end of shared memory (" + std::to_string(arena.bytes()) +
           " bytes)";
  }
  return lane.block->shared_type() == nullptr ? "offset " + std::to_string(offset) + " of shared memory"
                                              : member_name(lane.block->shared_type(), offset);
}

void report(Lane& lane, std::string_view kind, const void* pc, const Run::MakeText& text) {
  const Unobserved unobserved;
  lane.block->run().report(std::string(kind), place_of(pc), pc,
                           [&] { return text() + "\n  by " + lane.block->describe(lane); });
}

}  // namespace

namespace {

std::uint8_t& shadow_of(Lane& lane, std::uintptr_t address) {
  return Heap::contains(address) ? *Heap::shadow(address) : *lane.block->arena().shadow(address);
}

// The first byte of the access that lacks a mark: it may be the last of a vector, not its first.
std::uintptr_t first_without(Lane& lane, const Access& access, std::uint8_t mark) {
  std::uintptr_t address = access.address;
  while (address < access.address + access.bytes && (shadow_of(lane, address) & mark)) ++address;
  return address;
}

// Neither device nor shared memory, nor the lane's own stack. Constants, parameters and built-in variables may be read; a GPU
// would stop at anything else.
void observe_elsewhere(Lane& lane, const Access& access) {
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

}  // namespace

bool observe_fault(Lane& lane, const Access& access) {
  const Unobserved unobserved;
  if (!Heap::contains(access.address) && !lane.block->arena().contains(access.address)) {
    observe_elsewhere(lane, access);
    return false;
  }
  const std::uintptr_t end = access.address + access.bytes;
  if (const auto outside = first_without(lane, access, allocated); outside < end) {
    report(lane, std::string("out-of-bounds ") + verb(access.kind), access.pc,
           [&] { return amount(access) + ", " + describe_target(lane, outside); });
    return false;  // red zones lie there: going on harms nothing and may show more
  }
  if (access.aligned && access.address % access.bytes != 0) {
    report(lane, std::string("misaligned ") + verb(access.kind), access.pc, [&] {
      return amount(access) + " at " + describe_target(lane, access.address) + ", not a multiple of " +
             std::to_string(access.bytes);
    });
  }
  if (access.kind == Kind::write) {
    for (std::uintptr_t address = access.address; address < end; ++address) {
      shadow_of(lane, address) = shadow_after_store;
    }
    lane.block->count_store();
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

void await_issue(Lane& lane, const PendingAccess& access) {
  lane.access = access;
  lane.state = Lane::State::in_access;
  lane.wait();
}

namespace {

template <class Conflict>
void report_race(Lane& lane, const Access& access, const Conflict& conflict, std::uintptr_t memory_begin) {
  const Unobserved unobserved;
  const bool earlier_wrote = conflict.earlier_kind == Kind::write;
  const char* order = access.kind == Kind::read ? "read after write" : earlier_wrote ? "write after write" : "write after read";
  const std::string place = place_of(access.pc);
  const std::string earlier_place = place_of(conflict.earlier.pc());
  const auto text = [&] {
    return std::string(order) + " of " + describe_target(lane, memory_begin + conflict.offset) +
           ", with nothing that orders them\n  " + (earlier_wrote ? "written" : "read") + " at " +
           with_callers(earlier_place, conflict.earlier.pc()) + " by " +
           describe_thread(lane.block->run().launch, conflict.earlier.block(), conflict.earlier.thread()) + "\n  " +
           (access.kind == Kind::write ? "written" : "read") + " at " + with_callers(place, access.pc) + " by " +
           lane.block->describe(lane);
  };
  lane.block->run().report("race", place, access.pc, text, earlier_place);
}

}  // namespace

namespace {

void report_under_way(Lane& lane, const Access& access, const AsyncCopies::UnderWay& other) {
  const Unobserved unobserved;
  Block& block = *lane.block;
  const std::string place = place_of(access.pc);
  const std::string copy_place = place_of(other.copy.pc);
  const auto text = [&] {
    return std::string(access.kind == Kind::read ? "read of " : "write to ") +
           describe_target(lane, std::max(access.address, other.copy.to)) +
           ", to which an asynchronous copy is under way\n  copied at " + with_callers(copy_place, other.copy.pc) + " by " +
           describe_thread(block.run().launch, block.linear_index(), other.thread) + ", which has not waited for it\n  " +
           (access.kind == Kind::write ? "written" : "read") + " at " + with_callers(place, access.pc) + " by " +
           block.describe(lane);
  };
  block.run().report("race", place, access.pc, text, copy_place);
}

}  // namespace

void observe_shared(Lane& lane, const Access& access) {
  Block& block = *lane.block;
  const auto thread = static_cast<std::uint16_t>(lane.index);
  if (const auto* other = block.copies().find(access.address - block.arena().begin(), access.bytes)) [[unlikely]] {
    return report_under_way(lane, access, *other);
  }
  const auto conflict = block.races().access(block.order(), {thread, access.pc}, access.address - block.arena().begin(),
                                             access.bytes, access.kind, access.scope);
  if (conflict) [[unlikely]]
    report_race(lane, access, *conflict, block.arena().begin());
}

void observe_device(Lane& lane, const Access& access) {
  Block& block = *lane.block;
  const auto conflict = block.run().device_races.access(block.order(), {static_cast<std::uint16_t>(lane.index), access.pc},
                                                        access.address - Heap::base, access.bytes, access.kind, access.scope);
  if (conflict) [[unlikely]]
    report_race(lane, access, *conflict, Heap::base);
}

void observe_matrix_row(Lane& lane, const Access& row) {
  SharedArena& arena = lane.block->arena();
  const bool load = row.kind == Kind::read;
  if (!arena.contains(row.address)) {
    report(lane, std::string("wild ") + verb(row.kind), row.pc, [&] {
      return std::string(load ? "ldmatrix reads" : "stmatrix writes") + " shared memory, and this address lies elsewhere";
    });
    lane.block->stop(lane);
  }
  const std::uint8_t needed = load ? allocated | written : allocated;
  if (row.address % row.bytes != 0 || !all_marked(arena.shadow(row.address), row.bytes, needed)) [[unlikely]] {
    observe_fault(lane, row);
  }
}

void observe_matrix_row_stored(Lane& lane, std::uintptr_t row) {
  constexpr std::uint32_t bytes = 16;
  std::uint8_t* const shadow = lane.block->arena().shadow(row);
  if (!all_marked(shadow, bytes, allocated)) return;  // was reported
  std::memset(shadow, shadow_after_store, bytes);
  lane.block->count_store();
}

void observe_matrix_part(Lane& lane, const Access& part) {
  const SharedArena& arena = lane.block->arena();
  const std::size_t offset = part.address - arena.begin();
  if (offset + part.bytes <= arena.bytes() && offset < arena.bytes()) observe_shared(lane, part);  // or it was reported
}

bool observe_async(Lane& lane, const AsyncCopy& copy) {
  const SharedArena& arena = lane.block->arena();
  const auto say = [&](const char* kind, const std::string& why) {
    report(lane, kind, copy.pc, [&] { return "cp.async of " + std::to_string(copy.bytes) + " bytes: " + why; });
  };
  const auto wild = [&](const char* kind, const char* why) {
    say(kind, why);
    lane.block->stop(lane);
  };
  if (!arena.contains(copy.to)) wild("wild write", "the destination is not in shared memory");
  if (copy.source_bytes > 0 && !Heap::contains(copy.from)) wild("wild read", "the source is not in device memory");
  if (copy.source_bytes > copy.bytes) {
    say("cp.async misuse", "reads " + std::to_string(static_cast<std::int32_t>(copy.source_bytes)) + " of them");
    return false;
  }
  const std::uintptr_t end = arena.begin() + arena.bytes();
  if (copy.to < arena.begin() || copy.to + copy.bytes > end) {
    say("out-of-bounds write", describe_target(lane, copy.to < arena.begin() ? copy.to : std::max(copy.to, end)));
    return false;
  }
  if (copy.to % copy.bytes != 0) say("misaligned write", describe_target(lane, copy.to) + " is not a multiple of that");
  if (copy.from % copy.bytes != 0) say("misaligned read", describe_target(lane, copy.from) + " is not a multiple of that");
  if (copy.source_bytes > 0) observe(lane, {copy.from, copy.source_bytes, Kind::read, false, copy.pc, Scope::thread, true});
  observe(lane, {copy.to, copy.bytes, Kind::write, false, copy.pc, Scope::thread, true});
  return true;
}

bool observe_reduction(Lane& lane, const Access& access) {
  if (!Heap::contains(access.address)) {
    report(lane, "wild write", access.pc,
           [] { return std::string("red.global adds to device memory, and this address lies elsewhere"); });
    lane.block->stop(lane);
  }
  if (lane.counting) {
    await_issue(lane, {lane.lane(), access.address, access.bytes, Kind::write, Form::reduction, access.pc});
  }
  const std::uint8_t* const shadow = Heap::shadow(access.address);
  if (!all_marked(shadow, access.bytes, allocated)) return observe_fault(lane, access);
  if (!all_marked(shadow, access.bytes, written)) {  // it reads what it adds to
    observe_fault(lane, {access.address, access.bytes, Kind::read, false, access.pc});
  }
  observe(lane, access);
  return true;
}

void observe_landing(Lane& lane, const AsyncCopy& copy) {
  const Run& run = lane.block->run();
  if (!run.races) return;
  // The source was read at some time up to now: whoever stores there must have waited until now.
  if (copy.source_bytes > 0) {
    const Access source{copy.from, copy.source_bytes, Kind::read, false, copy.pc};
    run.ordered ? observe_device(lane, source) : observe_marks(lane, source);
  }
  observe_shared(lane, {copy.to, copy.bytes, Kind::write, false, copy.pc});
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
  PendingAccess none{lane->lane(), 0, 0, Kind::write, Form::global, pc};
  none.predicated_off = true;
  await_issue(*lane, none);
}

namespace {

// Other threads may be waiting for this access, or it for them: let them run. Across blocks that takes one worker.
void order_and_yield(Lane& lane, std::uintptr_t address) {
  if (Heap::contains(address) && !lane.block->run().ordered) lane.block->run_again(lane);
  lane.yield();
}

void flag_read(Lane& lane, std::uintptr_t address, Scope scope) {
  lane.block->order().flag_read(static_cast<std::uint32_t>(lane.index), address, scope);
}

void flag_stored(Lane& lane, std::uintptr_t address, Scope scope, bool also_read) {
  lane.block->order().flag_stored(static_cast<std::uint32_t>(lane.index), address, scope, also_read);
}

}  // namespace

bool report_atomic(const void* address, std::size_t bytes, Scope scope, const void* pc) {
  Lane* lane = current_lane;
  if (lane == nullptr) return false;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const bool unordered = Heap::contains(at) && !lane->block->run().ordered;
  if (!unordered) lane->yield();
  observe(*lane, {at, static_cast<std::uint32_t>(bytes), Kind::read, true, pc, scope});
  flag_read(*lane, at, scope);
  return unordered;
}

void report_atomic_store(const void* address, std::size_t bytes, Scope scope, const void* pc) {
  if (Lane* lane = current_lane) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    observe(*lane, {at, static_cast<std::uint32_t>(bytes), Kind::write, true, pc, scope});
    flag_stored(*lane, at, scope, true);
  }
}

namespace {

// As red.add.f32 on device memory treats subnormal numbers, whatever the kernel was compiled for.
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

}  // namespace

void red_add(float* to, int elements, float a, float b, float c, float d) {
  Lane& lane = lane_or_die();
  const auto at = reinterpret_cast<std::uintptr_t>(to);
  const auto bytes = static_cast<std::uint32_t>(4 * elements);
  constexpr Scope scope = Scope::device;
  if (!observe_reduction(lane, {at, bytes, Kind::write, true, __builtin_return_address(0), scope})) return;
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
    if (at - lane->stack_low < simt::StackPool::stack_bytes) return;
    simt::order_and_yield(*lane, at);
    constexpr simt::Scope scope = simt::Scope::system;
    simt::observe(*lane, {at, bytes, kind, true, pc, scope});  // as an atomic: what flags between threads are made of
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
