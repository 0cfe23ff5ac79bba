#include "common/simt/async.h"

#include <algorithm>
#include <cstring>

#include "common/simt/access.h"
#include "common/simt/collectives.h"
#include "common/simt/cuda.h"

namespace simt {

void AsyncOps::begin_block(std::size_t threads) {
  // What was under way when the last block ended never landed: legal, nobody could have looked.
  ops_.clear();
  unused_ = none;
  lanes_.assign(threads, {});
}

template <class F>
void AsyncOps::each_under_way(F f) {
  for (const OfLane& lane : lanes_) {
    for (std::uint32_t index = lane.first; index != none; index = ops_[index].next) f(ops_[index]);
  }
}

void AsyncOps::land(AsyncOp& op) {
  if (op.landed) return;
  op.landed = true;
  auto* to = reinterpret_cast<std::uint8_t*>(op.writes.begin);
  std::memcpy(to, reinterpret_cast<const void*>(op.reads.begin), op.reads.count);
  std::memset(to + op.reads.count, 0, op.writes.count - op.reads.count);
}

// At a random time: at the instruction, or at any later commit or wait of the thread.
void AsyncOps::land_some(Lane& lane, const OfLane& mine) {
  if (options().async_mode != AsyncMode::random) return;
  for (std::uint32_t index = mine.first; index != none; index = ops_[index].next) {
    if (lane.block->coin()) land(ops_[index]);
  }
}

void AsyncOps::issue(Lane& lane, const AsyncOp& op) {
  std::uint8_t* const shadow = lane.block->arena().shadow(op.writes.begin);
  if (!all_marked(shadow, op.writes.count, 0, being_written)) {
    each_under_way([&](AsyncOp& earlier) { earlier.overwritten |= earlier.writes.overlap(op.writes); });
  }
  add_marks(shadow, op.writes.count, being_written);

  OfLane& mine = lanes_[static_cast<std::size_t>(lane.index)];
  std::uint32_t index = unused_;
  if (index == none) {
    index = static_cast<std::uint32_t>(ops_.size());
    ops_.emplace_back();
  } else {
    unused_ = ops_[index].next;
  }
  ops_[index] = op;
  ops_[index].issuer = static_cast<std::uint32_t>(lane.index);
  ops_[index].group = mine.group;
  ops_[index].next = none;
  (mine.first == none ? mine.first : ops_[mine.last].next) = index;
  mine.last = index;

  std::memset(reinterpret_cast<void*>(op.writes.begin), 0xff, op.writes.count);  // NaN in every format
  const AsyncMode mode = options().async_mode;
  if (mode == AsyncMode::eager || (mode == AsyncMode::random && lane.block->coin())) land(ops_[index]);
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

void AsyncOps::complete_first(Lane& lane, OfLane& mine) {
  const std::uint32_t index = mine.first;
  land(ops_[index]);
  const AsyncOp op = ops_[index];
  mine.first = op.next;
  ops_[index].next = unused_;
  unused_ = index;
  std::uint8_t* const shadow = lane.block->arena().shadow(op.writes.begin);
  if (!op.overwritten) {
    remove_marks(shadow, op.writes.count, being_written);
    observe_landing(lane, op);
    return;
  }
  for (std::uint32_t i = 0; i < op.writes.count; ++i) {  // some of these bytes the later one has now
    if (find_writer({op.writes.begin + i, 1}) == nullptr) remove_marks(shadow + i, 1, being_written);
  }
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
