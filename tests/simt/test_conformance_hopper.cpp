// stmatrix, the vector forms of red, clusters and dependent launches, on a GPU of compute capability 9.0 and on the simulator:
// both must give these answers.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/runtime/runtime.h"
#include "tests/catch.h"
#include "tests/simt/conformance_kernels.h"

namespace {

// The simulator has no compute capability, and runs all that it knows.
bool device_is_older() {
  const int capability = runtime::properties().compute_capability;
  return capability != 0 && capability < 90;
}

void no_findings() {
  for (const runtime::Finding& finding : runtime::take_findings()) FAIL(finding.text);
}

// Lane l's register m: two elements of 16 bits, all of them different.
std::vector<std::uint32_t> fragments() {
  std::vector<std::uint32_t> registers(32 * 4);
  for (std::uint32_t i = 0; i < registers.size(); ++i) registers[i] = (0x1000 + 2 * i) | (0x1001 + 2 * i) << 16;
  return registers;
}

// Element [row][column] of matrix m, of which thread 4 row + p holds the pair p, low half first. With .trans the matrix is
// transposed before it is stored.
std::uint16_t element(const std::vector<std::uint32_t>& registers, bool transposed, std::size_t m, std::size_t row,
                      std::size_t column) {
  if (transposed) std::swap(row, column);
  const std::uint32_t pair = registers[4 * (4 * row + column / 2) + m];
  return static_cast<std::uint16_t>(pair >> (column % 2 == 0 ? 0 : 16));
}

}  // namespace

TEST_CASE("stmatrix stores each lane's elements where the PTX ISA says, in both forms, and touches no other row") {
  if (device_is_older()) return;
  const std::vector<std::uint32_t> registers = fragments();
  std::vector<std::vector<int>> orders(3, std::vector<int>(32));
  for (int lane = 0; lane < 32; ++lane) {
    const auto l = static_cast<std::size_t>(lane);
    orders[0][l] = lane;
    orders[1][l] = 63 - 2 * lane;   // backwards, every second row
    orders[2][l] = lane * 29 % 64;  // scattered
  }
  for (const bool transposed : {false, true}) {
    for (const std::vector<int>& order : orders) {
      std::vector<std::uint16_t> expected(64 * 8, 0xffff);
      for (std::size_t lane = 0; lane < 32; ++lane) {
        for (std::size_t column = 0; column < 8; ++column) {
          expected[8 * static_cast<std::size_t>(order[lane]) + column] =
              element(registers, transposed, lane / 8, lane % 8, column);
        }
      }
      INFO("transposed " << transposed << ", first row " << order[0]);
      REQUIRE(conformance::store_matrices(transposed, registers, order) == expected);
    }
  }
  no_findings();
}

TEST_CASE("what stmatrix stores ldmatrix loads, transposed if one of the two is") {
  if (device_is_older()) return;
  const std::vector<std::uint32_t> registers = fragments();
  for (const bool stored : {false, true}) {
    for (const bool loaded : {false, true}) {
      const std::vector<std::uint32_t> out = conformance::matrices_there_and_back(stored, loaded, registers);
      for (std::size_t lane = 0; lane < 32; ++lane) {
        for (std::size_t m = 0; m < 4; ++m) {
          const bool transposed = stored != loaded;
          const std::uint32_t low = element(registers, transposed, m, lane / 4, 2 * (lane % 4));
          const std::uint32_t high = element(registers, transposed, m, lane / 4, 2 * (lane % 4) + 1);
          INFO("stored " << stored << ", loaded " << loaded << ", lane " << lane << ", matrix " << m);
          REQUIRE(out[4 * lane + m] == (low | high << 16));
        }
      }
    }
  }
  no_findings();
}

TEST_CASE("stmatrix into swizzled rows and a swizzled read give the plain matrix") {
  if (device_is_older()) return;
  const std::vector<std::uint32_t> registers = fragments();
  for (const bool swizzled : {false, true}) {
    const std::vector<std::uint16_t> rows = conformance::store_rows(swizzled, registers);
    for (std::size_t row = 0; row < 8; ++row) {
      for (std::size_t column = 0; column < 64; ++column) {
        const bool inside = column < 32;
        INFO("swizzled " << swizzled << ", row " << row << ", column " << column);
        REQUIRE(rows[64 * row + column] == (inside ? element(registers, false, column / 8, row, column % 8) : 0xffff));
      }
    }
  }
  no_findings();
}

