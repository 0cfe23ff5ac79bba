// The conformance kernels under a hundred schedules, traced under some of them: correct kernels are never reported.
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
  const runtime::AsyncMode modes[] = {runtime::AsyncMode::late, runtime::AsyncMode::eager, runtime::AsyncMode::random};
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
    const std::vector<runtime::Finding> findings = runtime::take_findings();
    CHECK(runtime::take_traces().empty() == (seed % 10 != 0));
    INFO("seed " << seed << ": " << (findings.empty() ? "" : findings[0].text));
    REQUIRE(findings.empty());
    REQUIRE(groups == std::vector<int>{1, 2, 3, 3, 4, 11, 7, 8, 15, 9, 10, 23});  // whenever the copies land
    REQUIRE(sums == std::vector<int>(64, 36));
  }
  runtime::configure({});
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
