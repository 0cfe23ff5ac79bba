// gemm_peers [--m --n --k --dtype --variant …]: step 02 beside cuBLAS and beside the roof of mma.sync, in one run.
//
// All take turns (turns.h). The roof is the kernel of benchmarks/ceilings that only multiplies, with as many operations as the
// product has. Every product is checked, as in the steps: row by row, against float64.
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "benchmarks/mma_roof.cuh"
#include "benchmarks/turns.h"
#include "common/run/family/any_step.h"
#include "common/run/family/gemm_request.h"
#include "common/run/family/gemm_truth.h"
#include "common/run/harness/rows_buffer.h"
#include "common/run/harness/text.h"

namespace {

using benchmarks::Contender;
using problem::Gemm;

struct Options {
  std::vector<std::string> variants;  // none: all that take the shape
  benchmarks::TurnOptions turns;
};

void require(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw runtime::Error(std::string(call) + ": " + cublasGetStatusString(status));
}

class Cublas {
 public:
  Cublas() { require(cublasCreate(&handle_), "cublasCreate"); }
  ~Cublas() { cublasDestroy(handle_); }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  // cuBLAS counts along columns, so what it sees is Cᵀ[n, m] = B[n, k] · A[m, k]ᵀ.
  void gemm(const Gemm& g, const void* a, const void* b, void* c) {
    const cudaDataType type = g.dtype == problem::Dtype::fp16 ? CUDA_R_16F : CUDA_R_16BF;
    const float one = 1, zero = 0;
    require(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, g.n, g.m, g.k, &one, b, type, g.ldb, a, type, g.lda, &zero, c, type,
                         g.ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
  }

 private:
  cublasHandle_t handle_ = nullptr;
};

run::RowsBuffer matrix(const char* name, int rows, int columns, int stride, problem::Dtype dtype) {
  return {name, {1, rows, columns}, {std::int64_t{rows} * stride, stride}, dtype};
}

std::vector<const run::GemmVariant*> chosen(const run::GemmStep& step, const Gemm& shape, const Options& options) {
  std::vector<const run::GemmVariant*> result;
  for (const std::string& name : options.variants) {
    const bool known = std::any_of(step.variants.begin(), step.variants.end(), [&](const auto& v) { return v.name == name; });
    if (!known) throw run::InputError("--variant: " + step.name + " has no variant '" + name + "'");
  }
  for (const run::GemmVariant& variant : step.variants) {
    const bool named = std::find(options.variants.begin(), options.variants.end(), variant.name) != options.variants.end();
    const auto reason = refusal(variant.supports, shape);
    if (named && reason) throw run::InputError(variant.name + " " + *reason);
    if (named || (options.variants.empty() && !reason)) result.push_back(&variant);
  }
  return result;
}

int compare(const run::GemmStep& step, const Gemm& g, const Options& options) {
  const problem::GemmInputs inputs = problem::make_inputs(g, run::default_seed);
  const run::GemmTruth truth(g, inputs);
  run::RowsBuffer a = matrix("a", g.m, g.k, g.lda, g.dtype), b = matrix("b", g.n, g.k, g.ldb, g.dtype);
  run::RowsBuffer c = matrix("c", g.m, g.n, g.ldc, g.dtype);
  a.upload(inputs.a);
  b.upload(inputs.b);

  const double operations = 2.0 * g.m * g.n * g.k;
  const benchmarks::MmaRoof roof(g.dtype, operations);
  Cublas cublas;
  std::vector<std::unique_ptr<run::DeviceArrays>> scratches;
  std::vector<Contender> contenders;
  contenders.push_back({"roof of mma.sync", roof.operations(), [&] { roof.launch(); }});
  contenders.push_back({"cuBLAS", operations, [&] { cublas.gemm(g, a.data(), b.data(), c.data()); }});
  for (const run::GemmVariant* variant : chosen(step, g, options)) {
    const auto& scratch = *scratches.emplace_back(std::make_unique<run::DeviceArrays>(variant->scratch_of(g)));
    const run::GemmLaunch launch{g, a.data(), b.data(), c.data(), a.stride(0), b.stride(0), c.stride(0), scratch};
    contenders.push_back({variant->name, operations, [variant, launch] { variant->launch(launch); }});
  }
  const bool right = benchmarks::judge(contenders, c, truth);
  benchmarks::measure(contenders, options.turns);
  benchmarks::report(contenders, options.turns,
                     {problem::to_string(g),
                      {{"m", g.m}, {"n", g.n}, {"k", g.k}, {"dtype", problem::name(g.dtype)}},
                      "operations",
                      "TFLOP/s",
                      {"roof", "cublas"}});
  return right ? run::exit_good : run::exit_failed;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Step 02 beside cuBLAS and the roof of mma.sync", "gemm_peers");
  std::optional<int> m, n, k;
  std::optional<problem::Dtype> dtype;
  Options options;
  run::add_whole_number(app, "--m", m, 1, "rows of A and of C (default 4096)");
  run::add_whole_number(app, "--n", n, 1, "rows of B, columns of C (default 4096)");
  run::add_whole_number(app, "--k", k, 1, "columns of A and of B (default 4096)");
  run::add_dtype(app, dtype);
  app.add_option("--variant", options.variants, "of step 02; may be repeated (default: all that take the shape)");
  benchmarks::add_turn_options(app, options.turns);
  return run::run_command_line(app, argc, argv, [&] {
    Gemm g;
    g.m = m.value_or(4096);
    g.n = n.value_or(4096);
    g.k = k.value_or(4096);
    g.dtype = dtype.value_or(problem::Dtype::fp16);
    if (g.dtype == problem::Dtype::fp32) throw run::InputError("--dtype: fp16 or bf16");
    return compare(run::this_step_as<run::GemmStep>(), problem::resolve(g), options);
  });
}
