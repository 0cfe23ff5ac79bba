// The simulator is strict: every fault is found, named and placed, whatever the schedule; correct kernels are left alone.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "common/runtime/runtime.h"
#include "tests/catch.h"
#include "tests/simt/faulty_kernels.h"

namespace {

// "tests/simt/faulty_kernels.cu:41" for the line that the comment "// fault: NAME" marks; "unknown place" where there is none.
std::string marked_place(const std::string& name, const std::string& mark = "fault") {
  for (const std::string path : {"tests/simt/faulty_kernels.cu", "tests/simt/faulty_mbarriers.cu", "tests/simt/faulty_bulk.cu",
                                 "tests/simt/faulty_clusters.sm_90.cu", "tests/simt/faulty_dependent.sm_90.cu"}) {
    std::ifstream source(path);
    std::string line;
    for (int number = 1; std::getline(source, line); ++number) {
      if ((line + ' ').find("// " + mark + ": " + name + ' ') != std::string::npos) return path + ":" + std::to_string(number);
    }
  }
  return "unknown place";
}

template <class T>
std::vector<T> both(std::vector<T> all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
std::vector<faulty::Fault> all_faults() { return both(faulty::faults(), faulty::cluster_faults()); }
std::vector<faulty::Race> all_races() {
  return both(both(faulty::races(), faulty::cluster_races()), faulty::dependent_races());
}

constexpr runtime::AsyncMode async_modes[] = {runtime::AsyncMode::late, runtime::AsyncMode::eager, runtime::AsyncMode::random};

struct WithOptions {  // restores the defaults at the end of a test
  explicit WithOptions(const runtime::SimOptions& options) { runtime::configure(options); }
  WithOptions(const WithOptions&) = delete;
  WithOptions& operator=(const WithOptions&) = delete;
  ~WithOptions() { runtime::configure({}); }
};

}  // namespace

TEST_CASE("the book says how many faulty kernels there are") {
  std::ifstream page("docs/simulator.md");
  const std::string text((std::istreambuf_iterator<char>(page)), {});
  const std::string said = "each of the " + std::to_string(all_faults().size() + all_races().size()) + " faulty\n";
  INFO(said);
  CHECK(text.find(said) != std::string::npos);
}

TEST_CASE("every fault is found with its kind, its line and the right name, under eight schedules; its mended twin is clean") {
  for (const faulty::Fault& fault : all_faults()) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const WithOptions options({seed, async_modes[seed % 3], 0});
      fault.run();
      const std::vector<runtime::Finding> findings = runtime::take_findings();
      INFO("fault " << fault.name << ", seed " << seed);
      REQUIRE(!findings.empty());
      INFO(findings[0].text);
      CHECK(findings.size() == 1);
      CHECK(findings[0].kind == fault.kind);
      CHECK(findings[0].where == marked_place(fault.name));
      CHECK(findings[0].kernel.find("::" + fault.name) != std::string::npos);
      CHECK(findings[0].text.find(fault.names) != std::string::npos);
      CHECK(findings[0].text.find("--sim-seed " + std::to_string(seed)) != std::string::npos);

      fault.mended();
      const std::vector<runtime::Finding> clean = runtime::take_findings();
      INFO((clean.empty() ? "" : clean[0].text));
      CHECK(clean.empty());
    }
  }
}

