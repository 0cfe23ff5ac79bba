#include "common/simt/async.h"

#include <algorithm>
#include <cstring>

#include "common/simt/access.h"
#include "common/simt/collectives.h"
#include "common/simt/cuda.h"

namespace simt {

void AsyncCopies::begin_block(std::size_t threads, std::size_t shared_bytes) {
  // What was under way when the last block ended never landed: legal, nobody could have looked.
  if (count_ > 0) std::fill(by_word_.begin(), by_word_.end(), none);
  count_ = 0;
  under_way_.clear();
  unused_ = none;
  lanes_.assign(threads, {});
  const std::size_t words = (shared_bytes + 3) / 4;
  if (by_word_.size() < words) by_word_.resize(words, none);
}

void AsyncCopies::land(AsyncCopy& copy) {
  if (copy.landed) return;
  copy.landed = true;
  auto* to = reinterpret_cast<std::uint8_t*>(copy.to);
  std::memcpy(to, reinterpret_cast<const void*>(copy.from), copy.source_bytes);
  std::memset(to + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
}

// At a random time: at the instruction, or at any later commit or wait of the thread.
void AsyncCopies::land_some(Lane& lane, const OfLane& mine) {
  if (options().async_mode != AsyncMode::random) return;
  for (std::uint32_t index = mine.first; index != none; index = under_way_[index].next) {
    if (lane.block->coin()) land(under_way_[index].copy);
  }
}

template <class Set>
void AsyncCopies::each_word(Lane& lane, const AsyncCopy& copy, Set set) {
  const std::size_t offset = copy.to - lane.block->arena().begin();
  for (std::size_t word = offset / 4; word < (offset + copy.bytes + 3) / 4; ++word) set(by_word_[word]);
}

void AsyncCopies::issue(Lane& lane, const AsyncCopy& copy) {
  const auto thread = static_cast<std::uint32_t>(lane.index);
  OfLane& mine = lanes_[thread];
  std::uint32_t index = unused_;
  if (index == none) {
    index = static_cast<std::uint32_t>(under_way_.size());
    under_way_.emplace_back();
  } else {
    unused_ = under_way_[index].next;
  }
  under_way_[index] = {copy, thread, none, mine.group};
  (mine.first == none ? mine.first : under_way_[mine.last].next) = index;
  mine.last = index;
  ++count_;
  each_word(lane, copy, [index](std::uint32_t& word) { word = index; });

  std::memset(reinterpret_cast<void*>(copy.to), 0xff, copy.bytes);  // NaN in every format
  const AsyncMode mode = options().async_mode;
  if (mode == AsyncMode::eager || (mode == AsyncMode::random && lane.block->coin())) land(under_way_[index].copy);
}

void AsyncCopies::commit(Lane& lane) {
  OfLane& mine = lanes_[static_cast<std::size_t>(lane.index)];
  land_some(lane, mine);
  ++mine.group;
}

void AsyncCopies::wait(Lane& lane, std::size_t pending) {
  OfLane& mine = lanes_[static_cast<std::size_t>(lane.index)];
  while (mine.first != none && under_way_[mine.first].group + pending < mine.group) complete_first(lane, mine);
  land_some(lane, mine);
}

void AsyncCopies::complete_first(Lane& lane, OfLane& mine) {
  const std::uint32_t index = mine.first;
  land(under_way_[index].copy);
  const AsyncCopy copy = under_way_[index].copy;
  bool alone = true;
  each_word(lane, copy, [&](std::uint32_t& word) {
    alone &= word == index;
    if (word == index) word = none;
  });
  mine.first = under_way_[index].next;
  under_way_[index].next = unused_;
  unused_ = index;
  --count_;
  if (alone) observe_landing(lane, copy);  // or a later copy to the same place was reported when it was issued
}

void cp_async(void* to, const void* from, std::uint32_t bytes, std::uint32_t source_bytes, bool past_l1) {
  Lane& lane = lane_or_die();
  const AsyncCopy copy{reinterpret_cast<std::uintptr_t>(to),
                       reinterpret_cast<std::uintptr_t>(from),
                       bytes,
                       source_bytes,
                       __builtin_return_address(0),
                       false};
  if (lane.counting) {
    const Form form = past_l1 ? Form::copy_past_l1 : Form::copy_through_l1;
    await_issue(lane, {lane.lane(), copy.from, bytes, Kind::read, form, copy.pc, copy.to, source_bytes});
  }
  if (observe_async(lane, copy)) lane.block->copies().issue(lane, copy);
}

void cp_async_commit_group() {
  Lane& lane = lane_or_die();
  await_traced(lane, "cp.async.commit_group", -1, __builtin_return_address(0));
  lane.block->copies().commit(lane);
}

void cp_async_wait_group(int pending) {
  Lane& lane = lane_or_die();
  await_traced(lane, "cp.async.wait_group", pending, __builtin_return_address(0));
  lane.block->copies().wait(lane, static_cast<std::size_t>(pending));
}

void cp_async_wait_all() {
  Lane& lane = lane_or_die();
  await_traced(lane, "cp.async.wait_all", -1, __builtin_return_address(0));
  lane.block->copies().commit(lane);
  lane.block->copies().wait(lane, 0);
}

}  // namespace simt
