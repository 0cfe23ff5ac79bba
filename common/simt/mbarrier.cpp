#include "common/simt/mbarrier.h"

#include <algorithm>
#include <cstring>

#include "common/simt/access.h"
#include "common/simt/collectives.h"
#include "common/simt/cuda.h"
#include "common/simt/symbols.h"

namespace simt {
namespace {

void report(Lane& lane, const MbarrierCall& call, const char* kind, const std::string& why) {
  lane.block->run().report(kind, place_of(call.where), call.pc, [&] {
    return std::string(call.name) + " at " + describe_target(*lane.block, call.address) + ": " + why + "\n  by " +
           lane.block->describe(lane);
  });
}

// Where nothing sensible could follow.
[[noreturn]] void refuse(Lane& lane, const MbarrierCall& call, const std::string& why) {
  report(lane, call, "mbarrier misuse", why);
  lane.block->stop(lane);
}

AccessRecord record_of(const Lane& lane, Time time, const void* pc) {
  return {lane.block->linear_index(), time, pc, static_cast<std::uint16_t>(lane.index), 15, Scope::thread, false};
}

}  // namespace

std::string MbarrierCall::describe() const {
  const auto amount = [](std::int64_t n, const char* what) { return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s"); };
  const Mbarrier& b = *barrier;
  std::string missing = !b.live ? "its mbarrier" : b.pending > 0 ? amount(b.pending, "arrival") : "";
  if (b.live && b.bytes > 0) missing += (missing.empty() ? "" : " and ") + amount(b.bytes, "byte");
  std::string state = "it is in phase " + std::to_string(b.phase) + ", of parity " + std::to_string(b.phase & 1);
  if (!missing.empty()) state += ", which lacks " + missing;
  if (b.bytes < 0) state += "; " + amount(-std::int64_t{b.bytes}, "byte") + " have come that nobody expects";
  return std::string(name) + " of " + describe_target(*block, address) + " for the phase of parity " + std::to_string(parity) +
         " (" + state + ")";
}

Mbarrier& Mbarriers::at(std::uintptr_t address) {
  Mbarrier& barrier = barriers_[address];
  barrier.address = address;
  return barrier;
}

Mbarrier* Mbarriers::use(Lane& lane, const MbarrierCall& call) {
  await_products(lane);
  Block& block = *lane.block;
  const SharedArena& arena = block.arena();
  if (!arena.contains(call.address)) refuse(lane, call, "it does not lie in shared memory");
  if (call.address < arena.begin() || call.address + 8 > arena.begin() + arena.bytes()) refuse(lane, call, "it lies outside");
  if (call.address % 8 != 0) refuse(lane, call, "its address is not a multiple of 8");
  Mbarrier& barrier = at(call.address);
  const auto thread = static_cast<std::uint32_t>(lane.index);
  if (block.run().races) {
    if (barrier.was_set && !block.order().before(barrier.set, thread)) {
      report_race(lane, {call.address, 8, Kind::read, true, call.pc}, barrier.set, Kind::write);
    }
    if (barrier.uses.empty()) barrier.uses.resize(block.threads());
    barrier.uses[thread] = {block.order().now(), call.pc};
  }
  if (barrier.live) return &barrier;
  report(lane, call, "uninitialised read", barrier.was_set ? "it is an mbarrier no longer" : "nobody has made it an mbarrier");
  return nullptr;
}

// What init and inval do is a store: all earlier uses must have come before it, and so must all plain accesses.
void Mbarriers::set(Lane& lane, const MbarrierCall& call, Mbarrier& barrier) {
  Block& block = *lane.block;
  const auto thread = static_cast<std::uint32_t>(lane.index);
  remove_marks(block.arena().shadow(call.address), 8, is_mbarrier);
  observe(lane, {call.address, 8, Kind::write, true, call.pc, Scope::thread, true});
  std::memset(reinterpret_cast<void*>(call.address), 0, 8);
  if (!block.run().races) return;
  barrier.set = record_of(lane, block.order().now(), call.pc);
  barrier.was_set = true;
  for (std::size_t i = 0; i < barrier.uses.size(); ++i) {
    const Mbarrier::Use& use = barrier.uses[i];
    const AccessRecord earlier(block.linear_index(), use.time, use.pc, static_cast<std::uint16_t>(i), 15, Scope::thread, false);
    if (use.time != 0 && !block.order().before(earlier, thread)) {
      return report_race(lane, {call.address, 8, Kind::write, true, call.pc}, earlier, Kind::read);
    }
  }
}

void Mbarriers::init(Lane& lane, const MbarrierCall& call, int arrivals) {
  await_products(lane);
  Block& block = *lane.block;
  const SharedArena& arena = block.arena();
  if (!arena.contains(call.address)) refuse(lane, call, "it does not lie in shared memory");
  if (call.address % 8 != 0) refuse(lane, call, "its address is not a multiple of 8");
  if (arrivals < 1 || arrivals > Mbarrier::most) {
    refuse(lane, call, std::to_string(arrivals) + " arrivals; a phase has 1 to " + std::to_string(Mbarrier::most));
  }
  Mbarrier& barrier = at(call.address);
  if (barrier.live) refuse(lane, call, "it is an mbarrier already; mbarrier.inval would end that");
  set(lane, call, barrier);
  if (!all_marked(block.arena().shadow(call.address), 8, allocated)) return;  // was reported
  add_marks(block.arena().shadow(call.address), 8, is_mbarrier);
  Mbarrier fresh;
  fresh.address = call.address;
  fresh.set = barrier.set;
  fresh.was_set = barrier.was_set;
  fresh.uses = std::move(barrier.uses);
  barrier = std::move(fresh);
  barrier.live = true;
  barrier.arrivals = barrier.pending = static_cast<std::uint32_t>(arrivals);
  barrier.actor = block.order().new_actor();
}

void Mbarriers::inval(Lane& lane, const MbarrierCall& call) {
  Mbarrier* const barrier = use(lane, call);
  if (barrier == nullptr) return;
  if (lane.block->async_ops().arrive_at(*barrier)) refuse(lane, call, "copies that arrive there are under way");
  set(lane, call, *barrier);
  barrier->live = false;
  remove_marks(lane.block->arena().shadow(call.address), 8, written);
}

void Mbarriers::expect(Lane& lane, const MbarrierCall& call, int bytes) {
  Mbarrier* const barrier = use(lane, call);
  if (barrier == nullptr) return;
  const std::int64_t all = std::int64_t{barrier->bytes} + bytes;
  if (bytes < 0 || all > Mbarrier::most) {
    refuse(lane, call, std::to_string(all) + " bytes would then be expected; at most " + std::to_string(Mbarrier::most));
  }
  barrier->bytes = static_cast<std::int32_t>(all);
}

void Mbarriers::arrive(Lane& lane, const MbarrierCall& call) {
  Mbarrier* const barrier = use(lane, call);
  if (barrier == nullptr) return;
  if (barrier->pending == 0) {
    refuse(lane, call,
           "all " + std::to_string(barrier->arrivals) + " arrivals of this phase have come, and it waits for bytes");
  }
  lane.block->order().release(barrier->meeting, static_cast<std::uint32_t>(lane.index));
  --barrier->pending;
  end_phase_if_over(*lane.block, *barrier, &lane);
}

void Mbarriers::copies_arrive(Block& block, Mbarrier& barrier, const Mbarrier::Copies& copies, const void* pc) {
  if (barrier.pending == 0) {
    block.run().report("mbarrier misuse", place_of(pc), pc, [&] {
      return "copies arrive at " + describe_target(block, barrier.address) +
             ", all arrivals of whose phase have come, and it waits for bytes\n  of " +
             describe_thread(block.run().launch, block.linear_index(), copies.thread);
    });
    return;
  }
  barrier.landed.push_back(copies);
  --barrier.pending;
  end_phase_if_over(block, barrier, nullptr);
}

void Mbarriers::bytes_arrive(Block& block, Mbarrier& barrier, const Mbarrier::Copies& copy, std::uint32_t bytes) {
  barrier.landed.push_back(copy);
  barrier.bytes -= static_cast<std::int32_t>(bytes);
  end_phase_if_over(block, barrier, nullptr);
}

void Mbarriers::end_phase_if_over(Block& block, Mbarrier& barrier, const Lane* last) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  Order& order = block.order();
  const Time end = order.tick();
  barrier.ends = {end, barrier.ends[0]};
  order.add(barrier.meeting, barrier.actor, end);
  barrier.past = order.released(barrier.meeting);
  if (last != nullptr) {  // it knows, without asking
    Past known;
    order.add(known, barrier.actor, end);
    order.acquire(static_cast<std::uint32_t>(last->index), known);
  }
  barrier.unseen.insert(barrier.unseen.end(), barrier.landed.begin(), barrier.landed.end());
  barrier.landed.clear();
  barrier.pending = barrier.arrivals;
  ++barrier.phase;
  barrier.wanted = false;
  for (Lane* const lane : barrier.waiting) lane->state = Lane::State::runnable;
  barrier.waiting.clear();
}

bool Mbarriers::test(Lane& lane, const MbarrierCall& call) {
  Mbarrier* const barrier = use(lane, call);
  if (barrier == nullptr) return true;
  if (call.parity > 1) refuse(lane, call, "parity " + std::to_string(call.parity) + "; it is 0 or 1");
  Order& order = lane.block->order();
  if (barrier->phase >= 2 && !order.has_seen(static_cast<std::uint32_t>(lane.index), barrier->actor, barrier->ends[1])) {
    refuse(lane, call,
           "it is in phase " + std::to_string(barrier->phase) + ", and the thread has not seen the end of phase " +
               std::to_string(barrier->phase - 2) + ": it has missed one, and the parity is that of either");
  }
  const bool over = (barrier->phase & 1) != call.parity;
  if (!over) barrier->wanted = true;
  return over;
}

void Mbarriers::acquire(Lane& lane, std::uintptr_t address) {
  Mbarrier& barrier = at(address);
  Order& order = lane.block->order();
  if (!barrier.unseen.empty()) {
    for (const Mbarrier::Copies& copies : barrier.unseen) {
      const auto [actor, time] = lane.block->async_ops().seen(*lane.block, copies);
      order.add(barrier.past, actor, time);
      order.add(barrier.meeting, actor, time);  // and who waits for a later phase only
    }
    barrier.unseen.clear();
    order.tick();
  }
  order.acquire(static_cast<std::uint32_t>(lane.index), barrier.past);
}

void Mbarriers::wait(Lane& lane, const MbarrierCall& call) {
  while (!test(lane, call)) {
    Mbarrier& barrier = at(call.address);
    barrier.waiting.push_back(&lane);
    lane.mbarrier = call;
    lane.mbarrier.barrier = &barrier;
    lane.mbarrier.block = lane.block;
    lane.state = Lane::State::at_mbarrier;
    lane.wait();
  }
  acquire(lane, call.address);
}

// ---- for ptx.h ----

namespace {

MbarrierCall call_of(const char* name, const void* barrier, const std::source_location& where, const void* pc) {
  return {.name = name, .address = reinterpret_cast<std::uintptr_t>(barrier), .where = where, .pc = pc};
}

bool test(const char* name, void* barrier, int parity, bool may_fail, const std::source_location& where, const void* pc) {
  Lane& lane = lane_or_die();
  lane.yield();  // who asks again and again lets the others run
  MbarrierCall call = call_of(name, barrier, where, pc);
  call.parity = static_cast<unsigned>(parity);
  Mbarriers& all = lane.block->mbarriers();
  const bool over = all.test(lane, call);
  lane.note_found(call.address, all.phase_of(call.address), pc);
  return over && !(may_fail && options().async_mode == AsyncMode::random && lane.block->coin());
}

}  // namespace

void mbarrier_init(void* barrier, int arrivals, const std::source_location& where) {
  Lane& lane = lane_or_die();
  lane.block->mbarriers().init(lane, call_of("mbarrier.init", barrier, where, __builtin_return_address(0)), arrivals);
}

void mbarrier_inval(void* barrier, const std::source_location& where) {
  Lane& lane = lane_or_die();
  lane.block->mbarriers().inval(lane, call_of("mbarrier.inval", barrier, where, __builtin_return_address(0)));
}

void mbarrier_arrive(void* barrier, const std::source_location& where) {
  Lane& lane = lane_or_die();
  lane.block->mbarriers().arrive(lane, call_of("mbarrier.arrive", barrier, where, __builtin_return_address(0)));
}

void mbarrier_arrive_expect_tx(void* barrier, int bytes, const std::source_location& where) {
  Lane& lane = lane_or_die();
  const MbarrierCall call = call_of("mbarrier.arrive.expect_tx", barrier, where, __builtin_return_address(0));
  lane.block->mbarriers().expect(lane, call, bytes);
  lane.block->mbarriers().arrive(lane, call);
}

void mbarrier_expect_tx(void* barrier, int bytes, const std::source_location& where) {
  Lane& lane = lane_or_die();
  lane.block->mbarriers().expect(lane, call_of("mbarrier.expect_tx", barrier, where, __builtin_return_address(0)), bytes);
}

bool mbarrier_test_wait(void* barrier, int parity, const std::source_location& where) {
  return test("mbarrier.test_wait", barrier, parity, false, where, __builtin_return_address(0));
}

bool mbarrier_try_wait(void* barrier, int parity, const std::source_location& where) {
  return test("mbarrier.try_wait", barrier, parity, true, where, __builtin_return_address(0));
}

void mbarrier_acquire(void* barrier) {
  Lane& lane = lane_or_die();
  lane.block->mbarriers().acquire(lane, reinterpret_cast<std::uintptr_t>(barrier));
}

void mbarrier_wait(void* barrier, int parity, const std::source_location& where) {
  Lane& lane = lane_or_die();
  MbarrierCall call = call_of("mbarrier_wait", barrier, where, __builtin_return_address(0));
  call.parity = static_cast<unsigned>(parity);
  lane.block->mbarriers().wait(lane, call);
}

void cp_async_mbarrier_arrive(void* barrier, const std::source_location& where) {
  Lane& lane = lane_or_die();
  const void* const pc = __builtin_return_address(0);
  Mbarrier* const used = lane.block->mbarriers().use(lane, call_of("cp.async.mbarrier.arrive", barrier, where, pc));
  if (used != nullptr) lane.block->async_ops().arrive(lane, *used, pc);
}

}  // namespace simt
