// The conformance kernels under a hundred schedules, traced under some of them: correct kernels are never reported.
#include <functional>
#include <numeric>

#include "common/runtime/runtime.h"
#include "tests/catch.h"
#include "tests/simt/conformance_kernels.h"

TEST_CASE("no conformance kernel is reported under a hundred schedules") {
  const std::vector<float> values(1000, 1.0f);
  const std::vector<unsigned> bins(1000, 3);
  const std::vector<int> lanes(32, 5), tiles(64 * 8, 1);
  const std::vector<std::uint16_t> rows(64 * 8, 1);
  const std::vector<std::uint32_t> fragments(32 * 4);
  const std::vector<std::uint8_t> bytes(16 * 96, 1);
  const std::vector<int> sizes(96, 3);
  const std::vector<float> addends(4 * 500, 1.0f);
  std::vector<int> slots(500), own_rows(32);
  for (std::size_t t = 0; t < slots.size(); ++t) slots[t] = static_cast<int>(t % 5);
  for (std::size_t lane = 0; lane < 32; ++lane) own_rows[lane] = static_cast<int>(lane);
  const runtime::AsyncMode modes[] = {runtime::AsyncMode::late, runtime::AsyncMode::eager, runtime::AsyncMode::random};
  std::vector<int> four_tiles(4 * 64);
  std::iota(four_tiles.begin(), four_tiles.end(), 3);
  const std::vector<int> five_rounds = conformance::mbarrier_rounds(5), five_tiles = conformance::bulk_stores(5).tiles;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    runtime::configure({seed, modes[seed % 3], static_cast<int>(seed / 3 % 3)});
    runtime::set_tracing(seed % 10 == 0);
    conformance::builtins(3, 2, 2, 5, 4, 3);
    conformance::shuffle(conformance::Shuffle::butterfly, 0xffffffffu, 5, 16);
    conformance::shuffle_doubles(0x0000ffffu);
    conformance::votes(0xff00ff00u, 0x12345678u);
    conformance::block_sum(values, 256);
    conformance::warp_transpose();
    conformance::producer_consumer(7);
    conformance::divergent_loops();
    conformance::histogram(bins, 37);
    conformance::shared_histogram(bins, 37);
    conformance::integer_atomics(96);
    conformance::atomic_float_sum(20, 64);
    conformance::locked_increments(20);
    conformance::last_block_sum(20);
    conformance::flag_chain(20);
    conformance::half_round_trip(values);
    conformance::bfloat_round_trip(values);
    conformance::vector_copy(values);
    conformance::predicated_copy(values);
    conformance::load_matrices(4, seed % 2 == 0, rows, lanes);
    conformance::multiply(conformance::Operand::half, 16, fragments, fragments, std::vector<float>(32 * 4));
    conformance::copy_async(16, seed % 2 == 0, bytes, sizes);
    const std::vector<int> groups = conformance::copy_groups({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    const std::vector<int> sums = conformance::copy_pipeline(tiles);
    const std::vector<int> ring_sums = conformance::mbarrier_ring(tiles);
    const std::vector<int> met = conformance::mbarrier_rounds(5);
    const std::vector<int> bulk_sums = conformance::bulk_ring(tiles);
    const std::vector<int> stored = conformance::bulk_stores(5).tiles, copied = conformance::bulk_there_and_back(four_tiles);
    conformance::store_matrices(seed % 2 == 0, fragments, own_rows);
    conformance::store_rows(seed % 2 == 0, fragments);
    conformance::meet_in_clusters({12, 2, 1}, {2, 2, 1});
    conformance::cluster_ranks({4, 2, 4}, {2, 2, 2});
    const std::vector<int> passed_on = conformance::cluster_ring(4, 2, 1);
    conformance::cluster_ring(8, 4, 3);
    conformance::cluster_ring(4, 1, 2);
    conformance::cluster_sums(4, 2, std::vector<int>(4 * 96, 1));
    conformance::cluster_split(6, 3, 3);
    conformance::cluster_some_end(8, 4);
    const std::vector<int> chained = conformance::dependent_launches(1 + seed % 2, 3, std::vector<int>(256, 1));
    conformance::matrices_there_and_back(seed % 2 == 0, seed % 3 == 0, fragments);
    conformance::multiply_from(conformance::Operand::bfloat, fragments, std::vector<std::uint32_t>(32 * 2),
                               std::vector<float>(32 * 4));
    std::vector<std::vector<float>> reduced;
    for (const int width : {1, 2, 4}) {
      reduced.push_back(conformance::reduce(width, 5, {addends.begin(), addends.begin() + 500 * width}, slots));
    }
    const std::vector<runtime::Finding> findings = runtime::take_findings();
    CHECK(runtime::take_traces().empty() == (seed % 10 != 0));
    INFO("seed " << seed << ": " << (findings.empty() ? "" : findings[0].text));
    REQUIRE(findings.empty());
    REQUIRE(groups == std::vector<int>{1, 2, 3, 3, 4, 11, 7, 8, 15, 9, 10, 23});  // whenever the copies land
    REQUIRE(sums == std::vector<int>(64, 36));
    REQUIRE(ring_sums == sums);
    REQUIRE(bulk_sums == sums);
    REQUIRE(met == five_rounds);
    REQUIRE(stored == five_tiles);
    REQUIRE(copied == four_tiles);
    for (int i = 0; i < 256; ++i) REQUIRE(chained[static_cast<std::size_t>(i)] == 27 * (255 - i) + 13);
    for (int t = 0; t < 64; ++t) REQUIRE(passed_on[static_cast<std::size_t>(t)] == 64 - t);  // by the other block from this one
    for (std::size_t i = 0; i < 3; ++i) REQUIRE(reduced[i] == std::vector<float>(std::size_t{5} << i, 100.0f));
  }
  runtime::configure({});
}

namespace {

// The lines of one kind in what one launch counted.
std::vector<runtime::LineCounters> counted(runtime::Op op, const std::function<void()>& run,
                                           runtime::KernelCounters* all = nullptr) {
  runtime::set_counting(true);
  runtime::take_counters();
  run();
  runtime::set_counting(false);
  const std::vector<runtime::KernelCounters> kernels = runtime::take_counters();
  REQUIRE(kernels.size() == 1);
  if (all != nullptr) *all = kernels[0];
  std::vector<runtime::LineCounters> lines = kernels[0].lines;
  std::erase_if(lines, [&](const runtime::LineCounters& line) { return line.op != op; });
  return lines;
}

}  // namespace

TEST_CASE("an stmatrix is one request, and needs a wavefront for each matrix unless its rows share banks") {
  const std::vector<std::uint32_t> fragments(32 * 4);
  const auto wavefronts = [&](const std::function<void()>& run) {
    const auto lines = counted(runtime::Op::matrix_store, run);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].space == runtime::Space::shared);
    CHECK(lines[0].bytes == 16);
    CHECK(lines[0].requests == 1);
    CHECK(lines[0].sectors == 0);
    CHECK(lines[0].wavefronts_ideal == 4);
    return lines[0].wavefronts;
  };
  CHECK(wavefronts([&] { conformance::store_rows(true, fragments); }) == 4);    // chunks at chunk ^ (row % 8)
  CHECK(wavefronts([&] { conformance::store_rows(false, fragments); }) == 32);  // all rows of a matrix in the same four banks
  std::vector<int> rows(32);
  for (const int stride : {1, 2}) {
    for (std::size_t lane = 0; lane < 32; ++lane) rows[lane] = stride * static_cast<int>(lane);
    for (const bool transposed : {false, true}) {
      const auto run = [&] { conformance::store_matrices(transposed, fragments, rows); };
      CHECK(wavefronts(run) == 4 * static_cast<std::uint64_t>(stride));
    }
  }
}

