// The same kernels on a GPU and on the simulator: both must give these answers.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/problem/dtype.h"
#include "common/runtime/runtime.h"
#include "tests/catch.h"
#include "tests/simt/conformance_kernels.h"

namespace {

constexpr unsigned full = 0xffffffffu;

void no_findings() {
  for (const runtime::Finding& finding : runtime::take_findings()) FAIL(finding.text);
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

// ---- fragments of matrices in the registers of a warp, from the PTX ISA ("Matrix fragments for mma.m16n8k16", "…m16n8k8"), in
// its own words: group is groupID, thread is threadID_in_group, i counts a thread's elements ----

struct Place {
  std::size_t row, column;
};

Place in_a(int k, int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  const bool upper = k == 16 ? (0 <= i && i < 2) || (4 <= i && i < 6) : i < 2;
  const int row = upper ? group : group + 8;
  const int column = thread * 2 + (i & 1) + (k == 16 && i >= 4 ? 8 : 0);
  return {static_cast<std::size_t>(row), static_cast<std::size_t>(column)};
}

Place in_b(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  const int row = thread * 2 + (i & 1) + (i >= 2 ? 8 : 0);
  return {static_cast<std::size_t>(row), static_cast<std::size_t>(group)};
}

Place in_c(int lane, int i) {
  const int group = lane >> 2, thread = lane % 4;
  return {static_cast<std::size_t>(i < 2 ? group : group + 8), static_cast<std::size_t>(thread * 2 + (i & 1))};
}

std::uint16_t bits_of(conformance::Operand type, float value) {
  return type == conformance::Operand::half ? problem::fp16_bits(value) : problem::bf16_bits(value);
}

// C += A · B by a warp, or D = A · B + C with D and C apart. A is [16, k], B [k, 8], C [16, 8]; values that the type holds
// exactly.
std::vector<float> multiplied(conformance::Operand type, int k, const std::vector<float>& a, const std::vector<float>& b,
                              const std::vector<float>& c, bool apart = false) {
  const auto depth = static_cast<std::size_t>(k);
  std::vector<std::uint32_t> a_registers(32 * depth / 4), b_registers(32 * depth / 8);
  std::vector<float> c_registers(32 * 4), result(16 * 8);
  const auto put = [&](std::vector<std::uint32_t>& registers, std::size_t element, float value) {
    registers[element / 2] |= std::uint32_t{bits_of(type, value)} << (element % 2 == 0 ? 0 : 16);  // the first in the low half
  };
  for (int lane = 0; lane < 32; ++lane) {
    const auto l = static_cast<std::size_t>(lane);
    for (int i = 0; i < k / 2; ++i) {
      const Place at = in_a(k, lane, i);
      put(a_registers, l * depth / 2 + static_cast<std::size_t>(i), a[at.row * depth + at.column]);
    }
    for (int i = 0; i < k / 4; ++i) {
      const Place at = in_b(lane, i);
      put(b_registers, l * depth / 4 + static_cast<std::size_t>(i), b[at.row * 8 + at.column]);
    }
    for (int i = 0; i < 4; ++i) {
      const Place at = in_c(lane, i);
      c_registers[4 * l + static_cast<std::size_t>(i)] = c[at.row * 8 + at.column];
    }
  }
  std::vector<float> out;
  if (apart) {
    const conformance::Multiplied both = conformance::multiply_from(type, a_registers, b_registers, c_registers);
    REQUIRE(both.c == c_registers);
    out = both.d;
  } else {
    out = conformance::multiply(type, k, a_registers, b_registers, c_registers);
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Place at = in_c(lane, i);
      result[at.row * 8 + at.column] = out[4 * static_cast<std::size_t>(lane) + static_cast<std::size_t>(i)];
    }
  }
  return result;
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

TEST_CASE("__syncthreads_or tells every thread whether any voted true, round after round") {
  const std::vector<int> voters = {0, -1, 95, 33, 33, -1, -1, 64};
  for (const int threads : {1, 32, 96}) {
    const std::vector<int> votes = conformance::block_votes(threads, voters);
    for (std::size_t i = 0; i < votes.size(); ++i) {
      const int voter = voters[i / static_cast<std::size_t>(threads)];
      REQUIRE(votes[i] == (voter >= 0 && voter < threads));
    }
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

TEST_CASE("prmt takes the bytes that its selector names, or their highest bits") {
  const std::vector<std::uint32_t> low = {0x33221100u, 0x80ff7f01u}, high = {0x77665544u, 0x00817effu};
  REQUIRE(conformance::permute(low, high, 0x3210) == low);
  REQUIRE(conformance::permute(low, high, 0x7654) == high);
  REQUIRE(conformance::permute(low, high, 0x0536) == std::vector<std::uint32_t>{0x00553366u, 0x017e8081u});
  REQUIRE(conformance::permute(low, high, 0xCC88) == std::vector<std::uint32_t>{0, 0xffff0000u});
  REQUIRE(conformance::permute(low, high, 0xEA9B) == std::vector<std::uint32_t>{0, 0xffff00ffu});
  no_findings();
}

TEST_CASE("max.NaN of two packed numbers gives the larger, +0 rather than -0, and NaN where one is NaN") {
  for (const auto type : {conformance::Operand::half, conformance::Operand::bfloat}) {
    const bool half = type == conformance::Operand::half;
    const auto value = [&](std::uint32_t bits) {
      return half ? problem::fp16_value(static_cast<std::uint16_t>(bits))
                  : problem::bf16_value(static_cast<std::uint16_t>(bits));
    };
    const std::uint32_t one = half ? 0x3c00 : 0x3f80, infinity = half ? 0x7c00 : 0x7f80;
    std::vector<std::uint32_t> numbers;
    for (const std::uint32_t x : {0u, 1u, one, one + 1, infinity - 1, infinity, infinity + 1, 0x7fffu}) {
      numbers.insert(numbers.end(), {x, x | 0x8000});
    }
    std::vector<std::uint32_t> a, b;
    for (const std::uint32_t x : numbers) {
      for (const std::uint32_t y : numbers) {
        a.push_back(x | y << 16);
        b.push_back(y | x << 16);
      }
    }
    const std::vector<std::uint32_t> larger = conformance::larger_or_nan(type, a, b);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::uint32_t x = a[i] & 0xffff, y = b[i] & 0xffff;
      const bool nan = std::isnan(value(x)) || std::isnan(value(y));
      const bool x_is_larger = value(x) > value(y) || (value(x) == value(y) && x < y);
      INFO(std::hex << x << " and " << y);
      REQUIRE(larger[i] == (nan ? 0x7fffu : x_is_larger ? x : y) * 0x10001u);
    }
  }
  no_findings();
}

TEST_CASE("a load under a false predicate reads nothing and gives zero, a store under one writes nothing") {
  std::vector<float> values(77);  // the last round goes beyond them
  std::iota(values.begin(), values.end(), 10.0f);
  const std::vector<float> copied = conformance::predicated_copy(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    INFO("element " << i);
    REQUIRE(copied[i] == (i / 32 % 3 == i % 32 % 3 ? values[i] : 0.0f) + 1.0f);
  }
  no_findings();
}

TEST_CASE("ldmatrix gives each lane the elements that the PTX ISA names, in all six forms") {
  std::vector<std::uint16_t> rows(64 * 8);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::uint16_t>(0x4000 + 37 * i);
  std::vector<std::vector<int>> orders(3, std::vector<int>(32));
  for (int lane = 0; lane < 32; ++lane) {
    const auto l = static_cast<std::size_t>(lane);
    orders[0][l] = lane;
    orders[1][l] = 63 - 2 * lane;      // backwards, every second row
    orders[2][l] = lane / 3 * 5 % 64;  // some rows several times
  }
  for (const int matrices : {1, 2, 4}) {
    for (const bool transposed : {false, true}) {
      for (const std::vector<int>& order : orders) {
        const std::vector<std::uint32_t> out = conformance::load_matrices(matrices, transposed, rows, order);
        // Thread 4 r + p gets, of matrix m, the p-th pair of elements of row r, whose address thread 8 m + r gave. With .trans
        // the matrix is transposed first.
        const auto element = [&](int m, int row, int column) {
          if (transposed) std::swap(row, column);
          const int address = order[static_cast<std::size_t>(8 * m + row)];
          return std::uint32_t{rows[static_cast<std::size_t>(8 * address + column)]};
        };
        for (int lane = 0; lane < 32; ++lane) {
          for (int m = 0; m < matrices; ++m) {
            const int row = lane / 4, pair = lane % 4;
            const std::uint32_t expected = element(m, row, 2 * pair) | element(m, row, 2 * pair + 1) << 16;
            INFO("x" << matrices << (transposed ? ".trans" : "") << ", lane " << lane << ", matrix " << m);
            REQUIRE(out[static_cast<std::size_t>(matrices * lane + m)] == expected);
          }
        }
      }
    }
  }
  no_findings();
}

TEST_CASE("mma.sync multiplies small integers exactly, in both types and depths, with D in place of C or apart from it") {
  for (const conformance::Operand type : {conformance::Operand::half, conformance::Operand::bfloat}) {
    for (const int k : {8, 16}) {
      const auto depth = static_cast<std::size_t>(k);
      std::vector<float> a(16 * depth), b(depth * 8), c(16 * 8), zero(16 * 8), identity_a(16 * depth), identity_b(depth * 8);
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7 % 61) - 30.0f;
      for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 11 % 53) - 26.0f;
      for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<float>(i * 101 % 1009) - 500.0f;
      for (std::size_t i = 0; i < depth; ++i) {
        identity_a[i * depth + i] = 1.0f;
        if (i < 8) identity_b[i * 8 + i] = 1.0f;
      }
      const auto expected = [&](const std::vector<float>& left, const std::vector<float>& right,
                                const std::vector<float>& sum) {
        std::vector<float> d = sum;
        for (std::size_t row = 0; row < 16; ++row)
          for (std::size_t i = 0; i < depth; ++i)
            for (std::size_t column = 0; column < 8; ++column) {
              d[row * 8 + column] += left[row * depth + i] * right[i * 8 + column];
            }
        return d;
      };
      INFO("type " << static_cast<int>(type) << ", k " << k);
      const auto both = [&](const std::vector<float>& left, const std::vector<float>& right, const std::vector<float>& sum) {
        REQUIRE(multiplied(type, k, left, right, sum) == expected(left, right, sum));
        if (k == 16) REQUIRE(multiplied(type, k, left, right, sum, true) == expected(left, right, sum));
      };
      both(identity_a, b, zero);
      both(a, identity_b, zero);
      both(a, b, zero);
      both(a, b, c);
    }
  }
  no_findings();
}

TEST_CASE("sums of mma.sync are right whenever they are looked at, and however C and D of several products hang together") {
  const std::vector<float> sums = conformance::chained_products();
  for (std::size_t lane = 0; lane < 32; ++lane) {
    const auto begin = [&](int i) { return static_cast<float>(10 * lane) + static_cast<float>(i); };
    std::vector<float> expected;
    for (int i = 0; i < 4; ++i) expected.push_back(begin(i) + 151 * 16);
    for (int i = 0; i < 4; ++i) expected.push_back(begin(i) + 151 * 16);
    for (int i = 0; i < 6; ++i) expected.push_back(begin(i) + (i == 2 || i == 3 ? 32.0f : 16.0f));
    for (int i = 0; i < 4; ++i) expected.push_back(i == 1 ? -1.0f : begin(i) + 16);
    for (int i = 0; i < 4; ++i) expected.push_back(begin(i) + 16);
    const auto mine = sums.begin() + static_cast<long>(22 * lane);
    INFO("lane " << lane);
    REQUIRE(std::vector<float>(mine, mine + 22) == expected);
  }
  no_findings();
}

TEST_CASE("mma.sync takes every finite half, subnormal ones too, and every normal bfloat16") {
  std::vector<float> identity(8 * 8), zero(16 * 8);
  for (std::size_t i = 0; i < 8; ++i) identity[i * 8 + i] = 1.0f;
  for (const conformance::Operand type : {conformance::Operand::half, conformance::Operand::bfloat}) {
    std::vector<float> values;
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      const float value = type == conformance::Operand::half ? problem::fp16_value(bits) : problem::bf16_value(bits);
      if (std::isfinite(value) && (value == 0 || std::isnormal(value))) values.push_back(value);
    }
    values.resize((values.size() + 127) / 128 * 128);
    for (std::size_t i = 0; i < values.size(); i += 128) {
      const std::vector<float> a(values.begin() + static_cast<long>(i), values.begin() + static_cast<long>(i) + 128);
      REQUIRE(multiplied(type, 8, a, identity, zero) == a);
    }
  }
  no_findings();
}

