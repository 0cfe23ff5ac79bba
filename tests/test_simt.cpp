// The simulator is strict: every fault is found, named and placed, whatever the schedule; correct kernels are left alone.
#include <fstream>
#include <set>
#include <string>

#include "common/device/runtime.h"
#include "tests/catch.h"
#include "tests/faulty_kernels.h"

namespace {

// "tests/faulty_kernels.cu:41" for the line that the comment "// fault: NAME" marks; "unknown place" where there is none.
std::string marked_place(const std::string& name) {
  std::ifstream source("tests/faulty_kernels.cu");
  std::string line;
  for (int number = 1; std::getline(source, line); ++number) {
    if (line.ends_with("// fault: " + name)) return "tests/faulty_kernels.cu:" + std::to_string(number);
  }
  return "unknown place";
}

struct WithOptions {  // restores the defaults at the end of a test
  explicit WithOptions(const device::SimOptions& options) { device::configure(options); }
  WithOptions(const WithOptions&) = delete;
  WithOptions& operator=(const WithOptions&) = delete;
  ~WithOptions() { device::configure({}); }
};

}  // namespace

TEST_CASE("every fault is found with its kind, its line and the right name, under eight schedules") {
  for (const faulty::Fault& fault : faulty::faults()) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const WithOptions options({seed, device::AsyncMode::late, 0});
      fault.run();
      const std::vector<device::Finding> findings = device::take_findings();
      INFO("fault " << fault.name << ", seed " << seed);
      REQUIRE(!findings.empty());
      INFO(findings[0].text);
      CHECK(findings.size() == 1);
      CHECK(findings[0].kind == fault.kind);
      CHECK(findings[0].where == marked_place(fault.name));
      CHECK(findings[0].kernel.ends_with("::" + fault.name));
      CHECK(findings[0].text.find(fault.names) != std::string::npos);
      CHECK(findings[0].text.find("--sim-seed " + std::to_string(seed)) != std::string::npos);
    }
  }
}

TEST_CASE("a correct kernel gives no finding under a hundred schedules") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const WithOptions options({seed, device::AsyncMode::late, 0});
    faulty::correct();
    const std::vector<device::Finding> findings = device::take_findings();
    INFO((findings.empty() ? "" : findings[0].text));
    REQUIRE(findings.empty());
  }
}

TEST_CASE("a fault that many threads make at one line is one finding with a count") {
  faulty::two_faults();
  const std::vector<device::Finding> findings = device::take_findings();
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].count == 32);
  CHECK(findings[1].count == 32);
  CHECK(findings[0].where != findings[1].where);
}

TEST_CASE("a launch that no GPU would take is an error, not a finding") {
  CHECK_THROWS_AS(faulty::too_many_threads(), device::Error);
  CHECK_THROWS_AS(faulty::too_much_shared(), device::Error);
  CHECK(device::take_findings().empty());
}

TEST_CASE("the seed alone decides the schedule, and different seeds give different ones") {
  std::set<std::vector<int>> schedules;
  std::set<std::vector<int>> block_schedules;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const WithOptions options({seed, device::AsyncMode::late, 0});
    const std::vector<int> first = faulty::schedule(6, 96);
    REQUIRE(faulty::schedule(6, 96) == first);
    schedules.insert(first);
    const std::vector<int> in_block = faulty::block_schedule(96);
    REQUIRE(faulty::block_schedule(96) == in_block);
    block_schedules.insert(in_block);
  }
  CHECK(schedules.size() == 10);
  CHECK(block_schedules.size() == 10);
  CHECK(device::take_findings().empty());
}
