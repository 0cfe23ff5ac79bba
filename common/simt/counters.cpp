#include "common/simt/counters.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <set>
#include <tuple>

#include "common/simt/memory.h"
#include "common/simt/symbols.h"

namespace simt {
namespace {

constexpr std::size_t sector_bytes = 32;
constexpr std::size_t banks = 32;
constexpr std::size_t bank_bytes = 4;

// A set of at most a few hundred numbers that mostly come in order.
template <std::size_t capacity>
class SmallSet {
 public:
  void insert(std::uintptr_t value) {
    if (size_ > 0 && values_[size_ - 1] == value) return;
    if (std::find(values_.begin(), values_.begin() + size_, value) == values_.begin() + size_) values_[size_++] = value;
  }
  void clear() { size_ = 0; }
  std::size_t size() const { return size_; }
  const std::uintptr_t* begin() const { return values_.data(); }
  const std::uintptr_t* end() const { return values_.data() + size_; }

 private:
  std::array<std::uintptr_t, capacity> values_;
  std::size_t size_ = 0;
};

}  // namespace

std::uint64_t sectors_of(std::span<const PendingAccess> request) {
  SmallSet<2 * warp_size> sectors;  // 16 bytes that are not aligned lie in two
  for (const PendingAccess& access : request) {
    sectors.insert(access.address / sector_bytes);
    sectors.insert((access.address + access.bytes - 1) / sector_bytes);
  }
  return sectors.size();
}

namespace {

// The most distinct words that lie in one bank; lanes that access the same word share it.
std::uint64_t most_in_a_bank(std::span<const PendingAccess> accesses) {
  SmallSet<5 * warp_size> words;  // 16 bytes that are not aligned touch five
  for (const PendingAccess& access : accesses) {
    for (std::uintptr_t word = access.address / bank_bytes; word <= (access.address + access.bytes - 1) / bank_bytes; ++word) {
      words.insert(word);
    }
  }
  std::array<std::uint8_t, banks> in_bank{};
  for (const std::uintptr_t word : words) ++in_bank[word % banks];
  return *std::max_element(in_bank.begin(), in_bank.end());
}

// Does every lane access what its neighbour at this distance (1 or 2) accesses?
bool shared_by_neighbours(std::span<const PendingAccess> accesses, int distance) {
  return std::all_of(accesses.begin(), accesses.end(), [&](const PendingAccess& a) {
    const auto neighbour =
        std::find_if(accesses.begin(), accesses.end(), [&](auto& b) { return b.lane == (a.lane ^ distance); });
    return neighbour == accesses.end() || neighbour->address == a.address;
  });
}

}  // namespace

// The banks deliver 128 bytes at a time: to all 32 lanes if they want 4 bytes or fewer, to 16 lanes that want 8, to 8 that
// want 16. Of wide loads two such groups go together where neighbouring lanes share what they load and no bank is wanted twice.
// That last rule is no document's: it is what an H200 does (results/h200/ncu_calibration.csv).
Wavefronts wavefronts_of(std::span<const PendingAccess> request) {
  const std::uint32_t width = request.front().bytes;
  if (width <= 4) return {most_in_a_bank(request), 1};
  const int group_lanes = width == 8 ? 16 : 8;
  const auto lanes_below = [&](int lane) {
    return static_cast<std::size_t>(std::find_if(request.begin(), request.end(), [&](auto& a) { return a.lane >= lane; }) -
                                    request.begin());
  };
  Wavefronts total{};
  for (int lane = 0; lane < warp_size; lane += 2 * group_lanes) {
    const std::size_t first = lanes_below(lane), middle = lanes_below(lane + group_lanes),
                      last = lanes_below(lane + 2 * group_lanes);
    const auto both = request.subspan(first, last - first);
    const bool together = request.front().kind == Kind::read && !both.empty() &&
                          (shared_by_neighbours(both, 1) || shared_by_neighbours(both, 2)) && most_in_a_bank(both) == 1;
    if (together) {
      total.needed += 1;
      total.ideal += 1;
      continue;
    }
    for (const auto& group : {request.subspan(first, middle - first), request.subspan(middle, last - middle)}) {
      if (group.empty()) continue;
      total.needed += most_in_a_bank(group);
      ++total.ideal;
    }
  }
  return total;
}

// Of a copy that goes past L1: what is counted are the 32-byte sectors of shared memory that each 128-byte line fills. (Found
// by measuring: tests/programs/calibration_ampere.cu. Where source and destination lie alike it is the number of sectors read.)
std::uint64_t sectors_past_l1(std::span<const PendingAccess> copies) {
  constexpr std::uintptr_t line_bytes = 128;
  std::set<std::pair<std::uintptr_t, std::uintptr_t>> filled;
  for (const PendingAccess& copy : copies) filled.emplace(copy.address / line_bytes, copy.to / sector_bytes);
  return filled.size();
}

// Of atomics without a result: the 32-byte sectors that they touch; but lanes that add to one word do not share a sector, each
// of them sends its own. (Not measured by us. Others' profiles of such kernels, with the same metric, say so: 16 sectors of an
// instruction whose 32 lanes add 16 bytes each side by side, and one for each lane where all add to one word.)
std::uint64_t sectors_of_reductions(std::span<const PendingAccess> request) {
  std::map<std::uintptr_t, std::uint64_t> lanes_of_word;
  for (const PendingAccess& access : request) {
    const std::uintptr_t end = (access.address + access.bytes + bank_bytes - 1) / bank_bytes;
    for (std::uintptr_t word = access.address / bank_bytes; word < end; ++word) ++lanes_of_word[word];
  }
  std::map<std::uintptr_t, std::uint64_t> times;  // that a sector is sent
  for (const auto& [word, lanes] : lanes_of_word) {
    std::uint64_t& most = times[word * bank_bytes / sector_bytes];
    most = std::max(most, lanes);
  }
  std::uint64_t sectors = 0;
  for (const auto& [sector, count] : times) sectors += count;
  return sectors;
}

Cost Counters::request(std::span<const PendingAccess> lanes) {
  const PendingAccess& first = lanes.front();
  Counts& counts = sites_[{first.pc, first.form, first.kind, first.bytes}];
  ++counts.instructions;
  Cost cost;
  if (first.form == Form::shared) {
    ++counts.requests;
    cost.wavefronts = wavefronts_of(lanes);
    counts.wavefronts += cost.wavefronts;
    return cost;
  }
  // Lanes that only want zeros ask for nothing.
  std::vector<PendingAccess> readers;
  if (is_copy(first.form)) {
    std::copy_if(lanes.begin(), lanes.end(), std::back_inserter(readers), [](auto& a) { return a.source_bytes > 0; });
  }
  const std::span<const PendingAccess> asking = is_copy(first.form) ? std::span<const PendingAccess>(readers) : lanes;
  if (!asking.empty()) {
    ++counts.requests;
    cost.sectors = first.form == Form::copy_past_l1 ? sectors_past_l1(asking)
                   : first.form == Form::reduction  ? sectors_of_reductions(asking)
                                                    : sectors_of(asking);
    counts.sectors += cost.sectors;
  }
  for (const PendingAccess& access : lanes) Footprint::mark(access);
  if (first.form == Form::reduction) {  // L2 reads what it adds to
    for (PendingAccess access : lanes) {
      access.kind = Kind::read;
      Footprint::mark(access);
    }
  }
  if (is_copy(first.form)) {  // and its other end, a store to shared memory
    std::vector<PendingAccess> stores(lanes.begin(), lanes.end());
    for (PendingAccess& store : stores) {
      store.address = store.to;
      store.kind = Kind::write;
    }
    cost.wavefronts = wavefronts_of(stores);
    counts.wavefronts += cost.wavefronts;
  }
  return cost;
}

Wavefronts Counters::matrices(const void* pc, Kind kind, std::span<const std::uintptr_t> rows) {
  Counts& counts = sites_[{pc, Form::matrix, kind, 16}];
  ++counts.instructions;
  ++counts.requests;
  Wavefronts total{};
  // One wavefront for each matrix, if its rows lie in different banks. (Measured: of ldmatrix by
  // tests/programs/calibration_ampere.cu, of stmatrix by calibration_hopper.sm_90.cu.)
  for (std::size_t first = 0; first < rows.size(); first += 8) {
    std::array<PendingAccess, 8> matrix;
    for (std::size_t r = 0; r < 8; ++r)
      matrix[r] = {.lane = static_cast<std::uint8_t>(r),
                   .kind = kind,
                   .form = Form::matrix,
                   .bytes = 16,
                   .address = rows[first + r],
                   .pc = pc};
    total += {most_in_a_bank(matrix), 1};
  }
  counts.wavefronts += total;
  return total;
}

void Counters::add(const Counters& other) {
  for (const auto& [site, counts] : other.sites_) {
    Counts& sum = sites_[site];
    sum.instructions += counts.instructions;
    sum.requests += counts.requests;
    sum.sectors += counts.sectors;
    sum.wavefronts += counts.wavefronts;
  }
  reaching_others_.insert(other.reaching_others_.begin(), other.reaching_others_.end());
  barriers_ += other.barriers_;
  shuffles_ += other.shuffles_;
  tensor_instructions_ += other.tensor_instructions_;
}

KernelCounters Counters::result(const Launch& launch) const {
  KernelCounters result;
  result.kernel = function_name(launch.kernel);
  result.grid = launch.grid;
  result.block = launch.block;
  result.shared_bytes = launch.shared_bytes;
  result.barriers = barriers_;
  result.shuffles = shuffles_;
  result.tensor_instructions = tensor_instructions_;
  result.bytes_loaded = Footprint::bytes(Kind::read);
  result.bytes_stored = Footprint::bytes(Kind::write);
  // In the order of the source: by file, then by line number.
  std::map<std::tuple<std::string, int, Form, Kind, std::uint32_t>, LineCounters> lines;
  for (const auto& [site, counts] : sites_) {
    if (site.form == Form::shared && reaching_others_.contains(site.pc)) continue;
    const std::string where = place_of(site.pc);
    const std::size_t colon = where.rfind(':');
    const int number = colon == std::string::npos ? 0 : std::stoi(where.substr(colon + 1));
    LineCounters& line = lines[{where.substr(0, colon), number, site.form, site.kind, site.bytes}];
    line.where = where;
    line.form = site.form;
    line.store = site.kind == Kind::write;
    line.bytes = site.bytes;
    ++line.sites;
    line.instructions += counts.instructions;
    line.requests += counts.requests;
    line.sectors += counts.sectors;
    line.wavefronts += counts.wavefronts.needed;
    line.wavefronts_ideal += counts.wavefronts.ideal;
  }
  for (auto& [key, line] : lines) result.lines.push_back(std::move(line));
  return result;
}

// ---- footprint ----

namespace {

using SectorMark = std::atomic<std::uint8_t>;

// One byte for each sector of the heap; workers may set the same one.
SectorMark* sector_marks(Kind kind) {
  static SectorMark* const loaded = reinterpret_cast<SectorMark*>(reserve(Heap::reserved / sector_bytes));
  static SectorMark* const stored = reinterpret_cast<SectorMark*>(reserve(Heap::reserved / sector_bytes));
  return kind == Kind::read ? loaded : stored;
}

}  // namespace

void Footprint::clear() {
  for (const Allocation& allocation : live_allocations()) {
    const std::size_t first = (allocation.begin - Heap::base) / sector_bytes;
    const std::size_t count = (allocation.bytes + sector_bytes - 1) / sector_bytes;
    for (const Kind kind : {Kind::read, Kind::write}) {
      for (std::size_t i = first; i < first + count; ++i) sector_marks(kind)[i].store(0, std::memory_order_relaxed);
    }
  }
}

void Footprint::mark(const PendingAccess& access) {
  SectorMark* const marks = sector_marks(access.kind);
  const std::uint32_t bytes = is_copy(access.form) ? access.source_bytes : access.bytes;
  if (bytes == 0) return;
  const std::uintptr_t last = (access.address + bytes - 1) / sector_bytes;
  for (std::uintptr_t sector = access.address / sector_bytes; sector <= last; ++sector) {
    const std::uintptr_t address = sector * sector_bytes;
    if (Heap::contains(address)) marks[(address - Heap::base) / sector_bytes].store(1, std::memory_order_relaxed);
  }
}

std::uint64_t Footprint::bytes(Kind kind) {
  std::uint64_t sectors = 0;
  for (const Allocation& allocation : live_allocations()) {
    const std::size_t first = (allocation.begin - Heap::base) / sector_bytes;
    const std::size_t count = (allocation.bytes + sector_bytes - 1) / sector_bytes;
    for (std::size_t i = first; i < first + count; ++i) sectors += sector_marks(kind)[i].load(std::memory_order_relaxed);
  }
  return sectors * sector_bytes;
}

}  // namespace simt
