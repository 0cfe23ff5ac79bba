// mbarriers: barriers that lie in shared memory, as many as a kernel wants.
//
// A phase of an mbarrier ends when as many arrivals have come as init() said, and as many bytes of asynchronous copies as were
// expected; then the next phase begins. A thread asks whether the phase of some parity has ended: the one under way, or the one
// before it. Threads arrive, and so do their copies, later (cp.async.mbarrier.arrive): PTX ISA, "mbarrier".
//
// The state lies here, not in the kernel's memory; a shadow bit keeps plain accesses from those bytes. What orders what: all
// that a thread did before it arrived comes before what another one does after it has found that phase at its end. Copies are
// actors' (races.h): who has found the end of the phase in which they arrived has seen what they did, and nobody else has.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "common/simt/races.h"

namespace simt {

struct Lane;
class Block;

struct Mbarrier {
  static constexpr int most = (1 << 20) - 1;  // arrivals, and bytes that are expected

  struct Copies {  // of a thread, that arrive together: all that it issued up to this one; or one bulk copy
    std::uint32_t thread;
    std::uint64_t last;
    bool bulk = false;
  };
  struct Use {
    Time time = 0;
    const void* pc = nullptr;
  };

  std::uintptr_t address = 0;
  bool live = false;           // between init and inval
  std::uint32_t arrivals = 0;  // of a phase
  std::uint32_t pending = 0;   // of them
  std::int32_t bytes = 0;      // that are still to come; fewer than none: that came, and were not expected so far
  std::uint32_t phase = 0;     // under way: so many are over
  bool wanted = false;         // somebody has asked for the end of this phase, in vain
  std::vector<Lane*> waiting;  // for it

  std::uint16_t actor = 0;
  Meeting meeting;                // of all who arrived
  Past past;                      // of who finds the last phase at its end
  std::array<Time, 2> ends = {};  // of the last two phases, the last one first: has_seen(actor)
  std::vector<Copies> landed;     // and arrived, in the phase under way
  std::vector<Copies> unseen;     // in earlier ones, which nobody has found at their end

  AccessRecord set;       // by init, or inval
  bool was_set = false;   // in this launch
  std::vector<Use> uses;  // by thread, the last of each
};

// A lane's part in it. While the lane waits, it is kept there.
struct MbarrierCall {
  const char* name = "";  // of the instruction
  std::uintptr_t address = 0;
  unsigned parity = 0;
  std::source_location where = {};
  const void* pc = nullptr;
  const Mbarrier* barrier = nullptr;  // for which the lane waits
  const Block* block = nullptr;
  std::string describe() const;
};

// Those of one block.
class Mbarriers {
 public:
  void begin_block() { barriers_.clear(); }

  void init(Lane& lane, const MbarrierCall& call, int arrivals);
  void inval(Lane& lane, const MbarrierCall& call);
  void arrive(Lane& lane, const MbarrierCall& call);
  void expect(Lane& lane, const MbarrierCall& call, int bytes);
  bool test(Lane& lane, const MbarrierCall& call);  // is the phase of this parity over? If so, acquire() lets the lane see it
  void wait(Lane& lane, const MbarrierCall& call);
  void acquire(Lane& lane, std::uintptr_t address);
  std::uint32_t phase_of(std::uintptr_t address) { return at(address).phase; }

  // The mbarrier that the lane is about to use; null if there is none, which was reported.
  Mbarrier* use(Lane& lane, const MbarrierCall& call);
  // Copies of a thread have landed, and arrive.
  void copies_arrive(Block& block, Mbarrier& barrier, const Mbarrier::Copies& copies, const void* pc);
  void bytes_arrive(Block& block, Mbarrier& barrier, const Mbarrier::Copies& copy, std::uint32_t bytes);

 private:
  Mbarrier& at(std::uintptr_t address);
  void end_phase_if_over(Block& block, Mbarrier& barrier, const Lane* last);
  void set(Lane& lane, const MbarrierCall& call, Mbarrier& barrier);

  std::map<std::uintptr_t, Mbarrier> barriers_;  // by address
};

}  // namespace simt
