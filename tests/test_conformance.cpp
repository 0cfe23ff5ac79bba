// The same kernels on a GPU and on the simulator: both must give these answers.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/device/runtime.h"
#include "common/problem/dtype.h"
#include "tests/catch.h"
#include "tests/conformance_kernels.h"

namespace {

constexpr unsigned full = 0xffffffffu;

void no_findings() {
  for (const device::Finding& finding : device::take_findings()) FAIL(finding.text);
}

// The lane that a shuffle reads, from the PTX ISA's description of shfl.sync, kept apart from the simulator's own version.
int expected_source(conformance::Shuffle mode, int lane, int operand, int width) {
  const int segment = lane / width * width;
  operand &= 31;  // five bits count
  switch (mode) {
    case conformance::Shuffle::index:
      return segment + operand % width;
    case conformance::Shuffle::up:
      return lane - operand >= segment ? lane - operand : lane;
    case conformance::Shuffle::down:
      return lane + operand < segment + width ? lane + operand : lane;
    case conformance::Shuffle::butterfly:
      return (lane ^ operand) < segment + width ? lane ^ operand : lane;
  }
  return -1;
}

}  // namespace

TEST_CASE("built-in variables count in x, then y, then z") {
  const unsigned gx = 3, gy = 2, gz = 2, bx = 5, by = 4, bz = 3;
  const std::vector<unsigned> out = conformance::builtins(gx, gy, gz, bx, by, bz);
  std::size_t at = 0;
  for (unsigned Z = 0; Z < gz; ++Z)
    for (unsigned Y = 0; Y < gy; ++Y)
      for (unsigned X = 0; X < gx; ++X)
        for (unsigned z = 0; z < bz; ++z)
          for (unsigned y = 0; y < by; ++y)
            for (unsigned x = 0; x < bx; ++x, at += 12) {
              const std::vector<unsigned> mine(out.begin() + static_cast<long>(at), out.begin() + static_cast<long>(at) + 12);
              REQUIRE(mine == std::vector<unsigned>{x, y, z, X, Y, Z, bx, by, bz, gx, gy, gz});
            }
  no_findings();
}

TEST_CASE("shuffles read the lane that the PTX ISA names, in every mode, width and distance") {
  using conformance::Shuffle;
  for (const Shuffle mode : {Shuffle::index, Shuffle::up, Shuffle::down, Shuffle::butterfly}) {
    for (const int width : {2, 4, 8, 16, 32}) {
      for (const int operand : {0, 1, 2, 3, 4, 9, 14, 16, 19, 24, 29, 31, 32, 33, 63, -1}) {
        const std::vector<int> out = conformance::shuffle(mode, full, operand, width);
        for (int lane = 0; lane < 32; ++lane) {
          INFO("mode " << static_cast<int>(mode) << " width " << width << " operand " << operand << " lane " << lane);
          REQUIRE(out[static_cast<std::size_t>(lane)] == 1000 + expected_source(mode, lane, operand, width));
        }
      }
    }
  }
  no_findings();
}

TEST_CASE("shuffles work among the lanes of a partial mask") {
  for (const unsigned mask : {0x0000ffffu, 0xffff0000u, 0xff00ff00u, 0x33333333u}) {
    const std::vector<int> out = conformance::shuffle(conformance::Shuffle::butterfly, mask, 1, 32);
    for (int lane = 0; lane < 32; ++lane) {
      const bool inside = mask >> lane & 1;
      REQUIRE(out[static_cast<std::size_t>(lane)] == (inside ? 1000 + (lane ^ 1) : 0));
    }
  }
  no_findings();
}

TEST_CASE("shuffles move 64-bit values whole") {
  const std::vector<double> out = conformance::shuffle_doubles(full);
  for (int lane = 0; lane < 32; ++lane) REQUIRE(out[static_cast<std::size_t>(lane)] == (lane ^ 1) + 0.25);
  no_findings();
}

TEST_CASE("votes count the lanes of the mask and no others") {
  for (const unsigned mask : {full, 0x0000ffffu, 0xaaaaaaaau, 0x00000001u, 0x80000001u}) {
    for (const unsigned predicates : {0u, full, 0x12345678u, mask, ~mask}) {
      const conformance::Votes votes = conformance::votes(mask, predicates);
      for (std::size_t lane = 0; lane < 32; ++lane) {
        const bool inside = mask >> lane & 1;
        REQUIRE(votes.ballot[lane] == (inside ? predicates & mask : 0));
        REQUIRE((votes.any[lane] != 0) == (inside && (predicates & mask) != 0));
        REQUIRE((votes.all[lane] != 0) == (inside && (predicates & mask) == mask));
      }
    }
  }
  no_findings();
}