TEST_CASE(
    "every race is found with both of its lines and the member, under eight schedules, whenever copies land; its mended "
    "twin is clean") {
  for (const faulty::Race& race : all_races()) {
    const std::string one = marked_place(race.name, "one");
    const std::string other = marked_place(race.name, "other");
    for (std::uint64_t run = 0; run < 24; ++run) {
      const std::uint64_t seed = 1 + run / 3;
      const WithOptions options({seed, async_modes[run % 3], 0});
      INFO("race " << race.name << ", seed " << seed << ", mode " << run % 3);
      race.run();
      const std::vector<runtime::Finding> findings = runtime::take_findings();
      REQUIRE(!findings.empty());
      for (const runtime::Finding& finding : findings) {
        INFO(finding.text);
        // A value that was never written may be seen as well; that is the same mistake.
        if (finding.kind == "uninitialised read") continue;
        CHECK(finding.kind == "race");
        CHECK((finding.where == one || finding.where == other));
        CHECK(finding.text.find(one) != std::string::npos);
        CHECK(finding.text.find(other) != std::string::npos);
        CHECK(finding.text.find(race.member) != std::string::npos);
      }
      CHECK(std::any_of(findings.begin(), findings.end(), [](const runtime::Finding& f) { return f.kind == "race"; }));

      race.mended();
      const std::vector<runtime::Finding> clean = runtime::take_findings();
      INFO((clean.empty() ? "" : clean[0].text));
      CHECK(clean.empty());
    }
  }
}

TEST_CASE("who does not look for races hears of none, of copies under way neither") {
  for (std::uint64_t run = 0; run < 6; ++run) {
    const WithOptions options({1 + run / 3, async_modes[run % 3], 0, false});
    for (const faulty::Race& race : all_races()) {
      INFO("race " << race.name << ", mode " << run % 3);
      race.run();
      const std::vector<runtime::Finding> findings = runtime::take_findings();
      CHECK(std::none_of(findings.begin(), findings.end(), [](const runtime::Finding& f) { return f.kind == "race"; }));
    }
  }
}

TEST_CASE("what is stored beside a copy under way is there: the store is a race, and its other bytes are written") {
  const auto& all = faulty::races();
  const auto race = std::find_if(all.begin(), all.end(), [](const faulty::Race& r) { return r.name == "store_over_copy"; });
  REQUIRE(race != all.end());
  for (const runtime::AsyncMode mode : async_modes) {
    const WithOptions options({1, mode, 0});
    race->run();
    const std::vector<runtime::Finding> findings = runtime::take_findings();
    REQUIRE(findings.size() == 1);
    INFO(findings[0].text);
    CHECK(findings[0].kind == "race");
  }
}

TEST_CASE("a correct kernel gives no finding under a hundred schedules") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const WithOptions options({seed, async_modes[seed % 3], 0});
    faulty::correct();
    faulty::correct_clusters();
    faulty::correct_dependents();
    const std::vector<runtime::Finding> findings = runtime::take_findings();
    INFO((findings.empty() ? "" : findings[0].text));
    REQUIRE(findings.empty());
  }
}

TEST_CASE("faults and races are found while counting and tracing, too") {
  const auto counted = [](void (*run)()) {
    runtime::set_counting(true);
    runtime::set_tracing(true);
    run();
    runtime::take_counters();
    runtime::take_traces();
    return runtime::take_findings();
  };
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const WithOptions options({seed, async_modes[seed % 3], 0});
    for (const faulty::Fault& fault : all_faults()) {
      INFO("fault " << fault.name << ", seed " << seed);
      const std::vector<runtime::Finding> findings = counted(fault.run);
      REQUIRE(findings.size() == 1);
      CHECK(findings[0].kind == fault.kind);
      CHECK(findings[0].where == marked_place(fault.name));
      if (fault.kind == "exited lane in mask") CHECK(findings[0].count == 1);  // which ends the launch
      CHECK(counted(fault.mended).empty());
    }
    for (const faulty::Race& race : all_races()) {
      INFO("race " << race.name << ", seed " << seed);
      const std::vector<runtime::Finding> findings = counted(race.run);
      CHECK(std::any_of(findings.begin(), findings.end(), [](const runtime::Finding& f) { return f.kind == "race"; }));
      CHECK(counted(race.mended).empty());
    }
  }
}

