#include "common/simt/cluster.h"

#include <algorithm>
#include <numeric>

#include "common/simt/collectives.h"
#include "common/simt/cuda.h"
#include "common/simt/symbols.h"

namespace simt {

void Cluster::begin(Run& run, std::size_t number, Counters& counters) {
  const dim3 cluster = run.launch.cluster;
  run_ = &run;
  size_ = std::size_t{cluster.x} * cluster.y * cluster.z;
  while (blocks_.size() < size_) blocks_.push_back(std::make_unique<Block>());
  order_.resize(size_);
  std::iota(order_.begin(), order_.end(), 0);
  random_ = options().seed + number;
  ended_ = arrived_ = opened_ = live_ = 0;
  shared_flags_.clear();
  of_blocks_.assign(size_, {});
  past_ = {};
  for (std::size_t rank = 0; rank < size_; ++rank) {
    Block& block = *blocks_[rank];
    block.begin(run, run.order[number * size_ + rank], counters, *this, static_cast<int>(rank));
    live_ += block.threads();
    if (run.ordered) run.open.push_back(&block);
  }
}

Block::Status Cluster::round() {
  yielded_ = stored_ = false;
  bool waiting = true, spinning = true;
  for (std::size_t i = size_; i > 1; --i) std::swap(order_[i - 1], order_[next_random(random_) % i]);
  for (const std::size_t rank : order_) {
    Block& block = *blocks_[rank];
    if (block.ended()) continue;
    const Block::Status status = block.round();
    if (run_->stopped) return Block::Status::stuck;
    yielded_ |= block.yielded();
    stored_ |= block.stored();
    waiting &= status == Block::Status::waiting;
    spinning &= status == Block::Status::waiting || status == Block::Status::spinning;
    if (status == Block::Status::done) end(block);
    if (arrived_ > 0 && arrived_ == live_) {
      open();
      waiting = spinning = false;
    }
  }
  if (ended_ == size_) return Block::Status::done;
  if (waiting) {
    report_stuck();
    return Block::Status::stuck;
  }
  return spinning ? Block::Status::spinning : Block::Status::progressed;
}

void Cluster::issue_rest() {
  for (std::size_t rank = 0; rank < size_; ++rank) blocks_[rank]->issue_rest();
}

Block* Cluster::owner_of(std::uintptr_t address) {
  return const_cast<Block*>(static_cast<const Cluster*>(this)->owner_of(address));
}

const Block* Cluster::owner_of(std::uintptr_t address) const {
  for (std::size_t rank = 0; rank < size_; ++rank) {
    if (blocks_[rank]->arena().contains(address)) return blocks_[rank].get();
  }
  return nullptr;
}

// ---- one block reaches another's shared memory ----

bool Cluster::reaches(Lane& lane, Block& owner, const Access& access) {
  Order& order = lane.block->order();
  const auto thread = static_cast<std::uint16_t>(lane.index);
  const Reached now{{order.block(), order.now(), access.pc, thread, 15, access.scope, access.wide},
                    access.kind,
                    access.bytes,
                    access.address};
  if (owner.ended()) {
    report(owner, now, true);
    return false;
  }
  // At the barrier of the cluster all have begun, whatever they let others see.
  if (lane.cluster_waits == 0 && !order.knows_of(thread, owner.linear_index())) report(owner, now, false);
  OfBlock& of_owner = of_blocks_[static_cast<std::size_t>(owner.rank())];
  const Who who{order.block(), thread};
  if (access.scope == Scope::thread) {
    of_owner.reached.insert_or_assign(who, now);
  } else {
    of_owner.atomics.insert_or_assign({access.address, who}, now);
  }
  return true;
}

void Cluster::found(const Block& owner, std::uintptr_t address) {
  auto& atomics = of_blocks_[static_cast<std::size_t>(owner.rank())].atomics;
  atomics.erase(atomics.lower_bound({address, {}}), atomics.lower_bound({address + 1, {}}));
}

void Cluster::report(const Block& owner, const Reached& access, bool ended) const {
  const Unobserved unobserved;
  const void* const pc = access.record.pc();
  run_->report(ended ? "exited block" : "block not begun", place_of(pc), pc, [&] {
    return std::string(access.kind == Kind::read ? "read" : "write") + " of " + std::to_string(access.bytes) + " bytes at " +
           describe_target(owner, access.address) + " of " + owner.describe() +
           (ended ? ", which may have ended by then: it does not wait for this access"
                  : ", which may not have begun by then: this access does not wait for it") +
           "\n  by " + describe_thread(run_->launch, access.record.block(), access.record.thread());
  });
}

// The block has ended. An access that none of its threads knows of may come now, or later.
void Cluster::end(Block& block) {
  ++ended_;
  std::erase(run_->open, &block);
  const auto check = [&](const Reached& access) {
    bool known = false;
    for (std::uint32_t thread = 0; thread < block.threads() && !known; ++thread) {
      known = block.order().before(access.record, thread);
    }
    if (!known) report(block, access, true);
  };
  const OfBlock& of_block = of_blocks_[static_cast<std::size_t>(block.rank())];
  for (const auto& [who, access] : of_block.reached) check(access);
  for (const auto& [where, access] : of_block.atomics) check(access);
}

// ---- its barrier ----

void Cluster::arrive(Block& block, const std::vector<std::uint32_t>& lanes, bool releases) {
  OfBlock& mine = of_blocks_[static_cast<std::size_t>(block.rank())];
  for (const std::uint32_t lane : lanes) ++block.lane(lane).cluster_arrivals;
  arrived_ += lanes.size();
  if (releases) block.order().arrive(mine.meeting, lanes, true);
}

void Cluster::wait(Block& block, const std::vector<std::uint32_t>& lanes, bool at_once) {
  OfBlock& mine = of_blocks_[static_cast<std::size_t>(block.rank())];
  if (size_ == 1) block.counters().barrier(1);  // where a launch has no clusters, nvcc's code comes to __syncthreads() instead
  for (const std::uint32_t lane : lanes) ++block.lane(lane).cluster_waits;
  if (block.lane(lanes.front()).cluster_waits <= opened_) return block.order().acquire(lanes, mine.past, past_);
  for (const std::uint32_t lane : lanes) {
    block.lane(lane).state = Lane::State::in_barrier;
    block.lane(lane).barrier = *block.lane(lane).call->barrier;
  }
  if (at_once) mine.at_once += lanes.size();
}

// All threads of the cluster have arrived, or exited.
void Cluster::open() {
  ++opened_;
  arrived_ = 0;
  past_ = {};
  bool all_wait = true;
  // It may be a full barrier of a block, too.
  const auto is_full = [&](std::size_t rank) { return of_blocks_[rank].at_once == blocks_[rank]->threads(); };
  for (std::size_t rank = 0; rank < size_; ++rank) {
    Block& block = *blocks_[rank];
    OfBlock& mine = of_blocks_[rank];
    if (is_full(rank)) {
      block.full_barrier();
      block.order().hand_on(past_);
      mine.meeting = {};
    } else {
      block.order().hand_on(mine.meeting, mine.past, past_);
      all_wait = false;
    }
  }
  for (std::size_t rank = 0; rank < size_; ++rank) {
    Block& block = *blocks_[rank];
    std::vector<std::uint32_t> waiting;
    for (std::uint32_t i = 0; i < block.threads(); ++i) {
      Lane& lane = block.lane(i);
      if (lane.state != Lane::State::in_barrier || !lane.barrier.of_cluster()) continue;
      lane.state = Lane::State::runnable;
      waiting.push_back(i);
    }
    if (is_full(rank)) {
      block.order().acquire(past_);
    } else {
      block.order().acquire(waiting, of_blocks_[rank].past, past_);
    }
    if (all_wait) block.races().forget();
    of_blocks_[rank].at_once = 0;
  }
}

// Nobody can run: says who waits where. The report's place is of one who waits for something else than the cluster, if there is
// one.
void Cluster::report_stuck() {
  std::source_location place;
  const void* pc = nullptr;
  bool of_cluster = true;
  std::string text = size_ == 1 ? "every thread of " + blocks_[0]->describe() + " waits"
                                : "every thread of a cluster that has not exited waits";
  for (std::size_t rank = 0; rank < size_; ++rank) {
    const Block& block = *blocks_[rank];
    if (block.ended()) {
      text += "\n  " + block.describe() + " has ended";
      continue;
    }
    std::map<std::string, std::uint32_t> waiting;  // "warp 0 lanes @ wait in … at FILE:LINE" → lanes
    for (std::size_t i = 0; i < block.threads(); ++i) {
      const Lane& lane = block.lane(i);
      std::string state = "have exited";
      const auto waits_in = [&](const auto& call, bool for_cluster) {
        if (of_cluster || !for_cluster) {
          place = call.where;
          pc = call.pc;
          of_cluster = for_cluster;
        }
        state = "wait in " + call.describe() + " at " + with_callers(place_of(call.where), call.pc);
      };
      if (lane.state == Lane::State::in_barrier) waits_in(lane.barrier, lane.barrier.of_cluster());
      if (lane.state == Lane::State::in_warp_call) waits_in(*lane.call, false);
      if (lane.state == Lane::State::at_mbarrier) waits_in(lane.mbarrier, false);
      waiting["warp " + std::to_string(lane.warp()) + " lanes @ " + state] |= 1u << lane.lane();
    }
    for (const auto& [state, lanes] : waiting) {
      const std::size_t at = state.find('@');
      text += "\n  " + (size_ == 1 ? "" : block.describe() + ", ") + state.substr(0, at) + ranges(lanes) + state.substr(at + 1);
    }
  }
  run_->report("deadlock", place_of(place), pc, [&] { return text; });
  run_->stopped = true;
}

// ---- for kernels ----

namespace {

[[noreturn]] void refuse(Lane& lane, const std::source_location& where, const void* pc, const std::string& why) {
  await_products(lane);
  lane.block->run().report("cluster misuse", place_of(where), pc, [&] { return why + "\n  by " + lane.block->describe(lane); });
  lane.block->stop(lane);
}

using Resolve = void (*)(Block& block, Warp& warp, WarpCall* const calls[warp_size]);

// The instruction is the warp's: each lane waits for all that have not exited.
void meet_in_warp(const char* name, Resolve resolve, const std::source_location& where, const void* pc) {
  const BarrierCall call{.name = name, .id = BarrierCall::number_of_cluster, .where = where, .pc = pc};
  WarpCall of_warp{name, 0xffffffffu, where, pc, resolve};
  of_warp.spares_exited = true;
  of_warp.barrier = &call;
  meet(of_warp);
}

std::vector<std::uint32_t> lanes_of(const Warp& warp, WarpCall* const calls[warp_size]) {
  std::vector<std::uint32_t> lanes;
  for (int l = 0; l < warp.count; ++l) {
    if (calls[l] != nullptr) lanes.push_back(static_cast<std::uint32_t>(warp.lanes[l].index));
  }
  return lanes;
}

template <bool releases>
void arrive(const char* name, const std::source_location& where, const void* pc) {
  Lane& lane = lane_or_die();
  note_traced(lane, name, -1, pc);
  if (lane.cluster_arrivals != lane.cluster_waits) {
    refuse(lane, where, pc, std::string(name) + ": the thread has arrived before, and has not waited since");
  }
  const Resolve resolve = [](Block& block, Warp& warp, WarpCall* const* calls) {
    block.cluster().arrive(block, lanes_of(warp, calls), releases);
  };
  meet_in_warp(name, resolve, where, pc);
}

template <bool at_once>
void wait(const std::source_location& where, const void* pc) {
  static constexpr const char* name = "barrier.cluster.wait";
  Lane& lane = lane_or_die();
  note_traced(lane, name, -1, pc);
  if (lane.cluster_arrivals == lane.cluster_waits) refuse(lane, where, pc, std::string(name) + ": the thread has not arrived");
  const Resolve resolve = [](Block& block, Warp& warp, WarpCall* const* calls) {
    block.cluster().wait(block, lanes_of(warp, calls), at_once);
  };
  meet_in_warp(name, resolve, where, pc);
}

}  // namespace

int cluster_rank() { return lane_or_die().block->rank(); }
int cluster_size() { return static_cast<int>(lane_or_die().block->cluster().size()); }

void cluster_arrive(const std::source_location& where) {
  arrive<true>("barrier.cluster.arrive", where, __builtin_return_address(0));
}

void cluster_arrive_relaxed(const std::source_location& where) {
  arrive<false>("barrier.cluster.arrive.relaxed", where, __builtin_return_address(0));
}

void cluster_wait(const std::source_location& where) { wait<false>(where, __builtin_return_address(0)); }

void cluster_sync(const std::source_location& where) {
  const void* const pc = __builtin_return_address(0);
  arrive<true>("barrier.cluster.arrive", where, pc);
  wait<true>(where, pc);
}

void* mapa(const void* pointer, int rank, const std::source_location& where) {
  const void* const pc = __builtin_return_address(0);
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  Lane& lane = lane_or_die();
  Cluster& cluster = lane.block->cluster();
  const Block* const owner = cluster.owner_of(address);
  if (owner == nullptr) refuse(lane, where, pc, "mapa: the address is not in the shared memory of a block of the cluster");
  if (rank < 0 || static_cast<std::size_t>(rank) >= cluster.size()) {
    refuse(lane, where, pc,
           "mapa: there is no block " + std::to_string(rank) + " in a cluster of " + std::to_string(cluster.size()));
  }
  return reinterpret_cast<void*>(cluster.block(static_cast<std::size_t>(rank)).arena().low() +
                                 (address - owner->arena().low()));
}

}  // namespace simt
