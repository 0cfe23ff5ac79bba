// The roof of mma.sync, as a program of the attention libraries, and the kernel that only reads: so that they take turns with
// the variants.
#include <memory>
#include <stdexcept>

#include "benchmarks/mma_roof.cuh"
#include "benchmarks/read_only.cuh"
#include "benchmarks/roof_library.h"
#include "library/calls.h"
#include "library/program.h"

AttentionProgram* attention_prepare_roof(const char* dtype, double operations) {
  return library::guarded([&] {
    const std::string name = dtype;
    if (name != "fp16" && name != "bf16") throw std::invalid_argument("mma.sync.m16n8k16 multiplies fp16 or bf16, not " + name);
    const auto roof =
        std::make_shared<const benchmarks::MmaRoof>(name == "fp16" ? problem::Dtype::fp16 : problem::Dtype::bf16, operations);
    const auto launch = [roof](const AttentionAddresses*, const library::Memory&, void* stream) {
      const library::Borrowed memory(0, stream);
      roof->launch();
    };
    return new AttentionProgram{.operations = roof->operations(), .bytes = {}, .has_plan = false, .launch = launch};
  });
}

bool attention_read_only(const void* data, size_t bytes, uint32_t* found, void* stream) {
  return library::checked(false, [&] {
    library::require_array("data", data, sizeof(uint4));
    library::require_array("found", found, sizeof(uint32_t));
    if (bytes % sizeof(uint4) != 0) throw std::invalid_argument("bytes is no multiple of 16");
    int device = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    const library::Borrowed memory(device, stream);
    benchmarks::launch_read_only(data, static_cast<std::int64_t>(bytes), found);
    return true;
  });
}