TEST_CASE("red.add of one, two and four floats loses nothing, whoever adds to whom") {
  if (device_is_older()) return;
  constexpr std::size_t threads = 1000;  // the last block is not full
  for (const std::size_t width : {1u, 2u, 4u}) {
    for (const std::size_t slots : {std::size_t{1}, std::size_t{7}, threads}) {
      std::vector<float> values(threads * width), expected(slots * width);
      std::vector<int> slot_of_thread(threads);
      for (std::size_t t = 0; t < threads; ++t) {
        slot_of_thread[t] = static_cast<int>(t * 13 % slots);
        for (std::size_t i = 0; i < width; ++i) {
          values[width * t + i] = static_cast<float>((width * t + i) % 29) - 9.0f;
          expected[width * (t * 13 % slots) + i] += values[width * t + i];
        }
      }
      INFO("width " << width << ", slots " << slots);
      REQUIRE(conformance::reduce(static_cast<int>(width), static_cast<int>(slots), values, slot_of_thread) == expected);
    }
  }
  no_findings();
}

TEST_CASE("red.add on device memory takes subnormal numbers for 0, those it adds and those it gets") {
  if (device_is_older()) return;
  constexpr float least = std::numeric_limits<float>::min();
  CHECK(conformance::reduce(1, 1, {least / 2, least / 2}, {0, 0}) == std::vector<float>{0.0f});
  CHECK(conformance::reduce(1, 1, {1.5f * least, -least}, {0, 0}) == std::vector<float>{0.0f});
  CHECK(conformance::reduce(2, 1, {least, least / 2}, {0}) == std::vector<float>{least, 0.0f});
  CHECK(conformance::reduce(4, 1, {1.0f, -0.0f, INFINITY, -least / 4}, {0}) == std::vector<float>{1.0f, 0.0f, INFINITY, 0.0f});
  no_findings();
}

TEST_CASE("a ring that bulk copies fill gives what a ring of cp.async gives") {
  if (device_is_older()) return;
  for (const std::size_t count : {1u, 2u, 3u, 4u, 17u}) {
    std::vector<int> tiles(64 * count);
    for (std::size_t i = 0; i < tiles.size(); ++i) tiles[i] = static_cast<int>(i * i % 1009);
    REQUIRE(conformance::bulk_ring(tiles) == conformance::copy_pipeline(tiles));
  }
  no_findings();
}

TEST_CASE("bulk copies to device memory bring what their buffers held when they were asked for, group by group") {
  if (device_is_older()) return;
  for (const int tiles : {1, 2, 3, 11}) {
    const conformance::BulkStores stores = conformance::bulk_stores(tiles);
    for (int tile = 0; tile < tiles; ++tile) {
      for (int t = 0; t < 64; ++t) {
        INFO("tile " << tile << " of " << tiles << ", number " << t);
        REQUIRE(stores.tiles[static_cast<std::size_t>(64 * tile + t)] == (tile % 3 == 2 ? 0 : 100 * tile + t));
      }
      REQUIRE(stores.first[static_cast<std::size_t>(tile)] == (tile % 3 == 2 ? 0 : 100 * tile));
    }
  }
  no_findings();
}

TEST_CASE("bulk copies there and back change nothing") {
  if (device_is_older()) return;
  std::vector<int> values(4 * 64);
  std::iota(values.begin(), values.end(), 7);
  CHECK(conformance::bulk_there_and_back(values) == values);
  no_findings();
}

TEST_CASE("the blocks of a cluster run at the same time, in each direction of the grid") {
  if (device_is_older()) return;
  CHECK(conformance::meet_in_clusters({64, 3, 2}, {4, 1, 1}) == std::vector<int>(64 * 3 * 2, 4));
  CHECK(conformance::meet_in_clusters({60, 6, 4}, {1, 3, 2}) == std::vector<int>(60 * 6 * 4, 6));
  no_findings();
}

TEST_CASE(
    "a block's rank in its cluster counts in x first, in launches of one, two and three dimensions and without clusters") {
  if (device_is_older()) return;
  using Size = std::array<unsigned, 3>;
  for (const auto& [grid, cluster] : {std::pair<Size, Size>{{8, 1, 1}, {4, 1, 1}},
                                      {{6, 4, 1}, {3, 2, 1}},
                                      {{4, 2, 6}, {2, 1, 3}},
                                      {{4, 2, 4}, {2, 2, 2}},
                                      {{3, 2, 1}, {1, 1, 1}}}) {
    std::vector<int> expected;
    for (unsigned z = 0; z < grid[2]; ++z) {
      for (unsigned y = 0; y < grid[1]; ++y) {
        for (unsigned x = 0; x < grid[0]; ++x) {
          const unsigned rank = (z % cluster[2] * cluster[1] + y % cluster[1]) * cluster[0] + x % cluster[0];
          expected.push_back(static_cast<int>(rank));
          expected.push_back(static_cast<int>(cluster[0] * cluster[1] * cluster[2]));
        }
      }
    }
    INFO("grid " << grid[0] << ", " << grid[1] << ", " << grid[2]);
    CHECK(conformance::cluster_ranks(grid, cluster) == expected);
  }
  no_findings();
}