TEST_CASE(
    "a red is one request whatever its width, of as many sectors as it touches, but one for each lane that adds to one word") {
  std::vector<int> own(64), shared(64), scattered(64);
  for (std::size_t t = 0; t < 64; ++t) {
    own[t] = static_cast<int>(t);
    shared[t] = 0;
    scattered[t] = static_cast<int>(t) * 16;
  }
  for (const int width : {1, 2, 4}) {
    const std::vector<float> values(64 * static_cast<std::size_t>(width), 1.0f);
    const auto bytes = 4 * static_cast<std::uint64_t>(width);
    const auto sectors = [&](int slots, const std::vector<int>& slot_of_thread) {
      runtime::KernelCounters all;
      const auto lines = counted(
          runtime::Op::reduction, [&] { conformance::reduce(width, slots, values, slot_of_thread); }, &all);
      REQUIRE(lines.size() == 1);
      CHECK(lines[0].space == runtime::Space::global);
      CHECK(lines[0].bytes == bytes);
      CHECK(lines[0].requests == 2);  // by two warps
      CHECK(lines[0].wavefronts == 0);
      for (const runtime::LineCounters& line : all.lines) CHECK(line.op != runtime::Op::store);
      CHECK(all.bytes_stored == 32 * (slots == 1 ? 1 : slots == 64 ? 2 * bytes : 64));  // each sector once
      CHECK(all.bytes_loaded == all.bytes_stored + 64 * (4 + bytes));                   // the sums, the slots and the values
      return lines[0].sectors;
    };
    INFO("width " << width);
    CHECK(sectors(64, own) == 64 * bytes / 32);
    CHECK(sectors(1, shared) == 64);
    CHECK(sectors(64 * 16, scattered) == 64);
  }
}

