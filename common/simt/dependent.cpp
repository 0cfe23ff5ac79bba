#include "common/simt/dependent.h"

#include <algorithm>
#include <utility>

#include "common/simt/access.h"
#include "common/simt/collectives.h"
#include "common/simt/cuda.h"
#include "common/simt/symbols.h"

namespace simt {

// ---- what launches touched ----

std::uint32_t Touched::site(const Site& site) {
  const auto found = std::find(sites_.rbegin(), sites_.rend(), site);  // the last ones are those of the launch that is added
  if (found != sites_.rend()) return static_cast<std::uint32_t>(sites_.rend() - found);
  sites_.push_back(site);
  return static_cast<std::uint32_t>(sites_.size());
}

Touched::Half& Touched::half_at(std::size_t index) {
  std::unique_ptr<Page>& page = pages_[index / page_halves];
  if (!page) page = std::make_unique<Page>();
  return (*page)[index % page_halves];
}

// Of two the later, but for atomics: what races with either of them must race with what is kept.
void Touched::put(Touch& last, Touch now) {
  if (now.site == 0) return;
  if (last.site != 0) {
    const std::uint64_t scope = Mark::narrowest(last.scope, now.scope);
    if (scope != now.scope && scope == last.scope) return;
    now.scope = scope & 3;
  }
  last = now;
}

void Touched::touch(std::uintptr_t word, unsigned halves, Kind kind, std::uint64_t scope, const Site& by) {
  const Touch now{site(by) & 0x3fffffff, static_cast<unsigned>(scope) & 3};
  for (unsigned i = 0; i < 2; ++i) {
    if ((halves >> i & 1) == 0) continue;
    Half& half = half_at((word - Heap::base) / 2 + i);
    put(kind == Kind::write ? half.write : half.read, now);
  }
}

void Touched::add(Function kernel, const DeviceRaces& records) {
  records.words.visit([&](std::size_t index, const AccessedWord& word, const MoreOfWord* more) {
    const auto add = [&](const AccessRecord& record, Kind kind) {
      const unsigned halves = ((record.bytes_mask() & 3) != 0) + 2 * ((record.bytes_mask() & 12) != 0);
      touch(Heap::base + 4 * index, halves, kind, Mark::scope_of(record.scope(), record.wide()), {kernel, record.pc()});
    };
    if (word.was_written) add(word.last_write, Kind::write);
    if (word.was_read) add(word.last_read, Kind::read);
    if (more == nullptr) return;
    for (const LanesRecord& one : more->writes.all) add(one.record, Kind::write);
    for (const LanesRecord& one : more->reads.all) add(one.record, Kind::read);
  });
}

void Touched::add_marked(Function kernel, std::uint32_t first_mark) {
  for (const Allocation& allocation : live_allocations()) {
    for (std::uintptr_t word = allocation.begin; word < allocation.begin + allocation.bytes; word += 4) {
      Marks::visit_last(word, first_mark, kernel, [&](bool wrote, Mark mark, const void* pc) {
        touch(word, mark.halves, wrote ? Kind::write : Kind::read, mark.scope, {kernel, pc});
      });
    }
  }
}

void Touched::add(const Touched& later) {
  std::vector<std::uint32_t> sites = {0};
  for (const Site& one : later.sites_) sites.push_back(site(one));
  for (const auto& [number, page] : later.pages_) {
    for (std::size_t i = 0; i < page_halves; ++i) {
      const Half& half = (*page)[i];
      if (half.write.site == 0 && half.read.site == 0) continue;
      Half& mine = half_at(number * page_halves + i);
      put(mine.write, {sites[half.write.site] & 0x3fffffff, half.write.scope});
      put(mine.read, {sites[half.read.site] & 0x3fffffff, half.read.scope});
    }
  }
}

std::optional<Touched::Found> Touched::conflict(const Access& access) const {
  const std::uint64_t scope = Mark::scope_of(access.scope, access.wide);
  const std::size_t end = access.address + access.bytes - Heap::base;
  for (std::size_t index = (access.address - Heap::base) / 2; 2 * index < end;) {
    const std::size_t next = std::min((index / page_halves + 1) * page_halves, (end + 1) / 2);
    const auto page = pages_.find(index / page_halves);
    for (; page != pages_.end() && index < next; ++index) {
      const Half& half = (*page->second)[index % page_halves];
      for (const Kind kind : {Kind::write, Kind::read}) {
        const Touch& touch = kind == Kind::write ? half.write : half.read;
        const bool both_atomic = touch.scope == scope && scope >= Mark::device;  // in any order, as within a launch
        if (touch.site == 0 || both_atomic || (kind == Kind::read && access.kind == Kind::read)) continue;
        const Site& by = sites_[touch.site - 1];
        return Found{by.kernel, by.pc, kind, std::max(access.address, Heap::base + 2 * index)};
      }
    }
    index = next;
  }
  return {};
}

// ---- launches ----

void EarlierLaunches::follow() {
  if (!last_) return;
  if (!last_->waited) {
    lost_.add(recent_);
    recent_ = {};
  }
  if (last_->records) {
    recent_.add(last_->kernel, *last_->records);
  } else {
    recent_.add_marked(last_->kernel, last_->first_mark);
  }
  last_.reset();
}

void EarlierLaunches::forget() {
  last_.reset();
  recent_ = {};
  lost_ = {};
}

std::optional<Touched::Found> EarlierLaunches::unordered(const Access& access, bool behind_wait) const {
  if (auto found = lost_.conflict(access)) return found;
  return behind_wait ? std::nullopt : recent_.conflict(access);
}

void observe_earlier(Lane& lane, const Access& access) {
  Block& block = *lane.block;
  const EarlierLaunches& earlier = *block.run().earlier;
  auto found = earlier.unordered(access, lane.waited);
  if (found && !lane.waited && block.order().knows_earlier_launches(static_cast<std::uint32_t>(lane.index))) {
    lane.waited = true;
    found = earlier.unordered(access, true);
  }
  if (!found) return;
  const Unobserved unobserved;
  const bool wrote = found->kind == Kind::write, writes = access.kind == Kind::write;
  const std::string place = place_of(access.pc), earlier_place = place_of(found->pc);
  const auto text = [&] {
    return std::string(!writes ? "read after write"
                       : wrote ? "write after write"
                               : "write after read") +
           " of " + describe_address(found->address) + ", and the earlier launch may not have ended: " +
           (lane.waited ? "a launch between the two has not waited for it"
                        : "no griddepcontrol.wait comes before this access") +
           "\n  " + (wrote ? "written" : "read") + " at " + with_callers(earlier_place, found->pc) + " in kernel " +
           function_name(found->kernel) + "\n  " + (writes ? "written" : "read") + " at " + with_callers(place, access.pc) +
           " by " + block.describe(lane);
  };
  block.run().report("race", place, access.pc, text, earlier_place);
}

// ---- for kernels ----

void griddepcontrol_wait() {
  Lane& lane = lane_or_die();
  note_traced(lane, "griddepcontrol.wait", -1, __builtin_return_address(0));
  Run& run = lane.block->run();
  if (run.earlier == nullptr) return;  // they have ended: the instruction does nothing
  run.waited = true;
  lane.waited = true;
  lane.block->order().know_earlier_launches(static_cast<std::uint32_t>(lane.index));
}

// A hint to the GPU: it lets nobody see anything.
void griddepcontrol_launch_dependents() {
  note_traced(lane_or_die(), "griddepcontrol.launch_dependents", -1, __builtin_return_address(0));
}

}  // namespace simt