TEST_CASE("cp.async copies as many bytes as it is asked to read, and fills up with zeros") {
  struct Form {
    int bytes;
    bool past_l1;
  };
  for (const Form form : {Form{4, false}, Form{8, false}, Form{16, false}, Form{16, true}}) {
    const std::size_t threads = 34 * 17;  // each size several times, in different places of a warp
    const auto bytes = static_cast<std::size_t>(form.bytes);
    std::vector<std::uint8_t> from(16 * threads);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(1 + i * 7 % 255);
    std::vector<int> source_bytes(threads);
    for (std::size_t t = 0; t < threads; ++t) source_bytes[t] = static_cast<int>(t) % (form.bytes + 1);
    const std::vector<std::uint8_t> out = conformance::copy_async(form.bytes, form.past_l1, from, source_bytes);
    for (std::size_t t = 0; t < threads; ++t) {
      const std::size_t source = t ^ 1;
      for (std::size_t i = 0; i < bytes; ++i) {
        INFO(form.bytes << " bytes, thread " << t << ", byte " << i << " of " << source_bytes[source]);
        REQUIRE(out[bytes * t + i] == (i < static_cast<std::size_t>(source_bytes[source]) ? from[16 * source + i] : 0));
      }
    }
  }
  no_findings();
}

TEST_CASE("groups of copies end in the order in which they were committed, an empty one counts, and wait_all waits for all") {
  std::vector<int> values(12);
  std::iota(values.begin(), values.end(), 100);
  const std::vector<int> out = conformance::copy_groups(values);
  for (std::size_t t = 0; t < 2; ++t) {
    const int* v = &values[6 * t];
    REQUIRE(std::vector<int>(&out[6 * t], &out[6 * t] + 6) ==
            std::vector<int>{v[0], v[1], v[0] + v[1], v[2], v[3], v[4] + v[5]});
  }
  no_findings();
}