TEST_CASE("lanes whose predicate is false wait with the others: one request of the warp in each round") {
  runtime::set_counting(true);
  runtime::take_counters();
  conformance::predicated_copy(std::vector<float>(77, 1.0f));
  runtime::set_counting(false);
  const std::vector<runtime::KernelCounters> kernels = runtime::take_counters();
  REQUIRE(kernels.size() == 1);
  REQUIRE(kernels[0].lines.size() == 2);
  for (const runtime::LineCounters& line : kernels[0].lines) CHECK(line.requests == 3);
}

TEST_CASE("blocks that wait for their cluster may wait for ever, if they are not launched in clusters") {
  conformance::meet_in_clusters({60, 6, 4}, {1, 3, 2}, false);
  const std::vector<runtime::Finding> findings = runtime::take_findings();
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].kind == "endless spin");
  CHECK(findings[0].text.find("the 132 blocks that an H100 holds at once") != std::string::npos);
}

TEST_CASE(
    "clusters are refused by name: of which the grid does not consist, too large ones, and all on a device that has none") {
  const auto refused = [](std::array<unsigned, 3> grid, std::array<unsigned, 3> cluster, const std::string& why) {
    try {
      conformance::meet_in_clusters(grid, cluster);
      FAIL("accepted: " << why);
    } catch (const runtime::Error& error) {
      INFO(error.what());
      CHECK(std::string(error.what()).find(why) != std::string::npos);
    }
  };
  refused({60, 6, 4}, {1, 4, 1}, "a grid of (60, 6, 4) blocks is not made of clusters of (1, 4, 1)");
  refused({60, 6, 4}, {1, 0, 1}, "a grid of (60, 6, 4) blocks is not made of clusters of (1, 0, 1)");
  refused({60, 6, 4}, {12, 1, 1}, "clusters of 12 blocks; an H100 has none of more than 8");
  runtime::configure({1, runtime::AsyncMode::late, 0, true, runtime::SimDevice::rtx3090});
  refused({60, 6, 4}, {2, 1, 1}, "clusters of 2 blocks; an RTX 3090 has none");
  runtime::configure({});
  CHECK(runtime::take_findings().empty());
}
