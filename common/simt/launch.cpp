// A launch: its workers, and the blocks that each of them runs.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <thread>
#include <utility>

#include "common/simt/cluster.h"
#include "common/simt/engine.h"
#include "common/simt/machine.h"
#include "common/simt/symbols.h"

namespace simt {
namespace {

std::vector<Finding> all_findings;
std::vector<KernelCounters> all_counters;
std::vector<KernelTrace> all_traces;
std::mutex one_launch_at_a_time;
EarlierLaunches earlier_launches;  // guarded by one_launch_at_a_time

// So long may all blocks spin: a spin ends when somebody stores, and nobody does. The first is of rounds without any store.
constexpr int max_idle_rounds = 300000;
constexpr double max_idle_seconds = 2;
// In so many rounds with atomic or volatile accesses, some block ends. If not, it may wait for one that has not begun.
constexpr int max_rounds_alone = 256;

}  // namespace

std::size_t shared_bytes_of_block() { return machine().shared_bytes_of_block; }
std::vector<Finding> take_findings() { return std::exchange(all_findings, {}); }
std::vector<KernelCounters> take_counters() { return std::exchange(all_counters, {}); }
std::vector<KernelTrace> take_traces() { return std::exchange(all_traces, {}); }

Run::Run(const Launch& launch_, bool ordered_, bool proxies_, const EarlierLaunches* earlier_)
    : launch(launch_),
      ordered(ordered_),
      races(options().races),
      proxies(races && proxies_),
      earlier(earlier_),
      tracing(options().trace),
      counting(options().counters || tracing),
      first_mark(Marks::first_of(volume(launch.grid))) {
  const auto [grid, cluster] = std::pair(launch.grid, launch.cluster);
  std::vector<std::uint64_t> clusters(volume(grid) / volume(cluster));
  for (std::size_t i = 0; i < clusters.size(); ++i) clusters[i] = i;
  std::uint64_t random = options().seed;
  for (std::size_t i = clusters.size(); i > 1; --i) std::swap(clusters[i - 1], clusters[next_random(random) % i]);
  const dim3 in_grid = {grid.x / cluster.x, grid.y / cluster.y, grid.z / cluster.z};
  order.reserve(volume(grid));
  for (const std::uint64_t one : clusters) {
    const uint3 at = position(in_grid, one);
    for (std::uint64_t i = 0; i < volume(cluster); ++i) {
      const uint3 in = position(cluster, i);
      const std::uint64_t y = at.y * cluster.y + in.y, z = at.z * cluster.z + in.z;
      order.push_back((z * grid.y + y) * grid.x + at.x * cluster.x + in.x);
    }
  }
}

void Run::report(std::string kind, std::string where, const void* pc, const MakeText& make_text,
                 const std::string& other_place) {
  const Unobserved unobserved;
  const std::lock_guard lock(mutex);
  const auto [known, fresh] = known_findings.try_emplace(kind + '\n' + where + '\n' + other_place, findings.size());
  if (!fresh) {
    ++findings[known->second].count;
    return;
  }
  const std::string kernel = function_name(launch.kernel);
  static constexpr const char* modes[] = {"", " --sim-async eager", " --sim-async random"};
  std::string text = kind + ": " + make_text() + "\n  at " + with_callers(where, pc) + " in kernel " + kernel +
                     "\n  replay: --sim-seed " + std::to_string(options().seed) +
                     modes[static_cast<int>(options().async_mode)] +
                     (options().device == Device::rtx3090 ? " --sim-device rtx3090" : "");
  findings.push_back({std::move(kind), kernel, std::move(where), std::move(text)});
}

namespace {

using Clusters = std::vector<std::unique_ptr<Cluster>>;  // of one worker, kept for the next launch

// How many blocks of the launch the machine holds at once, and so how many may wait for each other. (In clusters perhaps fewer:
// the multiprocessors come in groups, and a cluster lies in one of these.)
std::size_t resident_blocks(const Launch& launch) {
  const auto round_up = [](std::size_t n, std::size_t to) { return (n + to - 1) / to * to; };
  const Machine& m = machine();
  const std::size_t warps = round_up(volume(launch.block), warp_size) / warp_size;
  constexpr std::size_t reserved_shared = 1024;  // of a block, by the system
  std::size_t on_one =
      std::min({m.blocks, m.warps / warps, m.shared_bytes / (round_up(launch.shared_bytes, 128) + reserved_shared)});
  if (launch.registers > 0) on_one = std::min(on_one, m.registers / round_up(launch.registers * warp_size, 256) / warps);
  return m.multiprocessors * std::max<std::size_t>(on_one, 1);
}

// Since when all blocks have done nothing but spin.
class Idle {
 public:
  bool for_too_long(bool stored) {
    if (rounds_ == 0) begin_ = seconds();
    stored_ |= stored;
    if (++rounds_ >= max_idle_rounds && !stored_) return true;
    return rounds_ % 16 == 0 && seconds() - begin_ > max_idle_seconds;
  }

