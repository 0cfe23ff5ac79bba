#include "common/simt/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>

#include "common/simt/simt.h"

namespace simt {

void* reserve(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("the simulator cannot reserve address space");
  return memory;
}

namespace {

std::mutex mutex;
std::map<std::uintptr_t, Allocation> allocations;  // by first address; guarded by mutex
std::size_t live_bytes = 0;                        // guarded by mutex

constexpr std::uint8_t red_byte = 0xa5;

// Whole pages go back to the system; they read as zero when they are used again.
void give_back(std::uintptr_t begin, std::size_t bytes) {
  const std::uintptr_t first = (begin + 4095) / 4096 * 4096;
  const std::uintptr_t last = (begin + bytes) / 4096 * 4096;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

std::size_t round_up(std::size_t bytes) { return (bytes + Heap::alignment - 1) / Heap::alignment * Heap::alignment; }

// The lowest free place for an allocation with a red zone of its own before and after it.
std::uintptr_t find_place(std::size_t bytes) {
  std::uintptr_t place = Heap::base + Heap::red_zone;
  for (const auto& [begin, allocation] : allocations) {
    if (place + round_up(bytes) + 2 * Heap::red_zone <= begin) break;
    place = begin + round_up(allocation.bytes) + 2 * Heap::red_zone;
  }
  return place;
}

std::size_t proc_meminfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  std::size_t kib;
  while (file >> name >> kib && std::getline(file, unit)) {
    if (name == key + ":") return kib * 1024;
  }
  return std::numeric_limits<std::size_t>::max();
}

std::size_t container_limit() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  std::size_t bytes;
  return file >> bytes ? bytes : std::numeric_limits<std::size_t>::max();
}

}  // namespace

std::uintptr_t Heap::base = reinterpret_cast<std::uintptr_t>(reserve(Heap::reserved));
std::uint8_t* Heap::shadows = static_cast<std::uint8_t*>(reserve(Heap::reserved));
std::uint8_t* Snapshot::bytes_ = static_cast<std::uint8_t*>(reserve(Heap::reserved));
std::uint8_t* Snapshot::shadow_ = static_cast<std::uint8_t*>(reserve(Heap::reserved));
Marks::OfWord* Marks::of_words = static_cast<Marks::OfWord*>(reserve(Heap::reserved / 4 * sizeof(Marks::OfWord)));
Marks::Places* Marks::places = static_cast<Marks::Places*>(reserve(Heap::reserved / 4 * sizeof(Marks::Places)));

std::uint32_t Marks::first_of(std::size_t blocks) {
  static std::uint64_t next = 1;       // 0 is memory that was never touched
  if (next + blocks + 1 > 1u << 30) {  // the bits of Mark::block
    forget(Heap::base, Heap::reserved);
    next = 1;
  }
  const std::uint64_t first = next;
  next += blocks + 1;
  return static_cast<std::uint32_t>(first);
}

void Marks::forget(std::uintptr_t address, std::size_t bytes) {
  give_back(reinterpret_cast<std::uintptr_t>(of_words + (address - Heap::base) / 4), bytes / 4 * sizeof(OfWord));
  give_back(reinterpret_cast<std::uintptr_t>(places + (address - Heap::base) / 4), bytes / 4 * sizeof(Places));
}

namespace {

std::uint64_t warp_of(std::uint64_t who) { return who < Mark::some_of_warp ? who / warp_size : who - Mark::some_of_warp; }

// The accesses of `old` happened before mine: they are my own, or a barrier lies in between. (Not all that did are known.)
bool before(Mark old, Mark me, const Marker& marker) {
  if (old.block != me.block) return false;
  return old.who == me.who || old.epoch < marker.barrier || (warp_of(old.who) == warp_of(me.who) && old.epoch < me.epoch);
}

// A mark for `old` and me: whatever may race with either may race with it.
Mark joined(Mark old, Mark me, const Marker& marker) {
  if (old < marker.launch) return me;
  if ((old.halves & ~me.halves) == 0 && Mark::narrowest(old.scope, me.scope) == me.scope && before(old, me, marker)) return me;
  Mark all = me;
  if (old.block != me.block) {
    all = marker.covers[3];
  } else if (old.who != me.who) {
    all.who = warp_of(old.who) == warp_of(me.who) ? Mark::some_of_warp + warp_of(me.who) : std::uint64_t{Mark::some_of_block};
    all.epoch = std::max(old.epoch, me.epoch);
  }
  all.halves = old.halves | me.halves;
  all.scope = Mark::narrowest(old.scope, me.scope);
  return all;
}

}  // namespace