TEST_CASE("a race with an earlier launch names both kernels, and says which wait is missing") {
  const auto report = [](const std::string& name) {
    const auto& all = faulty::dependent_races();
    const auto race = std::find_if(all.begin(), all.end(), [&](const faulty::Race& r) { return r.name == name; });
    REQUIRE(race != all.end());
    race->run();
    const std::vector<runtime::Finding> findings = runtime::take_findings();
    REQUIRE(findings.size() == 1);
    return findings[0].text;
  };
  const auto expected = [](const std::string& name, const std::string& what, const std::string& verbs, const std::string& why) {
    return what + " of 'x' (512 bytes), and the earlier launch may not have ended: " + why + "\n  " +
           (verbs == "read" ? "written" : "read") + " at " + marked_place(name, "one") +
           " in kernel faulty::(anonymous namespace)::" + name + "_first\n  " + verbs + " at " + marked_place(name, "other") +
           " by block (";
  };
  const std::string first = report("flag_behind_wait"), second = report("lost_for_good");
  INFO(first << "\n" << second);
  CHECK(first.find(expected("flag_behind_wait", "race: read after write of byte 256", "read",
                            "no griddepcontrol.wait comes before this access")) == 0);
  CHECK(second.find("race: write after read of byte ") == 0);
  CHECK(second.find(expected("lost_for_good", "", "written", "a launch between the two has not waited for it")) !=
        std::string::npos);
  CHECK(second.find("in kernel faulty::(anonymous namespace)::lost_for_good\n  replay") != std::string::npos);
}

TEST_CASE("what ends launches before a dependent one: the host that waits, copies, or gives memory back; a device below 9.0") {
  const auto found = [](void (*between)()) {
    faulty::launches_that_have_ended(between);
    return runtime::take_findings().size();
  };
  CHECK(found([] {}) == 1);
  CHECK(found([] { const runtime::Buffer other("other", 4096); }) == 0);
  CHECK(found([] { runtime::synchronize(); }) == 0);
  static runtime::Buffer buffer("buffer", sizeof(int));
  CHECK(found([] { buffer.upload("int", sizeof(int)); }) == 0);
  CHECK(found([] {
          int value = 0;
          buffer.download(&value, sizeof(value));
        }) == 0);
  CHECK(found([] { buffer.poison(); }) == 0);
  runtime::SimOptions older;
  older.device = runtime::SimDevice::rtx3090;
  const WithOptions options(older);
  CHECK(found([] {}) == 0);
}

TEST_CASE("a report of a line in a helper says from where it was called, up to the kernel") {
  const auto& all = faulty::races();
  const auto race = std::find_if(all.begin(), all.end(), [](const faulty::Race& r) { return r.name == "race_in_helpers"; });
  REQUIRE(race != all.end());
  race->run();
  const std::vector<runtime::Finding> findings = runtime::take_findings();
  REQUIRE(!findings.empty());
  const std::string calls =
      ", called at " + marked_place(race->name, "caller") + ", called at " + marked_place(race->name, "kernel");
  const std::string& text = findings[0].text;
  INFO(text);
  CHECK(text.find("written at " + marked_place(race->name, "one") + calls + " by block") != std::string::npos);
  CHECK(text.find("read at " + marked_place(race->name, "other") + calls + " by block") != std::string::npos);
  CHECK(text.find("at " + findings[0].where + calls + " in kernel") != std::string::npos);
}

TEST_CASE("atomics whose result nobody uses run once, on all workers, and none is lost; a result that is used wants an order") {
  const WithOptions options({1, runtime::AsyncMode::late, 4});
  for (int run = 0; run < 20; ++run) {
    const faulty::Reds reds = faulty::reds(64, 96, false);
    CHECK(reds.beginnings == 64 * 96);
    CHECK(reds.sums == std::array{6288384u, 6290432u, 6292480u});
    CHECK(reds.all == (64 * 96ull << 33));
    CHECK(reds.floats == 64 * 96);
  }
  CHECK(faulty::reds(64, 96, true).beginnings > 64 * 96);
  CHECK(faulty::found() == std::vector{0, 2, 1, 6, 2, 0, 11, 5});
  CHECK(runtime::take_findings().empty());
}

