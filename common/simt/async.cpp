#include "common/simt/async.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/simt/access.h"
#include "common/simt/collectives.h"
#include "common/simt/cuda.h"

namespace simt {

void AsyncOps::begin_block(std::size_t threads) {
  // What was under way when the last block ended never landed: legal, nobody could have looked.
  ops_.clear();
  unused_ = none;
  issued_ = to_arrive_ = 0;
  patience_ = 0;
  stores_.clear();
  loads_.clear();
  read_.clear();
  lanes_.assign(threads, {});
}

template <class F>
void AsyncOps::each_under_way(F f) {
  for (const auto* const lanes : {&lanes_, &stores_}) {
    for (const OfLane& lane : *lanes) {
      for (std::uint32_t index = lane.first; index != none; index = ops_[index].next) f(ops_[index]);
    }
  }
  for (const std::uint32_t index : loads_) f(ops_[index]);
}

void AsyncOps::land(Block& block, AsyncOp& op) {
  if (op.landed) return;
  op.landed = true;
  if (op.barrier != nullptr && op.writes.count == 0) {
    for (std::uint32_t i = lanes_[op.issuer].first; &ops_[i] != &op; i = ops_[i].next) land(block, ops_[i]);
    --to_arrive_;
    block.mbarriers().copies_arrive(block, *op.barrier, {op.issuer, op.number}, op.pc);
    return;
  }
  auto* to = reinterpret_cast<std::uint8_t*>(op.writes.begin);
  if (Heap::contains(op.writes.begin)) {
    if (op.reads.count > 0) read_source(op);
    std::memcpy(to, read_.at(op.number).data(), op.writes.count);
    return;
  }
  std::memcpy(to, reinterpret_cast<const void*>(op.reads.begin), op.reads.count);
  std::memset(to + op.reads.count, 0, op.writes.count - op.reads.count);
  if (op.barrier == nullptr) return;
  --to_arrive_;
  block.mbarriers().bytes_arrive(block, *op.barrier, {op.issuer, op.number, true}, op.writes.count);
}

// At a random time: at the instruction, or at any later commit or wait of the thread.
void AsyncOps::land_some(Lane& lane, const OfLane& mine) {
  if (options().async_mode != AsyncMode::random) return;
  for (std::uint32_t index = mine.first; index != none; index = ops_[index].next) {
    if (Heap::contains(ops_[index].writes.begin) && lane.block->coin()) read_source(ops_[index]);
    if (lane.block->coin()) land(*lane.block, ops_[index]);
  }
}

std::uint32_t AsyncOps::add(Lane& lane, const AsyncOp& op) {
  std::uint32_t index = unused_;
  if (index == none) {
    index = static_cast<std::uint32_t>(ops_.size());
    ops_.emplace_back();
  } else {
    unused_ = ops_[index].next;
  }
  ops_[index] = op;
  ops_[index].issuer = static_cast<std::uint32_t>(lane.index);
  ops_[index].number = ++issued_;
  ops_[index].next = none;
  return index;
}

AsyncOp& AsyncOps::push(Lane& lane, OfLane& mine, const AsyncOp& op) {
  const std::uint32_t index = add(lane, op);
  ops_[index].group = mine.group;
  (mine.first == none ? mine.first : ops_[mine.last].next) = index;
  mine.last = index;
  return ops_[index];
}

AsyncOp AsyncOps::pop(OfLane& mine) {
  const std::uint32_t index = mine.first;
  AsyncOp& op = ops_[index];
  mine.first = std::exchange(op.next, unused_);
  unused_ = index;
  return op;
}

bool AsyncOps::lands_at_once(Block& block) {
  const AsyncMode mode = options().async_mode;
  return mode == AsyncMode::eager || (mode == AsyncMode::random && block.coin());
}

namespace {

// Marks in the shadow of device memory take one worker.
std::uint8_t* shadow_of_writes(Block& block, const AsyncOp& op) {
  if (!Heap::contains(op.writes.begin)) return block.arena().shadow(op.writes.begin);
  return block.run().ordered ? Heap::shadow(op.writes.begin) : nullptr;
}

}  // namespace

void AsyncOps::mark_writes(Block& block, const AsyncOp& op) {
  std::memset(reinterpret_cast<void*>(op.writes.begin), 0xff, op.writes.count);  // NaN in every format
  std::uint8_t* const shadow = shadow_of_writes(block, op);
  if (shadow == nullptr) return;
  if (!all_marked(shadow, op.writes.count, 0, being_written)) {
    each_under_way([&](AsyncOp& earlier) { earlier.overwritten |= earlier.writes.overlap(op.writes); });
  }
  add_marks(shadow, op.writes.count, being_written);
}

void AsyncOps::issue(Lane& lane, const AsyncOp& op) {
  mark_writes(*lane.block, op);
  AsyncOp& issued = push(lane, lanes_[static_cast<std::size_t>(lane.index)], op);
  if (lands_at_once(*lane.block)) land(*lane.block, issued);
}

void AsyncOps::arrive(Lane& lane, Mbarrier& barrier, const void* pc) {
  OfLane& mine = lanes_[static_cast<std::size_t>(lane.index)];
  for (std::uint32_t index = mine.first; index != none; index = ops_[index].next) ops_[index].arrives = true;
  AsyncOp& arrival = push(lane, mine, {.reads = {}, .writes = {}, .pc = pc, .barrier = &barrier});
  ++to_arrive_;
  if (lands_at_once(*lane.block)) land(*lane.block, arrival);
}

bool AsyncOps::land_for_mbarriers(Block& block, bool stuck) {
  constexpr int most_patience = 256;
  if (to_arrive_ == 0) return false;
  const bool random = options().async_mode == AsyncMode::random;
  stuck |= ++patience_ > most_patience;
  if (!stuck && !random) return false;
  const std::size_t before = to_arrive_;
  const Mbarrier* chosen = nullptr;  // of those that somebody waits for, any
  each_under_way([&](const AsyncOp& op) {
    if (op.barrier == nullptr || op.landed || !op.barrier->wanted || op.barrier == chosen) return;
    if (chosen == nullptr || block.coin()) chosen = op.barrier;
  });
  each_under_way([&](AsyncOp& op) {
    if (op.barrier == nullptr || op.landed) return;
    if ((stuck && op.barrier == chosen) || (random && block.coin())) land(block, op);
  });
  if (stuck) patience_ = 0;
  return to_arrive_ < before;
}

std::uint16_t AsyncOps::actor_of(Block& block, OfLane& mine) {
  if (!mine.actor) mine.actor = block.order().new_actor();
  return *mine.actor;
}

AsyncOps::Seen AsyncOps::seen(Block& block, const Mbarrier::Copies& copies) {
  if (copies.bulk) {
    const Time time = block.order().now();
    const auto found =
        std::find_if(loads_.begin(), loads_.end(), [&](std::uint32_t i) { return ops_[i].number == copies.last; });
    const AsyncOp op = ops_[*found];
    ops_[*found].next = std::exchange(unused_, *found);
    loads_.erase(found);
    remove_written_marks(block, op);
    if (!op.overwritten) observe_done(block, op, op.barrier->actor, time);
    return {op.barrier->actor, time};
  }
  OfLane& mine = lanes_[copies.thread];
  const std::uint16_t actor = actor_of(block, mine);
  Order& order = block.order();
  while (mine.first != none && ops_[mine.first].number <= copies.last) {
    const AsyncOp op = pop(mine);
    if (op.barrier != nullptr) {
      mine.arrivals.emplace_back(op.number, order.now());
      if (op.number < copies.last) order.tick();  // what comes behind this arrival is later
      continue;
    }
    remove_written_marks(block, op);
    if (!op.overwritten) observe_done(block, op, actor, order.now());
  }
  const auto arrival =
      std::find_if(mine.arrivals.begin(), mine.arrivals.end(), [&](const auto& one) { return one.first == copies.last; });
  const Time time = arrival->second;
  mine.arrivals.erase(arrival);
  return {actor, time};
}

AsyncOp* AsyncOps::find_writer(const Bytes& bytes) {
  AsyncOp* found = nullptr;
  each_under_way([&](AsyncOp& op) {
    if (op.writes.overlap(bytes) && (found == nullptr || !op.overwritten)) found = &op;
  });
  return found;
}

AsyncOp* AsyncOps::find_reader(const Bytes& bytes) {
  AsyncOp* found = nullptr;
  each_under_way([&](AsyncOp& op) {
    if (op.reads.overlap(bytes)) found = &op;
  });
  return found;
}

bool AsyncOps::arrive_at(const Mbarrier& barrier) {
  bool found = false;
  each_under_way([&](const AsyncOp& op) { found |= op.barrier == &barrier; });
  return found;
}

void AsyncOps::commit(Lane& lane) {
  OfLane& mine = lanes_[static_cast<std::size_t>(lane.index)];
  land_some(lane, mine);
  ++mine.group;
}

void AsyncOps::wait(Lane& lane, std::size_t pending) {
  OfLane& mine = lanes_[static_cast<std::size_t>(lane.index)];
  while (mine.first != none && ops_[mine.first].group + pending < mine.group) complete_first(lane, mine);
  land_some(lane, mine);
}

void AsyncOps::remove_written_marks(Block& block, const AsyncOp& op) {
  std::uint8_t* const shadow = shadow_of_writes(block, op);
  if (shadow == nullptr) return;
  if (!op.overwritten) return remove_marks(shadow, op.writes.count, being_written);
  for (std::uint32_t i = 0; i < op.writes.count; ++i) {  // some of these bytes the later one has now
    if (find_writer({op.writes.begin + i, 1}) == nullptr) remove_marks(shadow + i, 1, being_written);
  }
}

void AsyncOps::complete_first(Lane& lane, OfLane& mine) {
  Block& block = *lane.block;
  land(block, ops_[mine.first]);
  const AsyncOp op = pop(mine);
  if (op.barrier != nullptr) return static_cast<void>(mine.arrivals.emplace_back(op.number, block.order().tick()));
  remove_written_marks(block, op);
  if (op.overwritten) return;
  if (!op.arrives) return observe_landing(lane, op);
  // Others may wait for it at an mbarrier, and not for this thread.
  Past known;
  const Time time = block.order().tick();
  block.order().add(known, actor_of(block, mine), time);
  block.order().acquire(static_cast<std::uint32_t>(lane.index), known);
  observe_done(block, op, *mine.actor, time);
}

void cp_async(void* to, const void* from, std::uint32_t bytes, std::uint32_t source_bytes, bool past_l1) {
  Lane& lane = lane_or_die();
  const AsyncOp op{.reads = {reinterpret_cast<std::uintptr_t>(from), source_bytes},
                   .writes = {reinterpret_cast<std::uintptr_t>(to), bytes},
                   .pc = __builtin_return_address(0)};
  if (lane.counting) {
    note_access(lane, {.kind = Kind::read,
                       .form = past_l1 ? Form::copy_past_l1 : Form::copy_through_l1,
                       .bytes = static_cast<std::uint8_t>(bytes),
                       .source_bytes = static_cast<std::uint8_t>(std::min(source_bytes, bytes)),  // or it is refused
                       .address = op.reads.begin,
                       .pc = op.pc,
                       .to = op.writes.begin});
  }
  if (observe_async(lane, op)) lane.block->async_ops().issue(lane, op);
}

void cp_async_commit_group() {
  Lane& lane = lane_or_die();
  note_traced(lane, "cp.async.commit_group", -1, __builtin_return_address(0));
  lane.block->async_ops().commit(lane);
}

void cp_async_wait_group(int pending) {
  Lane& lane = lane_or_die();
  note_traced(lane, "cp.async.wait_group", pending, __builtin_return_address(0));
  lane.block->async_ops().wait(lane, static_cast<std::size_t>(pending));
}

void cp_async_wait_all() {
  Lane& lane = lane_or_die();
  note_traced(lane, "cp.async.wait_all", -1, __builtin_return_address(0));
  lane.block->async_ops().commit(lane);
  lane.block->async_ops().wait(lane, 0);
}

}  // namespace simt
