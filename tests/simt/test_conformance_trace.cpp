// What a trace says of the conformance kernels: which instructions their first warp makes, by which lanes, under every
// schedule.
#include <functional>

#include "common/runtime/runtime.h"
#include "common/simt/trace.h"
#include "tests/catch.h"
#include "tests/simt/conformance_kernels.h"

namespace {

struct Instruction {
  std::string op;
  std::uint32_t lanes;
  std::optional<int> operand;
  bool operator==(const Instruction&) const = default;
};

// Of the one kernel that `run` launches, under several seeds: they must agree.
std::vector<Instruction> traced(const std::function<void()>& run) {
  std::vector<Instruction> first;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    runtime::configure({.seed = seed});
    runtime::set_tracing(true);
    run();
    const std::vector<runtime::KernelTrace> traces = runtime::take_traces();
    runtime::configure({});
    REQUIRE(traces.size() == 1);
    std::vector<Instruction> all;
    for (const runtime::TraceEvent& event : traces[0].events) all.push_back({event.op, event.lanes, event.operand});
    if (seed == 1) first = all;
    REQUIRE(all == first);
    REQUIRE(runtime::take_findings().empty());
  }
  return first;
}

// Those that are no accesses.
std::vector<Instruction> without_accesses(const std::vector<Instruction>& all) {
  std::vector<Instruction> rest;
  for (const Instruction& one : all) {
    if (!one.op.starts_with("ld.") && !one.op.starts_with("st.")) rest.push_back(one);
  }
  return rest;
}

constexpr std::uint32_t full = 0xffffffffu;

}  // namespace

TEST_CASE("named barriers are traced with their numbers, in the order in which the warp comes to them") {
  const std::vector<Instruction> round = {{"st.shared", full, {}},
                                          {"bar.arrive", full, 1},
                                          {"st.shared", full, {}},
                                          {"bar.arrive", full, 2},
                                          {"bar.sync", full, 0}};
  std::vector<Instruction> expected = round;
  expected.insert(expected.end(), round.begin(), round.end());
  CHECK(traced([] { conformance::producer_consumer(2); }) == expected);
}

TEST_CASE("another warp can be traced, and a block that does not have it has an empty trace") {
  struct WarpZeroAgain {  // for the tests behind this one, even if it fails
    ~WarpZeroAgain() { simt::trace_warp(0); }
  } warp_zero_again;
  const auto of_warp = [](unsigned warp) {
    simt::trace_warp(warp);
    return traced([] { conformance::producer_consumer(1); });
  };
  CHECK(of_warp(1) == std::vector<Instruction>{{"bar.sync", full, 1},
                                               {"ld.shared", full, {}},
                                               {"bar.sync", full, 2},
                                               {"ld.shared", full, {}},
                                               {"bar.sync", full, 0},
                                               {"st.global", full, {}}});
  CHECK(of_warp(2).empty());
}

TEST_CASE("a warp call is traced with its mask, once for all lanes that make it") {
  const auto shuffle = traced([] { conformance::shuffle(conformance::Shuffle::butterfly, 0x0000ffffu, 1, 32); });
  CHECK(without_accesses(shuffle) == std::vector<Instruction>{{"__shfl_xor_sync", 0x0000ffffu, {}}});
  const auto vote = traced([] { conformance::divergent_loops(); });
  CHECK(without_accesses(vote) == std::vector<Instruction>{{"__ballot_sync", full, {}}});
  const auto transpose = without_accesses(traced([] { conformance::warp_transpose(); }));
  CHECK(transpose == std::vector<Instruction>(transpose.size(), {"__syncwarp", full, {}}));
  CHECK(!transpose.empty());
}

TEST_CASE("commits and waits are traced with the lanes that make them, an empty group's commit and wait_all, too") {
  std::vector<Instruction> groups;
  for (const Instruction& one : traced([] { conformance::copy_groups({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}); })) {
    if (one.op.starts_with("cp.async.commit") || one.op.starts_with("cp.async.wait")) groups.push_back(one);
  }
  std::vector<Instruction> expected(5, {"cp.async.commit_group", 0x3u, {}});
  expected.push_back({"cp.async.wait_group", 0x3u, 200});
  for (int pending = 4; pending >= 0; --pending) expected.push_back({"cp.async.wait_group", 0x3u, pending});
  expected.push_back({"cp.async.wait_all", 0x3u, {}});
  CHECK(groups == expected);
}

TEST_CASE("ldmatrix is traced with the lanes that give rows, and mma with all") {
  const std::vector<std::uint16_t> rows(64 * 8, 1);
  runtime::set_tracing(true);
  conformance::load_matrices(2, true, rows, std::vector<int>(32, 5));
  conformance::multiply(conformance::Operand::bfloat, 8, std::vector<std::uint32_t>(32 * 2), std::vector<std::uint32_t>(32),
                        std::vector<float>(32 * 4));
  runtime::set_tracing(false);
  const std::vector<runtime::KernelTrace> traces = runtime::take_traces();
  REQUIRE(traces.size() == 2);
  const auto find = [](const runtime::KernelTrace& trace, const std::string& op) {
    for (const runtime::TraceEvent& event : trace.events) {
      if (event.op == op) return event;
    }
    FAIL("there is no " << op);
    return runtime::TraceEvent{};
  };
  const runtime::TraceEvent load = find(traces[0], "ldmatrix.x2.trans");
  CHECK(load.lanes == full);
  CHECK(load.wavefronts == 2);  // of each matrix one: all its rows are the same
  for (std::size_t lane = 0; lane < 32; ++lane) {
    CHECK(load.shared.offsets[lane] == (lane < 16 ? std::optional<std::int64_t>(5 * 16) : std::nullopt));
  }
  CHECK(find(traces[1], "mma.m16n8k8.bf16").lanes == full);
}

TEST_CASE("stmatrix is traced with its rows, and red with the places that it adds to") {
  std::vector<int> places(32);
  for (std::size_t lane = 0; lane < 32; ++lane) places[lane] = 2 * static_cast<int>(lane);
  runtime::set_tracing(true);
  conformance::store_matrices(true, std::vector<std::uint32_t>(32 * 4), places);
  conformance::reduce(4, 64, std::vector<float>(32 * 4), places);
  runtime::set_tracing(false);
  const std::vector<runtime::KernelTrace> traces = runtime::take_traces();
  REQUIRE(traces.size() == 2);
  const auto find = [](const runtime::KernelTrace& trace, const std::string& op) {
    for (const runtime::TraceEvent& event : trace.events) {
      if (event.op == op) return event;
    }
    FAIL("there is no " << op);
    return runtime::TraceEvent{};
  };
  const runtime::TraceEvent store = find(traces[0], "stmatrix.x4.trans");
  CHECK(store.lanes == full);
  CHECK(store.bytes == 16);
  CHECK(store.wavefronts == 8);
  const runtime::TraceEvent red = find(traces[1], "red.global.add");
  CHECK(red.lanes == full);
  CHECK(red.bytes == 16);
  CHECK(red.global.first == "sums");
  CHECK(red.sectors == 32);
  for (std::size_t lane = 0; lane < 32; ++lane) {
    CHECK(store.shared.offsets[lane] == std::optional<std::int64_t>(32 * lane));
    CHECK(red.global.offsets[lane] == std::optional<std::int64_t>(32 * lane));
  }
}