TEST_CASE("blocks may wait for as many others as the device holds with them, and not for more") {
  const auto endless = [](const std::string& holder) {
    const std::vector<runtime::Finding> findings = runtime::take_findings();
    REQUIRE(findings.size() == 1);
    INFO(findings[0].text);
    CHECK(findings[0].kind == "endless spin");
    CHECK(findings[0].where == marked_place("chain_kernel"));
    CHECK(findings[0].text.find(holder) != std::string::npos);
    CHECK(findings[0].text.find(" of 'flags'") != std::string::npos);
  };
  for (const int threads : {32, 128}) faulty::chain(300, threads);
  faulty::chain(132, 32, 200 * 1024);
  faulty::chain(264, 512, 0, 64);
  faulty::chain(132, 32, 200 * 1024, 0, 4);
  CHECK(runtime::take_findings().empty());
  faulty::chain(200, 32, 200 * 1024);
  endless("the 132 blocks that an H100 holds at once");
  faulty::chain(400, 32, 200 * 1024, 0, 4);
  endless("the 132 blocks that an H100 holds at once");
  faulty::chain(270, 512, 0, 128);
  endless("the 132 blocks that an H100 holds at once");
  const WithOptions options({1, runtime::AsyncMode::late, 0, true, runtime::SimDevice::rtx3090});
  faulty::chain(1300, 1);
  CHECK(runtime::take_findings().empty());
  faulty::chain(1400, 1);
  endless("the 1312 blocks that an RTX 3090 holds at once");
  CHECK_THROWS_AS(faulty::chain(1, 32, 100 * 1024), runtime::Error);
}

TEST_CASE("a block that stores while it waits for another one lets it begin") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const WithOptions options({seed, runtime::AsyncMode::late, 0});
    for (const bool counting : {false, true}) {
      runtime::set_counting(counting);
      faulty::spin_with_stores(2);
      faulty::spin_with_tickets();
      runtime::take_counters();
      CHECK(runtime::take_findings().empty());
    }
  }
}

TEST_CASE("an endless spin is named within five seconds, with its place") {
  const auto named = [](const std::string& kernel, void (*run)()) {
    const std::clock_t begin = std::clock();
    run();
    CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 5);
    const std::vector<runtime::Finding> findings = runtime::take_findings();
    REQUIRE(findings.size() == 1);
    INFO(findings[0].text);
    CHECK(findings[0].kind == "endless spin");
    CHECK(findings[0].where == marked_place(kernel));
    CHECK(findings[0].text.find("lanes 0") != std::string::npos);
    CHECK(findings[0].text.find("byte 0 of 'flag' (4 bytes)") != std::string::npos);
  };
  named("spin_with_stores_kernel", [] { faulty::spin_with_stores(1); });
  named("all_spin_kernel", [] { faulty::all_spin(16, 256); });
}

TEST_CASE("what a kernel counts does not depend on how its lanes come to an instruction, nor on the seed") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const WithOptions options({seed, runtime::AsyncMode::late, 0});
    const auto counted = [](const std::string& name) {
      runtime::set_counting(true);
      faulty::counted_kernels().at(name)();
      runtime::set_counting(false);
      const std::vector<runtime::KernelCounters> all = runtime::take_counters();
      REQUIRE(all.size() == 1);
      return all[0];
    };
    struct Sum {
      std::uint64_t requests, sectors, wavefronts;
    };
    const auto sum = [](const runtime::KernelCounters& kernel, runtime::Space space, runtime::Op op) {
      Sum all{};
      for (const runtime::LineCounters& line : kernel.lines) {
        if (line.space != space || line.op != op) continue;
        all.requests += line.requests;
        all.sectors += line.sectors;
        all.wavefronts += line.wavefronts;
      }
      return all;
    };
    using runtime::Op, runtime::Space;
    CHECK(counted("exited_warp").barriers == 3);
    CHECK(counted("arrival_left").barriers == 1);
    CHECK(counted("wide_shuffle").shuffles == 2);
    CHECK(counted("shuffle_from_two_lines").shuffles == 2);
    CHECK(sum(counted("store_behind_atomic"), Space::global, Op::store).requests == 1);
    const runtime::KernelCounters of_volatile = counted("volatile");
    const Sum loads = sum(of_volatile, Space::global, Op::load);
    CHECK((loads.requests == 1 && loads.sectors == 4));
    CHECK(sum(of_volatile, Space::shared, Op::load).wavefronts == 1);
    CHECK(sum(of_volatile, Space::shared, Op::store).wavefronts == 1);
    CHECK(sum(counted("large_copy"), Space::shared, Op::load).requests == 24);
    const std::vector<runtime::Finding> findings = runtime::take_findings();
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].kind == "skipped barrier");
  }
}

