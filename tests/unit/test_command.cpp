// common/run/cli/command: what a device cannot run is refused by name.
#include "common/run/cli/command.h"
#include "tests/catch.h"

TEST_CASE("a device below a variant's compute capability, or with too little shared memory, is refused by name") {
  const auto device = [](const char* backend, int capability, std::size_t shared) {
    runtime::Properties p;
    p.backend = backend;
    p.name = "NVIDIA A100";
    p.compute_capability = capability;
    p.shared_bytes_per_block = shared;
    return p;
  };
  constexpr std::size_t kib = 1024;
  CHECK(!run::device_refusal(device("gpu", 80, 163 * kib), 80, 163 * kib));
  CHECK(!run::device_refusal(device("gpu", 90, 227 * kib), 80, 0));
  CHECK(run::device_refusal(device("gpu", 80, 163 * kib), 90, 0) == "needs compute capability 9.0; NVIDIA A100 has 8.0");
  CHECK(run::device_refusal(device("gpu", 75, 64 * kib), run::least_compute_capability, 0) ==
        "needs compute capability 8.0; NVIDIA A100 has 7.5");
  CHECK(run::device_refusal(device("gpu", 89, 99 * kib), 80, 100 * kib) ==
        "needs 102400 bytes of shared memory a block; this device gives 101376");
  // Code for a compute capability and what is newer, by PTX; and code for one alone.
  for (const int newer : {90, 100, 120}) CHECK(!run::device_refusal(device("gpu", newer, 227 * kib), 90, 0));
  CHECK(!run::device_refusal(device("gpu", 90, 227 * kib), run::only(90), 0));
  CHECK(run::device_refusal(device("gpu", 80, 163 * kib), run::only(90), 0) ==
        "needs compute capability 9.0 alone; NVIDIA A100 has 8.0");
  CHECK(run::device_refusal(device("gpu", 100, 227 * kib), run::only(90), 0) ==
        "needs compute capability 9.0 alone; NVIDIA A100 has 10.0");
  CHECK(run::device_refusal(device("gpu", 120, 99 * kib), run::only(90), 0) ==
        "needs compute capability 9.0 alone; NVIDIA A100 has 12.0");
  // The simulator has no compute capability: it runs what it knows.
  CHECK(!run::device_refusal(device("sim", 0, 227 * kib), 90, 227 * kib));
  CHECK(!run::device_refusal(device("sim", 0, 227 * kib), run::only(90), 0));
  CHECK(run::device_refusal(device("sim", 0, 227 * kib), 80, 228 * kib));
}
