// What Nsight Compute would count. Block::issue puts the accesses of lanes together, so that one access of one warp is one
// request here as it is on the hardware; this file turns requests into numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/simt/races.h"
#include "common/simt/simt.h"

namespace simt {

// An access of a lane, which waits to be counted with those of other lanes.
struct PendingAccess {
  std::uint8_t lane = 0;  // in the warp
  Kind kind = Kind::read;
  Form form = Form::global;
  std::uint8_t bytes = 0;         // width of the access
  std::uint8_t source_bytes = 0;  // of a cp.async
  bool predicated_off = false;    // waits with the others, but takes no part
  std::int16_t operand = -1;      // of an instruction that is no access; a larger one is kept as 32,767
  std::uintptr_t address = 0;     // of a cp.async: of its source
  const void* pc = nullptr;
  std::uintptr_t to = 0;     // of a cp.async
  const char* op = nullptr;  // of an instruction that is no access: its name; only a trace wants to know of it
};
static_assert(sizeof(PendingAccess) == 48);  // moving them to and from memory takes much of the time of a count

// What a lane has accessed and its warp has not issued, in order.
class PendingAccesses {
 public:
  static constexpr std::size_t most = 32;  // so that the lists of a block fit into a cache

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == most; }
  const PendingAccess& first() const { return list_[issued_]; }
  // Always inlined: the access is then made in its place. One that is made elsewhere, field by field, and copied in wide moves
  // right afterwards costs a stall for each.
  [[gnu::always_inline]] void add(const PendingAccess& access) {
    if (list_ == nullptr) list_ = std::make_unique<PendingAccess[]>(most);
    list_[count_++] = access;
  }
  void remove_first() {
    if (++issued_ == count_) clear();
  }
  void clear() { count_ = issued_ = 0; }

 private:
  std::unique_ptr<PendingAccess[]> list_;
  std::size_t count_ = 0, issued_ = 0;
};

inline bool is_copy(Form form) { return form == Form::copy_through_l1 || form == Form::copy_past_l1; }

// 32-byte sectors of device memory that a request touches.
std::uint64_t sectors_of(std::span<const PendingAccess> request);

// Passes through the 32 banks of shared memory that a request needs, and the fewest that its lanes could do with.
struct Wavefronts {
  std::uint64_t needed;
  std::uint64_t ideal;
  Wavefronts& operator+=(const Wavefronts& other) {
    needed += other.needed;
    ideal += other.ideal;
    return *this;
  }
};
Wavefronts wavefronts_of(std::span<const PendingAccess> request);

// What one request costs.
struct Cost {
  std::uint64_t sectors = 0;
  Wavefronts wavefronts = {};
};

// The counts of one worker, or of a whole launch.
class Counters {
 public:
  Cost request(std::span<const PendingAccess> lanes);  // by lanes of one warp, at one place in the code
  void barrier(std::uint64_t warps) { barriers_ += warps; }
  void shuffle(std::uint64_t instructions) { shuffles_ += instructions; }
  // ldmatrix, or stmatrix; rows of 16 bytes, 8 for each matrix.
  Wavefronts matrices(const void* pc, Kind kind, std::span<const std::uintptr_t> rows);
  void tensor_instruction() { ++tensor_instructions_; }
  // The access at this place goes to shared memory of another block, too, which the hardware counts elsewhere; in how many
  // requests, is not known. So nothing is counted of what it does in shared memory.
  void reaches_others(const void* pc) { reaching_others_.insert(pc); }
  void add(const Counters& other);
  KernelCounters result(const Launch& launch) const;

 private:
  struct Site {
    const void* pc;
    Form form;
    Kind kind;
    std::uint32_t bytes;
    bool operator==(const Site&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Site& site) const {
      return reinterpret_cast<std::uintptr_t>(site.pc) * 8 + static_cast<std::size_t>(site.form);
    }
  };
  struct Counts {
    std::uint64_t instructions = 0;
    std::uint64_t requests = 0;
    std::uint64_t sectors = 0;
    Wavefronts wavefronts = {};
  };
  std::unordered_map<Site, Counts, Hash> sites_;
  std::unordered_set<const void*> reaching_others_;
  std::uint64_t barriers_ = 0;
  std::uint64_t shuffles_ = 0;
  std::uint64_t tensor_instructions_ = 0;
};

// Which sectors of device memory a launch loads and stores, each once: the least that can move between DRAM and the chip.
struct Footprint {
  static void clear();  // before a launch
  static void mark(const PendingAccess& access);
  static std::uint64_t bytes(Kind kind);
};

}  // namespace simt