TEST_CASE("a deadlock in a cluster names all of its blocks") {
  const auto& all = faulty::cluster_faults();
  const auto fault =
      std::find_if(all.begin(), all.end(), [](const faulty::Fault& f) { return f.name == "block_that_never_comes"; });
  REQUIRE(fault != all.end());
  fault->run();
  const std::vector<runtime::Finding> findings = runtime::take_findings();
  REQUIRE(findings.size() == 1);
  const std::string& text = findings[0].text;
  INFO(text);
  CHECK(text.find("block (0, 0, 0), warp 0 lanes 0-31 wait in barrier.cluster.wait at ") != std::string::npos);
  CHECK(text.find("block (0, 0, 0), warp 1 lanes 0-31 wait in barrier.cluster.wait at ") != std::string::npos);
  CHECK(text.find("block (1, 0, 0), warp 0 lanes 0-31 wait in bar.sync 1, 64 at ") != std::string::npos);
  CHECK(text.find("block (1, 0, 0), warp 1 lanes 0-31 wait in barrier.cluster.wait at ") != std::string::npos);
}

TEST_CASE("of a cluster the block's own shared memory is counted, and no barrier but the block's") {
  const auto counted = [](unsigned blocks, unsigned cluster) {
    const WithOptions options({blocks, runtime::AsyncMode::late, 0});
    runtime::set_counting(true);
    faulty::count_in_clusters(blocks, cluster);
    runtime::set_counting(false);
    CHECK(runtime::take_findings().empty());
    const std::vector<runtime::KernelCounters> all = runtime::take_counters();
    REQUIRE(all.size() == 1);
    return all[0];
  };
  const auto requests = [](const runtime::KernelCounters& kernel, runtime::Space space, runtime::Op op) {
    std::uint64_t all = 0;
    for (const runtime::LineCounters& line : kernel.lines) all += line.space == space && line.op == op ? line.requests : 0;
    return all;
  };
  using runtime::Op, runtime::Space;
  for (const unsigned cluster : {2u, 4u}) {
    const runtime::KernelCounters kernel = counted(8, cluster);
    CHECK(kernel.barriers == 8 * 2 * 5);
    CHECK(requests(kernel, Space::shared, Op::store) == 8 * 2);
    CHECK(requests(kernel, Space::shared, Op::load) == 8 * 2);  // and nothing of the loop over all blocks, this one among them
    CHECK(requests(kernel, Space::global, Op::load) == 0);
    CHECK(requests(kernel, Space::global, Op::store) == 8 * 2);
  }
  // Without clusters nvcc's code waits in a BAR instead.
  const runtime::KernelCounters alone = counted(3, 1);
  CHECK(alone.barriers == 3 * 2 * 7);
  CHECK(requests(alone, Space::shared, Op::load) == 3 * 2 * 2);
}

TEST_CASE("what a launch did before a fault stopped it is counted") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const WithOptions options({seed, runtime::AsyncMode::late, 0});
    runtime::set_counting(true);
    faulty::counted_kernels().at("stopped")();
    runtime::set_counting(false);
    const std::vector<runtime::KernelCounters> all = runtime::take_counters();
    REQUIRE(all.size() == 1);
    std::uint64_t requests = 0;
    for (const runtime::LineCounters& line : all[0].lines) requests += line.requests;
    CHECK(requests == 5);
    const std::vector<runtime::Finding> findings = runtime::take_findings();
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].kind == "wild write");
  }
}