Mark Marks::leave(std::uintptr_t word, Side side, Mark old, Mark me, const Marker& marker, const void* pc) {
  std::atomic<Mark>& mark = side == Side::writer ? of_words[word].writer : of_words[word].reader;
  for (;;) {
    const Mark now = joined(old, me, marker);
    if (now == old) return old;
    if (!mark.compare_exchange_weak(old, now)) continue;
    if (now.scope == me.scope) {  // of several, the place of one that races with all that races with the mark
      places[word][static_cast<int>(side)].store(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(pc)),
                                                 std::memory_order_relaxed);
    }
    return old;
  }
}

bool Marks::may_race(Mark old, Mark me, const Marker& marker) {
  if (old < marker.launch || (old.halves & me.halves) == 0 || before(old, me, marker)) return false;
  return Mark::narrowest(old.scope, me.scope) <
         (old.block == me.block ? std::uint64_t{static_cast<std::uint8_t>(Scope::block)} : Mark::device);
}

std::size_t memory_available() {
  // Each byte costs ten: itself, its shadow, a snapshot of both, and six of the marks of its word and their places.
  const std::lock_guard lock(mutex);
  const std::size_t machine = std::min(proc_meminfo("MemTotal"), container_limit()) / memory_share;
  const std::size_t left = machine > live_bytes ? machine - live_bytes : 0;
  return std::min(left, proc_meminfo("MemAvailable") / memory_share);
}

void* allocate(const std::string& name, std::size_t bytes) {
  if (bytes > memory_available()) return nullptr;
  const std::lock_guard lock(mutex);
  const std::uintptr_t place = find_place(bytes);
  if (place + bytes + Heap::red_zone > Heap::base + Heap::reserved) return nullptr;
  allocations[place] = {name, place, bytes};
  live_bytes += bytes;
  std::memset(Heap::shadow(place), allocated, bytes);
  std::memset(reinterpret_cast<void*>(place - Heap::red_zone), red_byte, Heap::red_zone);
  std::memset(reinterpret_cast<void*>(place + bytes), red_byte, Heap::red_zone);
  return reinterpret_cast<void*>(place);
}

void release(void* pointer) {
  await_launches();
  const std::lock_guard lock(mutex);
  const auto found = allocations.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == allocations.end()) throw std::logic_error("simt::release: not the start of an allocation");
  const auto [name, begin, bytes] = found->second;
  allocations.erase(found);
  live_bytes -= bytes;
  std::memset(Heap::shadow(begin), 0, bytes);
  give_back(begin, bytes);
  give_back(reinterpret_cast<std::uintptr_t>(Heap::shadow(begin)), bytes);
  Marks::forget(begin, bytes);
  Snapshot::forget(begin, bytes);
}

namespace {

std::uint8_t* checked_shadow(const void* pointer, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const Allocation* allocation = nearest_allocation(address);
  if (allocation == nullptr || address < allocation->begin || address + bytes > allocation->begin + allocation->bytes) {
    throw std::logic_error("simt: a range that does not lie within one allocation");
  }
  return Heap::shadow(address);
}

}  // namespace

void mark_written(void* pointer, std::size_t bytes) {
  await_launches();
  std::memset(checked_shadow(pointer, bytes), allocated | written, bytes);
}
void mark_unwritten(void* pointer, std::size_t bytes) {
  await_launches();
  std::memset(checked_shadow(pointer, bytes), allocated, bytes);
}

std::size_t written_bytes(const void* pointer, std::size_t bytes) {
  const std::uint8_t* shadow = checked_shadow(pointer, bytes);
  return static_cast<std::size_t>(std::find_if(shadow, shadow + bytes, [](std::uint8_t s) { return !(s & written); }) - shadow);
}

bool red_zones_intact(const void* pointer) {
  const Allocation* allocation = nearest_allocation(reinterpret_cast<std::uintptr_t>(pointer));
  const auto all_red = [](std::uintptr_t begin, std::uintptr_t end) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(begin);
    return std::all_of(bytes, bytes + (end - begin), [](std::uint8_t byte) { return byte == red_byte; });
  };
  const std::uintptr_t end = allocation->begin + allocation->bytes;
  return all_red(allocation->begin - Heap::red_zone, allocation->begin) && all_red(end, end + Heap::red_zone);
}

std::vector<Allocation> live_allocations() {
  const std::lock_guard lock(mutex);
  std::vector<Allocation> all;
  all.reserve(allocations.size());
  for (const auto& [begin, allocation] : allocations) all.push_back(allocation);
  return all;
}

