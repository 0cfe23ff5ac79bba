// Dependent launches (Launch::dependent) may begin before the launch before them has ended. Here launches run one after the
// other all the same. That is one of the schedules of a GPU. In all others the values may differ only where an access of the
// dependent launch is not ordered behind those of an earlier one, and each such access is reported, whatever it finds.
//
// What is ordered. When a plain launch begins, all before it have ended; when the host has waited, too. When a dependent launch
// begins, the launch before it may still run, and so may those for which that one did not wait yet. A thread that has made
// griddepcontrol.wait, or has seen by a barrier or a flag that another one did, comes behind the launch before. It also comes
// behind what that launch has waited for, since that ended first. If that launch has not waited, nothing in the chain of
// dependent launches says any more that those before it have ended: they are lost.
//
// What launches touch. While a launch runs, nobody knows whether a dependent one follows. So it leaves no more than it leaves
// to find races: marks with places (memory.h), or the records of an ordered launch. A dependent launch that begins makes a
// record of these.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/simt/memory.h"
#include "common/simt/races.h"
#include "common/simt/simt.h"

namespace simt {

struct Access;
struct Lane;

// Which device memory launches have touched, and where in the code: of each half of a word the last write and the last read.
// Bytes of one half are not told apart.
class Touched {
 public:
  struct Touch {
    std::uint32_t site : 30;  // in sites_, plus 1; 0: nobody
    std::uint32_t scope : 2;  // as of a Mark
  };
  struct Found {
    Function kernel;
    const void* pc;
    Kind kind;
    std::uintptr_t address;
  };

  bool empty() const { return pages_.empty(); }
  void add(Function kernel, const DeviceRaces& records);       // of a launch that ran in order
  void add_marked(Function kernel, std::uint32_t first_mark);  // of one that left marks
  void add(const Touched& later);
  std::optional<Found> conflict(const Access& access) const;  // what nothing but an order of launches would keep apart

 private:
  struct Half {
    Touch write, read;
  };
  static constexpr std::size_t page_halves = 2048;
  using Page = std::array<Half, page_halves>;
  struct Site {
    Function kernel;
    const void* pc;
    bool operator==(const Site&) const = default;
  };
  std::uint32_t site(const Site& site);
  Half& half_at(std::size_t index);
  void touch(std::uintptr_t word, unsigned halves, Kind kind, std::uint64_t scope, const Site& by);
  static void put(Touch& last, Touch now);

  std::unordered_map<std::size_t, std::unique_ptr<Page>> pages_;  // by the index of their first half, in pages
  std::vector<Site> sites_;
};

class EarlierLaunches {
 public:
  void follow();  // a dependent launch begins
  void forget();  // all have ended: the host has waited, or a plain launch begins
  struct Last {
    Function kernel;
    std::uint32_t first_mark;
    std::optional<DeviceRaces> records;  // of an ordered launch, which leaves no marks
    bool waited;                         // or did not need to
  };
  void ran(Last last) { last_ = std::move(last); }

  bool any_lost() const { return !lost_.empty(); }
  // An access that a thread makes before, or behind, a wait: what of the earlier launches it is not ordered behind.
  std::optional<Touched::Found> unordered(const Access& access, bool behind_wait) const;

 private:
  std::optional<Last> last_;
  Touched recent_;  // launches that have ended for those who wait
  Touched lost_;    // launches of which no wait says so
};

// An access to device memory in a dependent launch.
void observe_earlier(Lane& lane, const Access& access);

}  // namespace simt