TEST_CASE("copies run ahead of a pipeline through its stages") {
  for (const std::size_t count : {0u, 1u, 2u, 3u, 4u, 17u}) {
    std::vector<int> tiles(64 * count);
    for (std::size_t i = 0; i < tiles.size(); ++i) tiles[i] = static_cast<int>(i * i % 1009);
    const std::vector<int> out = conformance::copy_pipeline(tiles);
    for (std::size_t t = 0; t < 64; ++t) {
      int expected = 0;
      for (std::size_t tile = 0; tile < count; ++tile) expected += static_cast<int>(tile + 1) * tiles[64 * tile + 63 - t];
      REQUIRE(out[t] == expected);
    }
    REQUIRE(conformance::mbarrier_ring(tiles) == out);
  }
  no_findings();
}

TEST_CASE("threads that meet at an mbarrier have seen each other's stores, phase after phase") {
  for (const int rounds : {1, 2, 5}) {
    const std::vector<int> out = conformance::mbarrier_rounds(rounds);
    for (int round = 0; round <= rounds; ++round) {
      for (int t = 0; t < 128; ++t) {
        INFO("round " << round << " of " << rounds << ", thread " << t);
        REQUIRE(out[static_cast<std::size_t>(128 * round + t)] == (round == rounds ? 5 : 1000 * round + (t + 1) % 128));
      }
    }
  }
  no_findings();
}

TEST_CASE("printf in a kernel reaches standard output") {
  const std::string text = conformance::printed();
  for (const char* line : {"thread 0: 0.5\n", "thread 1: 1.5\n", "thread 2: 2.5\n", "thread 3: 3.5\n"}) {
    REQUIRE(text.find(line) != std::string::npos);
  }
  no_findings();
}