const Allocation* nearest_allocation(std::uintptr_t address) {
  const std::lock_guard lock(mutex);
  const Allocation* best = nullptr;
  std::uintptr_t best_distance = std::numeric_limits<std::uintptr_t>::max();
  for (const auto& [begin, allocation] : allocations) {
    const std::uintptr_t end = begin + allocation.bytes;
    const std::uintptr_t distance = address < begin ? begin - address : address < end ? 0 : address - end + 1;
    if (distance < best_distance) {
      best = &allocation;
      best_distance = distance;
    }
  }
  return best;
}

namespace {

// Calls visit(begin, bytes) for parts of all allocations, none of which crosses a page.
template <class Visit>
void for_all_pages(Visit visit) {
  constexpr std::uintptr_t page = 4096;
  for (const Allocation& allocation : live_allocations()) {
    const std::uintptr_t end = allocation.begin + allocation.bytes;
    for (std::uintptr_t at = allocation.begin; at < end;) {
      const std::uintptr_t next = std::min((at / page + 1) * page, end);
      visit(at, next - at);
      at = next;
    }
  }
}

// Copying what is the same already would cost a page of memory that nobody has touched so far.
void copy_if_different(void* to, const void* from, std::size_t bytes) {
  if (std::memcmp(to, from, bytes) != 0) std::memcpy(to, from, bytes);
}

void clear_marks_of_launch(std::uint8_t* shadow, std::size_t bytes) {
  constexpr std::uint8_t of_launch = written_by_launch | being_read | being_written;
  constexpr std::uint64_t all = 0x0101010101010101u * of_launch;
  std::uint64_t word, any = 0;
  std::size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    std::memcpy(&word, shadow + i, 8);
    any |= word;
  }
  for (; i < bytes; ++i) any |= shadow[i];
  if ((any & all) == 0) return;
  for (i = 0; i < bytes; ++i) shadow[i] = static_cast<std::uint8_t>(shadow[i] & ~of_launch);
}

}  // namespace

Snapshot::Snapshot() {
  for_all_pages([](std::uintptr_t begin, std::size_t bytes) {
    const std::uintptr_t at = begin - Heap::base;
    clear_marks_of_launch(Heap::shadow(begin), bytes);
    copy_if_different(bytes_ + at, reinterpret_cast<const void*>(begin), bytes);
    copy_if_different(shadow_ + at, Heap::shadow(begin), bytes);
  });
}

void Snapshot::restore() const {
  for_all_pages([](std::uintptr_t begin, std::size_t bytes) {
    const std::uintptr_t at = begin - Heap::base;
    copy_if_different(reinterpret_cast<void*>(begin), bytes_ + at, bytes);
    copy_if_different(Heap::shadow(begin), shadow_ + at, bytes);
  });
}

std::vector<std::uintptr_t> Snapshot::changed_unseen() const {
  std::vector<std::uintptr_t> found;
  const Allocation* last = nullptr;
  for_all_pages([&](std::uintptr_t begin, std::size_t bytes) {
    const auto* now = reinterpret_cast<const std::uint8_t*>(begin);
    const std::uint8_t* const before = bytes_ + (begin - Heap::base);
    if (std::memcmp(now, before, bytes) == 0) return;
    const std::uint8_t* const shadow = Heap::shadow(begin);
    std::size_t i = 0;
    while (i < bytes && (now[i] == before[i] || (shadow[i] & written_by_launch))) ++i;
    if (i == bytes || nearest_allocation(begin) == last) return;
    last = nearest_allocation(begin);
    found.push_back(begin + i);
  });
  return found;
}

void Snapshot::forget(std::uintptr_t address, std::size_t bytes) {
  give_back(reinterpret_cast<std::uintptr_t>(bytes_ + (address - Heap::base)), bytes);
  give_back(reinterpret_cast<std::uintptr_t>(shadow_ + (address - Heap::base)), bytes);
}

SharedArena::SharedArena()
    : low_(reinterpret_cast<std::uintptr_t>(reserve(total))), shadows_(static_cast<std::uint8_t*>(reserve(total))) {}

SharedArena::~SharedArena() {
  munmap(reinterpret_cast<void*>(low_), total);
  munmap(shadows_, total);
}

void SharedArena::begin_block(std::size_t bytes) {
  std::uint8_t* shadow = shadows_ + red_zone;
  if (bytes < bytes_) std::memset(shadow + bytes, 0, bytes_ - bytes);
  std::memset(shadow, allocated, bytes);
  bytes_ = bytes;
}

}  // namespace simt