TEST_CASE("barriers of warps and mbarriers are no reason to run a launch again, however many there are") {
  CHECK(faulty::beginnings_of_named_rounds(2100) == 256);
  CHECK(faulty::beginnings_of_mbarrier_rounds(2100) == 256);
  CHECK(runtime::take_findings().empty());
}

TEST_CASE("what a kernel prints comes once, also when the launch runs again in order") {
  std::fflush(stdout);
  std::FILE* const file = std::tmpfile();
  const int terminal = dup(STDOUT_FILENO);
  dup2(fileno(file), STDOUT_FILENO);
  faulty::print_and_count();
  std::fflush(stdout);
  dup2(terminal, STDOUT_FILENO);
  close(terminal);
  std::map<std::string, int> lines;
  std::rewind(file);
  char line[100];
  while (std::fgets(line, sizeof(line), file) != nullptr) ++lines[line];
  std::fclose(file);
  int blocks = 0;
  for (const auto& [text, times] : lines) blocks += times * (text.find("block ") != std::string::npos);
  CHECK(blocks == 3);
}

TEST_CASE("asynchronous copies land when the mode says") {
  const auto landed = [](runtime::AsyncMode mode, std::uint64_t seed, bool at_mbarrier = false) {
    const WithOptions options({seed, mode, 0});
    const std::vector<float> seen = at_mbarrier ? faulty::seen_before_phase() : faulty::seen_before_wait();
    const std::vector<runtime::Finding> findings = runtime::take_findings();
    CHECK(findings.size() == 1);
    for (const float value : seen) CHECK((value == 1.0f || std::isnan(value)));  // poison until then
    return std::count(seen.begin(), seen.end(), 1.0f);
  };
  CHECK(landed(runtime::AsyncMode::late, 1) == 0);
  CHECK(landed(runtime::AsyncMode::eager, 1) == 64);
  CHECK(landed(runtime::AsyncMode::late, 1, true) == 0);
  CHECK(landed(runtime::AsyncMode::eager, 1, true) == 32);
  const long some = landed(runtime::AsyncMode::random, 1);
  CHECK((0 < some && some < 64));
  CHECK(landed(runtime::AsyncMode::random, 1) == some);
}

TEST_CASE("copies arrive at an mbarrier although other threads go on and on") {
  for (const runtime::AsyncMode mode : async_modes) {
    const WithOptions options({1, mode, 0});
    CHECK(faulty::restless() < 10000);
    CHECK(runtime::take_findings().empty());
  }
}

TEST_CASE("a fault that many threads make at one line is one finding with a count") {
  faulty::two_faults();
  const std::vector<runtime::Finding> findings = runtime::take_findings();
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].count == 32);
  CHECK(findings[1].count == 32);
  CHECK(findings[0].where != findings[1].where);
}

TEST_CASE("a launch that no GPU would take is an error, not a finding") {
  CHECK_THROWS_AS(faulty::too_many_threads(), runtime::Error);
  CHECK_THROWS_AS(faulty::too_much_shared(), runtime::Error);
  CHECK(runtime::take_findings().empty());
}

TEST_CASE("the seed alone decides the schedule, and different seeds give different ones") {
  std::set<std::vector<int>> schedules;
  std::set<std::vector<int>> block_schedules;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const WithOptions options({seed, runtime::AsyncMode::late, 0});
    const std::vector<int> first = faulty::schedule(6, 96);
    REQUIRE(faulty::schedule(6, 96) == first);
    schedules.insert(first);
    const std::vector<int> in_block = faulty::block_schedule(96);
    REQUIRE(faulty::block_schedule(96) == in_block);
    block_schedules.insert(in_block);
  }
  CHECK(schedules.size() == 10);
  CHECK(block_schedules.size() == 10);
  CHECK(runtime::take_findings().empty());
}
