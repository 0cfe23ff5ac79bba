// A ceiling is worth as much as its amount. Every kernel does the operations, or moves the bytes, that its time is
// divided into.
#include <map>
#include <string>
#include <vector>

#include "benchmarks/ceilings/ceilings.h"
#include "common/runtime/runtime.h"
#include "tests/catch.h"

namespace {

using ceilings::Ceiling;
using ceilings::Ceilings;

constexpr double gpu_elements = 1 << 28;  // of 16 bytes, at scale 1
constexpr int multiprocessors = 2;
// The smallest; less than a block; and lengths that blocks do not divide, less and more than `read` takes in one go (262,144).
// Arithmetic makes 1, 1, 2 and 22 rounds.
constexpr double elements[] = {1, 500, 30006, 300006};

// Of each kernel: an element, one multiply-add in each chain, one mma.sync for each sum.
const std::map<std::string, double> least_work = {
    {"copy_bytes_per_second", 2 * 16},
    {"read_bytes_per_second", 16},
    {"fma_flops_per_second", 2.0 * 8 * (multiprocessors * 8 * 256)},
    {"mma_sync_flops_per_second", 4096.0 * 32 * (multiprocessors * 8)},
    {"mma_sync_bf16_flops_per_second", 4096.0 * 32 * (multiprocessors * 8)},
};

void no_findings() {
  for (const runtime::Finding& finding : runtime::take_findings()) FAIL(finding.text);
}

}  // namespace

TEST_CASE("every launch leaves what the host computes for its amount, and for no other") {
  for (const double count : elements) {
    const Ceilings ceilings(count / gpu_elements, multiprocessors);
    CHECK(ceilings.all().size() == least_work.size());
    for (const Ceiling& ceiling : ceilings.all()) {
      INFO(ceiling.name << ", " << count << " elements");
      CHECK_FALSE(ceiling.did(ceiling.amount));
      ceiling.launch();
      CHECK(ceiling.did(ceiling.amount));
      CHECK_FALSE(ceiling.did(ceiling.amount - least_work.at(ceiling.name)));
      CHECK_FALSE(ceiling.did(ceiling.amount + least_work.at(ceiling.name)));
      no_findings();
    }
  }
}

TEST_CASE("amounts grow with the scale") {
  const Ceilings one(1000 / gpu_elements, multiprocessors), larger(300000 / gpu_elements, 2 * multiprocessors);
  for (std::size_t i = 0; i < one.all().size(); ++i) {
    const bool bytes = i < 2;  // these do not depend on the multiprocessors; arithmetic goes from 1 round to 22
    CHECK(larger.all()[i].amount == (bytes ? 300 : 2 * 22) * one.all()[i].amount);
  }
}

TEST_CASE("no launch passes for another") {
  const Ceilings ceilings(1000 / gpu_elements, multiprocessors);
  for (const Ceiling& last : ceilings.all()) {
    last.launch();
    for (const Ceiling& other : ceilings.all()) {
      INFO("launched " << last.name << ", asked " << other.name);
      const bool has_own_result = other.name == "copy_bytes_per_second";  // the others share theirs
      CHECK(other.did(other.amount) == (has_own_result || &other == &last));
    }
  }
}

TEST_CASE("the simulator counts the bytes and the tensor instructions that the amounts say, and no others") {
  if (runtime::properties().backend != "sim") return;  // on a GPU, Nsight Compute counts
  const Ceilings ceilings(300006 / gpu_elements, multiprocessors);
  runtime::set_counting(true);
  runtime::take_counters();
  for (const Ceiling& ceiling : ceilings.all()) ceiling.launch();
  runtime::set_counting(false);
  const std::vector<runtime::KernelCounters> kernels = runtime::take_counters();
  REQUIRE(kernels.size() == 5);

  const auto moved = [](const runtime::KernelCounters& kernel, runtime::Op op) {
    double bytes = 0;
    for (const runtime::LineCounters& line : kernel.lines)
      bytes += line.op == op ? 32.0 * static_cast<double>(line.sectors) : 0;
    return bytes;
  };
  const double bytes = 300006 * 16;
  const auto& all = ceilings.all();
  CHECK(all[0].amount == 2 * bytes);
  CHECK(moved(kernels[0], runtime::Op::load) == bytes);
  CHECK(moved(kernels[0], runtime::Op::store) == bytes);
  CHECK(all[1].amount == bytes);
  CHECK(moved(kernels[1], runtime::Op::load) == bytes);
  CHECK(static_cast<double>(kernels[1].bytes_loaded) == bytes);  // each sector once
  for (const std::size_t mma : {3, 4}) {
    CHECK(4096.0 * static_cast<double>(kernels[mma].tensor_instructions) == all[mma].amount);
  }
  // Arithmetic runs from registers: each warp loads its operands once, whatever the number of rounds.
  const auto loads = [](const runtime::KernelCounters& kernel) {
    double instructions = 0;
    for (const runtime::LineCounters& line : kernel.lines)
      instructions += line.op == runtime::Op::load ? double(line.instructions) : 0;
    return instructions;
  };
  CHECK(loads(kernels[2]) == 9 * multiprocessors * 64);
  CHECK(loads(kernels[3]) == 32 * multiprocessors * 8);
  CHECK(loads(kernels[4]) == 32 * multiprocessors * 8);
  no_findings();
}
