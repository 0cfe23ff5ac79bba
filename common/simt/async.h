// What goes on beside the thread that asked for it: cp.async, and bulk copies (bulk.cpp).
//
// An operation reads bytes at one place and writes them at another, some time after the instruction that issues it. It is under
// way until somebody has waited for it. So long nobody may touch what it writes or store to what it reads, whatever barriers
// there are. Shadow bits say which bytes these are (memory.h), so that the one comparison that each access makes finds them
// too; only then does anyone look for the operation. When the bytes arrive is the hardware's choice. Here it is
// Options::async_mode's: as late as the rules allow, with the destination poisoned until then; at once; or at a random time. A
// correct kernel cannot tell.
//
// There are two ways to wait. A thread may wait for its own groups; the operation then counts as a store by this thread, which
// others see through a barrier. Or the thread's operations arrive at an mbarrier, once all of them that it issued so far have
// landed. Whoever then finds the end of that phase has waited for them. Then they are the accesses of an actor of their own: it
// comes before those who have waited at the mbarrier, and before nobody else. A bulk copy to shared memory is waited for at an
// mbarrier, one to device memory in a thread's group; of the latter a thread may also wait until no more than the source was
// read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/simt/mbarrier.h"
#include "common/simt/memory.h"

namespace simt {

class Block;
struct Lane;

struct Bytes {
  std::uintptr_t begin;
  std::uint32_t count;
  bool overlap(const Bytes& other) const {  // no bytes overlap nothing
    return std::max(begin, other.begin) < std::min(begin + count, other.begin + other.count);
  }
};

struct AsyncOp {
  Bytes reads;   // of device memory; of a bulk store, of shared memory, and none once its thread has waited for that
  Bytes writes;  // of shared memory; what is not read is filled with zeros. Of a bulk store, of device memory
  const void* pc;
  std::uint32_t issuer = 0;  // a thread of the block
  std::uint64_t group = 0;   // of the issuer's
  std::uint64_t number = 0;  // in which order the block's were issued
  bool landed = false;       // the bytes are there; it has arrived
  bool arrives = false;      // later on, at an mbarrier, together with others of its thread
  // Where a bulk copy says how many bytes have come. Without bytes to write, this is no copy: all cp.async of the thread before
  // it arrive there, once they have landed.
  Mbarrier* barrier = nullptr;
  bool source_stored = false;  // somebody stored to what it reads, which was reported
  bool overwritten = false;    // a later operation writes there, which was reported
  std::uint32_t next = 0;      // issued by the same thread, or not in use: an index
};

// The operations of one block. A thread's are done in groups, in the order in which these were committed.
class AsyncOps {
 public:
  void begin_block(std::size_t threads);

  void issue(Lane& lane, const AsyncOp& op);
  void commit(Lane& lane);                                     // what was issued since the last commit is one group
  void wait(Lane& lane, std::size_t pending);                  // until at most `pending` groups are under way
  void arrive(Lane& lane, Mbarrier& barrier, const void* pc);  // what was issued so far, once it has landed

  void issue_load(Lane& lane, const AsyncOp& op);
  void issue_store(Lane& lane, const AsyncOp& op);
  void commit_bulk(Lane& lane);
  void wait_bulk(Lane& lane, std::size_t pending, bool until_read);
  void end_lane(Lane& lane);  // looks at what it leaves behind
  void end_block(Block& block);

  // At the end of each round. Of what arrives at mbarriers some lands, if the mode says so; or if the block is stuck, and some
  // lane asks for it (or has asked for long: others may go on for ever without it). True if something has landed.
  bool land_for_mbarriers(Block& block, bool stuck);
  // Somebody has found the end of the phase in which these arrived. They are an actor's, until some time: so much of the actor
  // everyone has seen who finds that end.
  struct Seen {
    std::uint16_t actor;
    Time time;
  };
  Seen seen(Block& block, const Mbarrier::Copies& copies);

  // One under way that writes any of these bytes, or reads them; null if there is none. Looks at all: ask the shadow first.
  AsyncOp* find_writer(const Bytes& bytes);
  AsyncOp* find_reader(const Bytes& bytes);
  bool arrive_at(const Mbarrier& barrier);  // some that are under way

 private:
  static constexpr std::uint32_t none = 0xffffffffu;

  struct OfLane {  // a queue through AsyncOp::next
    std::uint32_t first = none;
    std::uint32_t last = none;
    std::uint64_t group = 0;  // to which what is issued now will belong: so many were committed
    std::optional<std::uint16_t> actor = {};
    // Arrivals at mbarriers, by number, of which the phase's end was not found yet: when what came before them was seen, by who
    // waited for something else.
    std::vector<std::pair<std::uint64_t, Time>> arrivals = {};
  };
  template <class F>
  void each_under_way(F f);
  static bool lands_at_once(Block& block);
  std::uint32_t add(Lane& lane, const AsyncOp& op);
  AsyncOp& push(Lane& lane, OfLane& mine, const AsyncOp& op);
  AsyncOp pop(OfLane& mine);
  std::uint16_t actor_of(Block& block, OfLane& mine);
  void land(Block& block, AsyncOp& op);
  void mark_writes(Block& block, const AsyncOp& op);
  void remove_written_marks(Block& block, const AsyncOp& op);
  void read_source(AsyncOp& op);
  void was_read(Lane& lane, AsyncOp& op);
  void land_some(Lane& lane, const OfLane& mine);
  void complete_first(Lane& lane, OfLane& mine);

  std::vector<OfLane> lanes_;
  std::vector<OfLane> stores_;        // bulk copies to device memory; none while there were none
  std::vector<std::uint32_t> loads_;  // bulk copies to shared memory
  std::unordered_map<std::uint64_t, std::vector<std::uint8_t>> read_;  // by number, what bulk stores have read
  std::vector<AsyncOp> ops_;
  std::uint32_t unused_ = none;  // the first of ops_ that is not in use
  std::uint64_t issued_ = 0;
  std::size_t to_arrive_ = 0;  // that have not landed
  int patience_ = 0;           // so many rounds ago, something arrived, or could have
};

}  // namespace simt
