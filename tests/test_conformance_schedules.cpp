// The conformance kernels under a hundred schedules: correct kernels are never reported.
#include "common/device/runtime.h"
#include "tests/catch.h"
#include "tests/conformance_kernels.h"

TEST_CASE("no conformance kernel is reported under a hundred schedules") {
  const std::vector<float> values(1000, 1.0f);
  const std::vector<unsigned> bins(1000, 3);
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    device::configure({seed, device::AsyncMode::late, static_cast<int>(seed % 3)});
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
    const std::vector<device::Finding> findings = device::take_findings();
    INFO("seed " << seed << ": " << (findings.empty() ? "" : findings[0].text));
    REQUIRE(findings.empty());
  }
  device::configure({});
}