TEST_CASE("a block reduces through shared memory and uses that memory again") {
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 1.0f);
  for (const int threads : {32, 64, 256, 1024}) {
    for (const float sum : conformance::block_sum(values, threads)) REQUIRE(sum == 500500.0f);
  }
  no_findings();
}

TEST_CASE("__syncwarp orders shared memory within a warp") {
  const std::vector<int> out = conformance::warp_transpose();
  for (int row = 0; row < 32; ++row)
    for (int column = 0; column < 32; ++column) REQUIRE(out[static_cast<std::size_t>(32 * row + column)] == 32 * column + row);
  no_findings();
}

TEST_CASE("named barriers pass stages from one warp to another") {
  for (const int rounds : {1, 2, 3, 40}) {
    const std::vector<int> out = conformance::producer_consumer(rounds);
    for (int lane = 0; lane < 32; ++lane) {
      REQUIRE(out[static_cast<std::size_t>(lane)] == rounds * (2 * rounds - 1) + 2 * rounds * (31 - lane));
    }
  }
  no_findings();
}

TEST_CASE("lanes that leave nested loops at different times meet again at the vote") {
  const std::vector<int> out = conformance::divergent_loops();
  std::vector<int> steps(64);
  for (int thread = 0; thread < 64; ++thread)
    for (int i = 0; i < thread % 7; ++i)
      for (int j = 0; j <= i; ++j) steps[static_cast<std::size_t>(thread)] += (i + j + thread) % 3 != 0;
  for (std::size_t thread = 0; thread < 64; ++thread) {
    const auto warp = steps.begin() + static_cast<long>(thread / 32 * 32);
    const long odd = std::count_if(warp, warp + 32, [](int s) { return s % 2 == 1; });
    REQUIRE(out[thread] == 100 * steps[thread] + odd);
  }
  no_findings();
}

TEST_CASE("atomics lose nothing") {
  std::vector<unsigned> values(1000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<unsigned>(i * i % 37);
  std::vector<unsigned> expected(37);
  for (const unsigned v : values) ++expected[v];
  REQUIRE(conformance::histogram(values, 37) == expected);
  REQUIRE(conformance::shared_histogram(values, 37) == expected);
  REQUIRE(conformance::atomic_float_sum(50, 96) == 4800.0f);

  const std::vector<int> out = conformance::integer_atomics(96);
  int greatest = 0;
  for (int thread = 0; thread < 96; ++thread) greatest = std::max(greatest, thread * 37 % 101);
  REQUIRE(out[0] == greatest);
  REQUIRE(out[1] == -greatest);
  REQUIRE(out[2] == (1 << 20) - 1);
  REQUIRE(out[3] == ~((1 << 20) - 1));
  REQUIRE(out[4] + out[5] == 95 * 96 / 2);
  no_findings();
}

TEST_CASE("locks, last-block reductions and flags between blocks come to an end, with the right result") {
  REQUIRE(conformance::locked_increments(40) == 40);
  REQUIRE(conformance::last_block_sum(100) == 5050);
  REQUIRE(conformance::flag_chain(40) == 40);
  no_findings();
}

TEST_CASE("16-bit conversions round as the host's do, and vector accesses move all of their bytes") {
  std::vector<float> values = {0.0f,     -0.0f, 1.0f,     1.0f / 3, 65504.0f, 65519.9f,
                               65520.0f, 1e30f, 5.96e-8f, 2.9e-8f,  3e-8f,    -1e-5f};
  for (int i = 0; i < 500; ++i) values.push_back(std::ldexp(1.0f + 0.001953125f * static_cast<float>(i), i % 40 - 26));
  const std::vector<float> halves = conformance::half_round_trip(values);
  const std::vector<float> bfloats = conformance::bfloat_round_trip(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    INFO("value " << values[i]);
    REQUIRE(halves[i] == problem::round_to(problem::Dtype::fp16, values[i]));
    REQUIRE(bfloats[i] == problem::round_to(problem::Dtype::bf16, values[i]));
  }
  REQUIRE(conformance::vector_copy(values) == values);
  no_findings();
}

TEST_CASE("printf in a kernel reaches standard output") {
  const std::string text = conformance::printed();
  for (const char* line : {"thread 0: 0.5\n", "thread 1: 1.5\n", "thread 2: 2.5\n", "thread 3: 3.5\n"}) {
    REQUIRE(text.find(line) != std::string::npos);
  }
  no_findings();
}
