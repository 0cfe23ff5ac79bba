// The blocks of a cluster: they begin together, wait for each other, and reach each other's shared memory, which stays until
// all have ended. A launch without clusters has clusters of one block.
//
// One worker runs all blocks of a cluster, round by round, in a seeded order. A block in which every lane waits is stuck only
// if no other block of the cluster can go on.
//
// Who reaches the shared memory of another block is looked at as if the memory were its own, and by the rules of two blocks. So
// what was read and written there is remembered until all threads of the cluster have met at its barrier: a barrier of one
// block orders nothing for the others. And the other block must be there, whatever the schedule: the access waits until it has
// begun, and it waits for the access before it ends, by the barrier of the cluster or by flags.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/simt/access.h"
#include "common/simt/engine.h"

namespace simt {

class Cluster {
 public:
  void begin(Run& run, std::size_t number, Counters& counters);  // number: in the order of the run
  Block::Status round();                                         // of all blocks that have not ended
  void issue_rest();                                             // of a launch that was stopped

  std::size_t size() const { return size_; }
  Block& block(std::size_t rank) { return *blocks_[rank]; }
  const Block& block(std::size_t rank) const { return *blocks_[rank]; }
  bool yielded() const { return yielded_; }  // as of a block
  bool stored() const { return stored_; }
  Flags& shared_flags() { return shared_flags_; }
  Block* owner_of(std::uintptr_t address);  // of this shared memory; null: none of the cluster's
  const Block* owner_of(std::uintptr_t address) const;

  // An access to the owner's shared memory by a thread of another block: is the owner there? False if it has ended.
  bool reaches(Lane& lane, Block& owner, const Access& access);
  // A thread of the owner makes an atomic or volatile read there: it has waited for the atomics that it finds.
  void found(const Block& owner, std::uintptr_t address);

  // The barrier of the cluster, by all lanes of a warp that have not exited.
  void arrive(Block& block, const std::vector<std::uint32_t>& lanes, bool releases);
  void wait(Block& block, const std::vector<std::uint32_t>& lanes, bool at_once);  // at_once: they have just arrived
  void exited(const Lane& lane) {
    --live_;
    if (lane.cluster_arrivals > opened_) --arrived_;
  }

 private:
  struct Reached {
    AccessRecord record;
    Kind kind;
    std::uint32_t bytes;
    std::uintptr_t address;
  };
  using Who = std::pair<std::uint32_t, std::uint32_t>;  // by block and thread
  struct OfBlock {
    Meeting meeting;          // of its threads that have arrived, with a release
    std::size_t at_once = 0;  // of these wait, and have done nothing in between
    Past past;                // what they hand on to each other, once it has opened
    // By threads of other blocks. Of plain ones the last: what waits for it waits for those before it.
    std::map<Who, Reached> reached;
    std::map<std::pair<std::uintptr_t, Who>, Reached> atomics;
  };
  void open();
  void report(const Block& owner, const Reached& access, bool ended) const;
  void end(Block& block);
  void report_stuck();

  Run* run_ = nullptr;
  std::size_t size_ = 0;
  std::vector<std::unique_ptr<Block>> blocks_;  // perhaps more than size_: of an earlier launch
  std::vector<std::size_t> order_;
  std::uint64_t random_ = 0;
  std::size_t ended_ = 0;
  bool yielded_ = false;
  bool stored_ = false;
  Flags shared_flags_;
  std::vector<OfBlock> of_blocks_;
  // Of the barrier.
  std::size_t live_ = 0;      // threads that have not exited
  std::size_t arrived_ = 0;   // of these, since it last opened
  std::uint32_t opened_ = 0;  // so many times
  Past past_;                 // what the last time handed on to all
};

}  // namespace simt