TEST_CASE("blocks of a cluster load from and store to each other's shared memory, by words and by vectors") {
  if (device_is_older()) return;
  for (const unsigned cluster : {1u, 2u, 4u, 8u}) {
    for (const int rounds : {1, 2, 5}) {
      constexpr unsigned blocks = 16;
      std::vector<int> numbers(blocks * 64);
      for (unsigned i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>(100 * (i / 64) + i % 64);
      for (int round = 0; round < rounds; ++round) {
        std::vector<int> given(numbers.size());
        for (unsigned block = 0; block < blocks; ++block) {
          const auto at = [&](unsigned step) { return block / cluster * cluster + (block + step) % cluster; };
          const unsigned next = 64 * at(1), before = 64 * at(cluster - 1);
          for (unsigned t = 0; t < 64; ++t) {
            if (round % 2 == 0) {
              given[before + t] = numbers[next + 63 - t] + 1;
            } else {
              given[before + (60 - t / 4 * 4) + t % 4] = numbers[next + t] + (t % 4 == 0 ? round : 0);
            }
          }
        }
        numbers = given;
      }
      INFO("clusters of " << cluster << ", rounds " << rounds);
      CHECK(conformance::cluster_ring(blocks, cluster, rounds) == numbers);
    }
  }
  no_findings();
}

TEST_CASE("atomics on another block's shared memory lose nothing") {
  if (device_is_older()) return;
  for (const unsigned cluster : {1u, 3u, 6u}) {
    std::vector<int> values(12 * 96), expected(2 * 12 / cluster);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<int>(i * 37 % 101) - 20;
      int* const of_cluster = &expected[2 * (i / 96 / cluster)];
      of_cluster[0] += values[i];
      of_cluster[1] = std::max(of_cluster[1], values[i]);
    }
    INFO("clusters of " << cluster);
    CHECK(conformance::cluster_sums(12, cluster, values) == expected);
  }
  no_findings();
}

TEST_CASE("a thread may work, and meet its block, between arriving at the barrier of the cluster and waiting for it") {
  if (device_is_older()) return;
  for (const unsigned cluster : {1u, 2u, 5u}) {
    std::vector<int> sums(10 * 64);
    for (int round = 0; round < 4; ++round) {
      std::vector<int> next(sums.size());
      for (unsigned i = 0; i < sums.size(); ++i) {
        const int t = static_cast<int>(i % 64);
        next[i] = sums[i / 64 * 64 + (i % 64 ^ 33)] + round;
        for (unsigned rank = 0; rank < cluster; ++rank) next[i] += round + static_cast<int>(rank) + 63 - t;
      }
      sums = next;
    }
    INFO("clusters of " << cluster);
    CHECK(conformance::cluster_split(10, cluster, 4) == sums);
  }
  no_findings();
}

TEST_CASE("threads and blocks that have ended hold up no barrier of the cluster") {
  if (device_is_older()) return;
  for (const unsigned cluster : {2u, 3u, 8u}) {
    const int left = static_cast<int>(cluster) - 1;
    std::vector<int> expected(24 * 96);
    for (unsigned block = 0; block < 24; ++block) {
      const int rank = static_cast<int>(block % cluster);
      if (rank == left) continue;
      for (int slot = 0; slot < 48; ++slot) {
        const int thread = slot < 32 ? slot : slot + 48;
        expected[block * 96 + static_cast<unsigned>(thread)] =
            (47 - slot + (rank + left - 1) % left) + (10 * ((rank + 1) % left) + slot);
      }
    }
    INFO("clusters of " << cluster);
    CHECK(conformance::cluster_some_end(24, cluster) == expected);
  }
  no_findings();
}

TEST_CASE("a dependent launch that waits reads what the launch before it has stored, and may store where that one read") {
  if (device_is_older()) return;
  for (const unsigned cluster : {1u, 2u, 4u}) {
    for (const int launches : {1, 2, 9}) {
      std::vector<int> numbers(64 * 40), addends(numbers.size());
      std::iota(numbers.begin(), numbers.end(), 0);
      for (std::size_t i = 0; i < addends.size(); ++i) addends[i] = static_cast<int>(i * 37 % 101);
      for (int launch = 0; launch < launches; ++launch) {
        std::reverse(numbers.begin(), numbers.end());
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 3 * numbers[i] + addends[i];
      }
      INFO("clusters of " << cluster << ", launches " << launches);
      CHECK(conformance::dependent_launches(cluster, launches, addends) == numbers);
    }
  }
  no_findings();
}
