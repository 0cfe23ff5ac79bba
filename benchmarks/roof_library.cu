// The roof of mma.sync, as a program of the attention libraries, so that it takes turns with their variants.
#include <memory>
#include <stdexcept>

#include "benchmarks/mma_roof.cuh"
#include "benchmarks/roof_library.h"
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