 private:
  static double seconds() {  // that this worker has computed: others on the machine do not count
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  int rounds_ = 0;
  double begin_ = 0;
  bool stored_ = false;
};

void report_endless(Run& run, const Clusters& clusters, std::size_t resident, std::size_t not_begun) {
  constexpr std::size_t shown = 8;
  std::vector<std::string> all;
  const void* pc = nullptr;
  for (std::size_t i = 0; i < resident && all.size() <= shown; ++i) {
    for (std::size_t rank = 0; rank < clusters[i]->size(); ++rank) {
      const Block& block = clusters[i]->block(rank);
      for (std::string& one : block.spinning()) all.push_back(std::move(one));
      if (pc == nullptr) pc = block.spins_at();
    }
  }
  std::string text = "every thread that can run reads the same memory again and again; nobody writes it";
  if (not_begun > 0) {
    text = "the " + std::to_string(resident * volume(run.launch.cluster)) + " blocks that " + machine().name +
           " holds at once only read memory that nobody writes; " + std::to_string(not_begun) +
           " more can begin when one of these has ended";
  }
  for (std::size_t i = 0; i < std::min(all.size(), shown); ++i) text += "\n  " + all[i];
  if (all.size() > shown) text += "\n  and others";
  run.report("endless spin", pc == nullptr ? "unknown place" : place_of(pc), pc, [&] { return text; });
  run.stopped = true;
}

// One worker's share of a launch. It runs one cluster at a time. While all its blocks spin on memory that another block must
// write, it opens further clusters: as many as the machine would hold.
void work(Run& run, Clusters& clusters) {
  Counters counters;
  std::size_t resident = 0;
  const std::size_t blocks = volume(run.launch.cluster), count = run.order.size() / blocks;
  // In no order, nobody waits for another cluster.
  const std::size_t most = run.ordered ? std::max<std::size_t>(resident_blocks(run.launch) / blocks, 1) : 1;
  const auto open = [&] {
    const std::size_t next = run.next++;
    if (next >= count) return false;
    if (resident == clusters.size()) clusters.push_back(std::make_unique<Cluster>());
    clusters[resident++]->begin(run, next, counters);
    return true;
  };
  const auto open_more = [&] {
    bool opened = false;
    for (std::size_t more = 1 + resident / 8; more > 0 && resident < most && open(); --more) opened = true;
    return opened;
  };
  Idle idle;
  int rounds_alone = 0;
  while (!run.stopped && (resident > 0 || open())) {
    bool spinning = true, yielded = false, stored = false;
    for (std::size_t i = 0; i < resident;) {
      const Block::Status status = clusters[i]->round();
      if (status == Block::Status::stuck) break;
      spinning &= status == Block::Status::spinning;
      yielded |= clusters[i]->yielded();
      stored |= clusters[i]->stored();
      if (status == Block::Status::done) {
        rounds_alone = 0;
        std::swap(clusters[i], clusters[--resident]);
      } else {
        ++i;
      }
    }
    if (run.stopped) break;
    rounds_alone += yielded;
    if ((spinning || rounds_alone >= max_rounds_alone) && open_more()) {
      rounds_alone = 0;
      idle = {};
    } else if (!spinning) {
      idle = {};
    } else if (idle.for_too_long(stored)) {
      const std::size_t begun = std::min<std::size_t>(run.next, count);
      report_endless(run, clusters, resident, run.ordered ? blocks * (count - begun) : 0);
    }
  }
  for (std::size_t i = 0; i < resident; ++i) clusters[i]->issue_rest();
  const std::lock_guard lock(run.mutex);
  run.counters.add(counters);
}

int worker_count() {
  if (options().workers > 0) return options().workers;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void execute(Run& run) {
  static std::vector<Clusters> pools;
  const std::size_t clusters = run.order.size() / volume(run.launch.cluster);
  const std::size_t count = run.ordered ? 1 : std::min<std::size_t>(static_cast<std::size_t>(worker_count()), clusters);
  if (pools.size() < count) pools.resize(count);
  std::vector<std::thread> helpers;
  for (std::size_t i = 1; i < count; ++i) helpers.emplace_back([&run, i] { work(run, pools[i]); });
  work(run, pools[0]);
  for (std::thread& helper : helpers) helper.join();
}

void validate(const Launch& launch) {
  const auto [grid, block] = std::pair(launch.grid, launch.block);
  const dim3 cluster = launch.cluster;
  const std::uint64_t threads = volume(block), together = volume(cluster);
  std::string wrong;
  if (threads == 0 || grid.x == 0 || grid.y == 0 || grid.z == 0) wrong = "an empty grid or block";
  if (threads > max_threads_per_block) wrong = std::to_string(threads) + " threads in a block, at most 1024";
  if (block.z > 64) wrong = "blockDim.z is " + std::to_string(block.z) + ", at most 64";
  if (grid.x > 0x7fffffffu) wrong = "gridDim.x is " + std::to_string(grid.x) + ", at most 2147483647";
  if (grid.y > 65535 || grid.z > 65535) wrong = "gridDim.y and gridDim.z may be 65535 at most";
  if (launch.shared_bytes > machine().shared_bytes_of_block) {
    wrong = std::to_string(launch.shared_bytes) + " bytes of shared memory, at most " +
            std::to_string(machine().shared_bytes_of_block);
  }
  if (together == 0 || grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
    wrong = "a grid of " + to_string(grid) + " blocks is not made of clusters of " + to_string(cluster);
  } else if (together > machine().blocks_of_cluster) {
    wrong = "clusters of " + std::to_string(together) + " blocks; " + machine().name + " has " +
            (machine().blocks_of_cluster == 1 ? "none" : "none of more than " + std::to_string(machine().blocks_of_cluster));
  }
  if (!wrong.empty()) throw LaunchError{"invalid launch of " + function_name(launch.kernel) + ": " + wrong};
}

}  // namespace

void launch(const Launch& launch) {
  static std::set<Function> ordered_kernels, bulk_kernels;  // seen to need it
  const std::lock_guard lock(one_launch_at_a_time);
  validate(launch);
  const bool dependent = launch.dependent && machine().dependent_launches && options().races;
  if (dependent) {
    earlier_launches.follow();
  } else {
    earlier_launches.forget();
  }
  const Snapshot before;
  if (options().counters) Footprint::clear();
  const auto begun = [&] {
    return std::make_unique<Run>(launch, ordered_kernels.contains(launch.kernel), bulk_kernels.contains(launch.kernel),
                                 dependent ? &earlier_launches : nullptr);
  };
  auto run = begun();
  for (execute(*run); run->runs_again(); execute(*run)) {
    before.restore();
    if (options().counters) Footprint::clear();
    if (run->needs_order) ordered_kernels.insert(launch.kernel);
    if (run->needs_proxies) bulk_kernels.insert(launch.kernel);
    run = begun();
  }
  if (!run->stopped) {
    for (const std::uintptr_t address : before.changed_unseen()) {
      run->report("unseen write", "unknown place", nullptr, [&] {
        return describe_address(address) +
               " changed, but no store was reported; write 16-bit and vector values through store()";
      });
    }
  }
  std::fwrite(run->printed.data(), 1, run->printed.size(), stdout);
  all_findings.insert(all_findings.end(), run->findings.begin(), run->findings.end());
  if (options().counters) all_counters.push_back(run->counters.result(launch));
  if (run->tracing) all_traces.push_back(run->trace.result(launch));
  if (!run->races) return;
  earlier_launches.ran({launch.kernel, run->first_mark,
                        run->ordered ? std::optional(std::move(run->device_races)) : std::nullopt, run->waited || !dependent});
}

void await_launches() {
  const std::lock_guard lock(one_launch_at_a_time);
  earlier_launches.forget();
}

}  // namespace simt
