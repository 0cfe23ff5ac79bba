// Bulk copies: cp.async.bulk between device and shared memory, and the fences that they need.
#include <algorithm>
#include <cstring>
#include <utility>

#include "common/simt/access.h"
#include "common/simt/async.h"
#include "common/simt/collectives.h"
#include "common/simt/cuda.h"
#include "common/simt/symbols.h"

namespace simt {
namespace {

constexpr std::uint32_t row = 16;  // of which bulk copies consist

void report(Lane& lane, const char* kind, const void* pc, const std::string& text) {
  lane.block->run().report(kind, place_of(pc), pc, [&] { return text + "\n  by " + lane.block->describe(lane); });
}

std::string named(const AsyncOp& op) { return "cp.async.bulk of " + std::to_string(op.writes.count) + " bytes: "; }

template <class F>
void each_row(const Bytes& bytes, F f) {
  for (std::uint32_t at = 0; at < bytes.count; at += row) f(bytes.begin + at);
}

// As the thread's own accesses: whether they may be made at all, and what they race with. Asynchronous ones are made where
// `of_stores` is not fenced.
void observe_bulk(Lane& lane, const AsyncOp& op, std::uint64_t bytes) {
  Block& block = *lane.block;
  SharedArena& arena = block.arena();
  const bool load = op.barrier != nullptr;
  const auto [shared, device] = load ? std::pair(op.writes, op.reads) : std::pair(op.reads, op.writes);
  const auto refuse = [&](const char* kind, const std::string& why) {
    report(lane, kind, op.pc, named(op) + why);
    block.stop(lane);
  };
  if (bytes == 0 || bytes % row != 0 || bytes > max_shared_bytes) {
    refuse("bulk copy misuse", "the size is a multiple of 16, and fits into shared memory");
  }
  if (!arena.contains(shared.begin)) {
    refuse(load ? "wild write" : "wild read",
           load ? "the destination is not in shared memory" : "the source is not in shared memory");
  }
  if (!Heap::contains(device.begin)) {
    refuse(load ? "wild read" : "wild write",
           load ? "the source is not in device memory" : "the destination is not in device memory");
  }
  const std::uintptr_t end = arena.begin() + arena.bytes();
  if (shared.begin < arena.begin() || shared.begin + shared.count > end) {
    refuse(load ? "out-of-bounds write" : "out-of-bounds read",
           describe_target(block, shared.begin < arena.begin() ? shared.begin : std::max(shared.begin, end)));
  }
  for (const Bytes& side : {op.writes, op.reads}) {
    if (side.begin % row == 0) continue;
    refuse(side.begin == op.writes.begin ? "misaligned write" : "misaligned read",
           describe_target(block, side.begin) + " is not a multiple of 16");
  }

  Proxies& proxies = block.proxies();
  const std::size_t offset = shared.begin - arena.begin();
  const auto thread = static_cast<std::uint32_t>(lane.index);
  if (proxies.on()) {
    if (const auto store = proxies.unfenced(block.order(), thread, offset, shared.count)) {
      report(
          lane, "missing proxy fence", op.pc,
          named(op) + (load ? "writes over " : "reads ") + "what a thread has stored in " +
              describe_target(block, shared.begin) +
              " … without a fence.proxy.async behind it, before the barrier\n  stored at " +
              with_callers(place_of(store->pc), store->pc) + " by " +
              ((store->time & asynchronous) != 0 ? "a cp.async"
                                                 : describe_thread(block.run().launch, block.linear_index(), store->thread)));
    }
    if (load) proxies.forget(offset, shared.count);
  }
  if (load) {
    observe_source(lane, {device.begin, device.count, Kind::read, false, op.pc});
    each_row(shared, [&](std::uintptr_t at) { observe(lane, {at, row, Kind::write, false, op.pc, Scope::thread, true}); });
    if (proxies.on()) proxies.forget(offset, shared.count);  // that was no store of the thread
    return;
  }
  each_row(shared, [&](std::uintptr_t at) { observe(lane, {at, row, Kind::read, false, op.pc, Scope::thread, true}); });
  const Access store{device.begin, device.count, Kind::write, false, op.pc, Scope::thread, true};
  observe(lane, store);
  if (!all_marked(Heap::shadow(device.begin), device.count, allocated)) block.stop(lane);  // it may reach what is not its own
  const Run& run = block.run();
  if (run.races && !run.ordered && Marks::suspicious_bulk_store(device.begin, device.count, lane.marker, op.pc))
    block.run_again(lane);
}

}  // namespace

void AsyncOps::issue_load(Lane& lane, const AsyncOp& op) {
  Block& block = *lane.block;
  mark_writes(block, op);
  const std::uint32_t index = add(lane, op);
  loads_.push_back(index);
  ++to_arrive_;
  if (lands_at_once(block)) land(block, ops_[index]);
}

void AsyncOps::issue_store(Lane& lane, const AsyncOp& op) {
  Block& block = *lane.block;
  if (stores_.empty()) stores_.resize(lanes_.size());
  mark_writes(block, op);
  if (block.run().races) add_marks(block.arena().shadow(op.reads.begin), op.reads.count, being_read);
  AsyncOp& issued = push(lane, stores_[static_cast<std::size_t>(lane.index)], op);
  if (lands_at_once(block)) read_source(issued);
  if (lands_at_once(block)) land(block, issued);
}

void AsyncOps::read_source(AsyncOp& op) {
  const auto* const from = reinterpret_cast<const std::uint8_t*>(op.reads.begin);
  read_.try_emplace(op.number, from, from + op.reads.count);
}

void AsyncOps::commit_bulk(Lane& lane) {
  if (stores_.empty()) return;
  OfLane& mine = stores_[static_cast<std::size_t>(lane.index)];
  land_some(lane, mine);
  ++mine.group;
}

void AsyncOps::wait_bulk(Lane& lane, std::size_t pending, bool until_read) {
  if (stores_.empty()) return;
  OfLane& mine = stores_[static_cast<std::size_t>(lane.index)];
  for (std::uint32_t i = mine.first; i != none && ops_[i].group + pending < mine.group; i = ops_[i].next)
    was_read(lane, ops_[i]);
  while (!until_read && mine.first != none && ops_[mine.first].group + pending < mine.group) {
    land(*lane.block, ops_[mine.first]);
    const AsyncOp op = pop(mine);
    read_.erase(op.number);
    remove_written_marks(*lane.block, op);
    if (!op.overwritten) observe_bulk_written(lane, op);
  }
  land_some(lane, mine);
}

// The thread has waited until the source was read: it may be stored to.
void AsyncOps::was_read(Lane& lane, AsyncOp& op) {
  if (op.reads.count == 0) return;
  read_source(op);
  if (!op.source_stored && lane.block->run().races) {
    each_row(op.reads, [&](std::uintptr_t at) { observe_shared(lane, {at, row, Kind::read, false, op.pc}); });
  }
  const Bytes source = std::exchange(op.reads, {});
  if (find_reader(source) == nullptr) remove_marks(lane.block->arena().shadow(source.begin), source.count, being_read);
}

void AsyncOps::end_lane(Lane& lane) {
  if (stores_.empty()) return;
  for (std::uint32_t i = stores_[static_cast<std::size_t>(lane.index)].first; i != none; i = ops_[i].next) {
    if (ops_[i].reads.count == 0) continue;
    report(lane, "bulk copy misuse", ops_[i].pc,
           named(ops_[i]) + "the thread ends, and has not waited until it has read " +
               describe_target(*lane.block, ops_[i].reads.begin) + " …");
  }
}

void AsyncOps::end_block(Block& block) {
  for (const std::uint32_t index : loads_) {
    const AsyncOp& op = ops_[index];
    block.run().report("bulk copy misuse", place_of(op.pc), op.pc, [&] {
      return named(op) + "the block ends, and nobody has waited for what it writes to " +
             describe_target(block, op.writes.begin) + " …\n  by " +
             describe_thread(block.run().launch, block.linear_index(), op.issuer);
    });
  }
  for (OfLane& mine : stores_) {
    while (mine.first != none) {
      land(block, ops_[mine.first]);
      const AsyncOp op = pop(mine);
      remove_written_marks(block, op);
      observe_never_waited(block, op);
    }
  }
}

// ---- for ptx.h ----

namespace {

AsyncOp bulk(const void* to, const void* from, int bytes, const void* pc) {
  const auto count = static_cast<std::uint32_t>(bytes);
  return {.reads = {reinterpret_cast<std::uintptr_t>(from), count},
          .writes = {reinterpret_cast<std::uintptr_t>(to), count},
          .pc = pc};
}

// Records of proxies are kept from the beginning of the launch on.
void want_proxies(Lane& lane) {
  await_products(lane);
  if (lane.block->run().races && !lane.block->run().proxies) lane.block->run_again_with_proxies(lane);
}

}  // namespace

void bulk_load(void* to, const void* from, int bytes, void* barrier, const std::source_location& where) {
  Lane& lane = lane_or_die();
  want_proxies(lane);
  Block& block = *lane.block;
  AsyncOp op = bulk(to, from, bytes, __builtin_return_address(0));
  op.barrier = block.mbarriers().use(
      lane, {.name = "cp.async.bulk", .address = reinterpret_cast<std::uintptr_t>(barrier), .where = where, .pc = op.pc});
  if (op.barrier == nullptr) return;
  if (block.proxies().on() && !block.proxies().fenced(block.order(), static_cast<std::uint32_t>(lane.index), op.barrier->set)) {
    report(lane, "missing proxy fence", op.pc,
           named(op) + "its mbarrier " + describe_target(block, op.barrier->address) +
               " was made without a fence.mbarrier_init or a fence.proxy.async behind it, before the barrier");
  }
  observe_bulk(lane, op, static_cast<std::uint64_t>(bytes));
  block.async_ops().issue_load(lane, op);
}

void bulk_store(void* to, const void* from, int bytes) {
  Lane& lane = lane_or_die();
  want_proxies(lane);
  const AsyncOp op = bulk(to, from, bytes, __builtin_return_address(0));
  observe_bulk(lane, op, static_cast<std::uint64_t>(bytes));
  lane.block->async_ops().issue_store(lane, op);
}

void bulk_commit_group() {
  Lane& lane = lane_or_die();
  lane.block->async_ops().commit_bulk(lane);
}

void bulk_wait_group(int pending, bool until_read) {
  Lane& lane = lane_or_die();
  lane.block->async_ops().wait_bulk(lane, static_cast<std::size_t>(pending), until_read);
}

void fence_proxy_async() {
  Lane& lane = lane_or_die();
  Block& block = *lane.block;
  if (block.proxies().on()) block.proxies().fence(block.order(), static_cast<std::uint32_t>(lane.index));
}

void fence_mbarrier_init() {
  Lane& lane = lane_or_die();
  Block& block = *lane.block;
  if (block.proxies().on()) block.proxies().fence_mbarriers(block.order(), static_cast<std::uint32_t>(lane.index));
}

}  // namespace simt
