// few_tokens_peers [--m --n --k --dtype --dtype-a --variant … --sweep]: step 08 beside cuBLAS and beside a kernel that only
// reads as many bytes.
//
// All take turns (turns.h). A turn is a CUDA graph of 32 launches or more, and each launch finds the next copy of the weights.
// All copies are 850 MB, because L2 would keep less for the next turn; a graph has a launch for each, but 1,024 at most: of
// matrices below 0.8 MB it reads less. A launch that may begin before the one before has ended does so in a graph.
// All copies hold the same values; every launch writes a C of its own, and all of them are checked: the first against float64,
// the others against the first, bit by bit. cuBLAS is called as frameworks do, by its default choice; and with each algorithm
// that cublasLt's heuristic names, the fastest of which is reported. It takes no tokens of fp32: it gets them rounded. --sweep
// adds each tile of choice.h, with and without a dependent launch, and step 02's `tuned`, which takes any number of tokens. The
// clock beside a result is the SM's, right after the
// turns.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "benchmarks/read_only.cuh"
#include "benchmarks/turns.h"
#include "common/run/family/any_step.h"
#include "common/run/family/linear_request.h"
#include "common/run/harness/rows_buffer.h"
#include "common/run/harness/text.h"
#include "common/runtime/launch.h"
#include "steps/08_few_tokens/choice.h"

namespace tiled_gemm {
run::AnyStep step();  // step 02
}

namespace {

using benchmarks::Contender;
using problem::Linear;

constexpr std::size_t rotating_bytes = std::size_t{850} << 20;
constexpr std::size_t workspace_bytes = std::size_t{64} << 20;

struct Options {
  std::vector<std::string> variants;  // none: all that take the shape
  bool sweep = false;
  benchmarks::TurnOptions turns;
};

void require(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw runtime::Error(std::string(call) + ": " + cublasGetStatusString(status));
}

// ---- cuBLAS ----

// It counts along columns, so what it sees is Cᵀ[n, m] = B[n, k] · A[m, k]ᵀ.
class Cublas {
 public:
  struct Algorithm {  // nvcc 13.0 fails on a vector of the type itself, which has no name
    cublasLtMatmulAlgo_t value;
  };

  Cublas(const Linear& g) : g_(g), type_(g.dtype == problem::Dtype::fp16 ? CUDA_R_16F : CUDA_R_16BF) {
    require(cublasCreate(&handle_), "cublasCreate");
    CUDA_CHECK(cudaMalloc(&workspace_, workspace_bytes));
    require(cublasSetWorkspace(handle_, workspace_, workspace_bytes), "cublasSetWorkspace");
    require(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    require(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)), "TRANSA");
    require(cublasLtMatrixLayoutCreate(&weights_, type_, g.k, g.n, g.ldb), "cublasLtMatrixLayoutCreate");
    require(cublasLtMatrixLayoutCreate(&tokens_, type_, g.k, g.m, g.lda), "cublasLtMatrixLayoutCreate");
    require(cublasLtMatrixLayoutCreate(&c_, type_, g.n, g.m, g.ldc), "cublasLtMatrixLayoutCreate");
  }
  ~Cublas() {
    cublasLtMatrixLayoutDestroy(c_);
    cublasLtMatrixLayoutDestroy(tokens_);
    cublasLtMatrixLayoutDestroy(weights_);
    cublasLtMatmulDescDestroy(product_);
    cudaFree(workspace_);
    cublasDestroy(handle_);
  }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  void gemm(const void* a, const void* b, void* c) {
    require(cublasSetStream(handle_, runtime::launch_stream), "cublasSetStream");
    require(cublasSetWorkspace(handle_, workspace_, workspace_bytes), "cublasSetWorkspace");  // a stream forgets it
    require(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, g_.n, g_.m, g_.k, &one_, b, type_, g_.ldb, a, type_, g_.lda, &zero_,
                         c, type_, g_.ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
  }

  // The algorithms that cublasLt's heuristic names, its favourite first.
  std::vector<Algorithm> algorithms() {
    cublasLtMatmulPreference_t preference;
    require(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    require(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                                 sizeof(workspace_bytes)),
            "cublasLtMatmulPreferenceSetAttribute");
    cublasLtMatmulHeuristicResult_t results[8];
    int count = 0;
    require(cublasLtMatmulAlgoGetHeuristic(light(), product_, weights_, tokens_, c_, c_, preference, std::size(results),
                                           results, &count),
            "cublasLtMatmulAlgoGetHeuristic");
    cublasLtMatmulPreferenceDestroy(preference);
    std::vector<Algorithm> found;
    for (int i = 0; i < count; ++i) found.push_back({results[i].algo});
    return found;
  }
  void matmul(const Algorithm& algorithm, const void* a, const void* b, void* c) {
    require(cublasLtMatmul(light(), product_, &one_, b, weights_, a, tokens_, &zero_, c, c_, c, c_, &algorithm.value,
                           workspace_, workspace_bytes, runtime::launch_stream),
            "cublasLtMatmul");
  }

 private:
  cublasLtHandle_t light() const {
    return reinterpret_cast<cublasLtHandle_t>(handle_);
  }  // a handle of cuBLAS is one of cublasLt

  const Linear g_;
  const cudaDataType type_;
  const float one_ = 1, zero_ = 0;
  cublasHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t weights_ = nullptr, tokens_ = nullptr, c_ = nullptr;
};

// ---- the contest ----

std::vector<const run::LinearVariant*> chosen(const run::LinearStep& step, const Linear& shape, const Options& options) {
  std::vector<const run::LinearVariant*> result;
  for (const std::string& name : options.variants) {
    const bool known = std::any_of(step.variants.begin(), step.variants.end(), [&](const auto& v) { return v.name == name; });
    if (!known) throw run::InputError("--variant: " + step.name + " has no variant '" + name + "'");
  }
  for (const run::LinearVariant& variant : step.variants) {
    const bool named = std::find(options.variants.begin(), options.variants.end(), variant.name) != options.variants.end();
    const auto reason = refusal(variant.supports, shape);
    if (named && reason) throw run::InputError(variant.name + " " + *reason);
    if (named || (options.variants.empty() && !reason)) result.push_back(&variant);
  }
  return result;
}

// Where launch number i of a graph finds and leaves what it works on.
struct Arrays {
  Linear g;
  int copies, launches;
  std::size_t weights_bytes, c_bytes;
  run::RowsBuffer a, rounded_a;  // of the tokens' type, and of the weights'
  unsigned char *weights = nullptr, *c = nullptr;

  Arrays(const Linear& shape, const problem::LinearInputs& inputs)
      : g(shape),
        weights_bytes(std::size_t{2} * g.n * g.k),
        c_bytes(std::size_t{2} * g.m * g.n),
        a("a", {1, 1, g.m, g.k}, {}, *g.dtype_a),
        rounded_a("rounded a", {1, 1, g.m, g.k}, {}, g.dtype) {
    copies = static_cast<int>(std::max<std::size_t>(4, rotating_bytes / weights_bytes));
    launches = std::clamp(copies, 32, 1024);
    a.upload(inputs.a);
    problem::Tensor rounded = inputs.a;
    for (float& x : rounded.values) x = problem::round_to(g.dtype, x);
    rounded_a.upload(rounded);
    run::RowsBuffer b("b", {1, 1, g.n, g.k}, {}, g.dtype);
    b.upload(inputs.b);
    CUDA_CHECK(cudaMalloc(&weights, weights_bytes * static_cast<std::size_t>(copies)));
    CUDA_CHECK(cudaMalloc(&c, c_bytes * static_cast<std::size_t>(launches)));
    for (int i = 0; i < copies; ++i) CUDA_CHECK(cudaMemcpy(weights_of(i), b.data(), weights_bytes, cudaMemcpyDeviceToDevice));
  }
  ~Arrays() {
    cudaFree(weights);
    cudaFree(c);
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  unsigned char* weights_of(int i) const { return weights + weights_bytes * static_cast<std::size_t>(i % copies); }
  unsigned char* c_of(int i) const { return c + c_bytes * static_cast<std::size_t>(i); }
};

// "ok" if the first C of a graph is right, and all others are the same.
std::string verdict(const Contender& contender, const Arrays& arrays, const run::LinearTruth& truth) {
  CUDA_CHECK(cudaMemset(arrays.c, 0xff, arrays.c_bytes * static_cast<std::size_t>(arrays.launches)));
  contender.launch();
  runtime::synchronize();
  const Linear& g = arrays.g;
  run::RowsBuffer first("c", {1, 1, g.m, g.n}, {}, g.dtype);
  CUDA_CHECK(cudaMemcpy(first.data(), arrays.c, arrays.c_bytes, cudaMemcpyDeviceToDevice));
  std::vector<unsigned char> all(arrays.c_bytes * static_cast<std::size_t>(arrays.launches));
  CUDA_CHECK(cudaMemcpy(all.data(), arrays.c, all.size(), cudaMemcpyDeviceToHost));
  bool right = truth.judge(first.download()).pass;
  for (std::size_t at = 0; at < all.size(); at += arrays.c_bytes) {
    right = right && std::equal(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(arrays.c_bytes),
                                all.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return right ? "ok" : "WRONG";
}

int compare(const run::LinearStep& step, const Linear& g, const Options& options) {
  const problem::LinearInputs inputs = problem::make_inputs(g, run::default_seed);
  const run::LinearTruth truth(g, inputs);
  const Arrays arrays(g, inputs);
  std::vector<std::unique_ptr<runtime::Graph>> graphs;
  std::vector<Contender> contenders;
  const auto add = [&](const std::string& name, const auto& launch) {
    const auto all = [&] {
      for (int i = 0; i < arrays.launches; ++i) launch(i);
    };
    all();  // what happens at a kernel's first launch cannot be recorded
    runtime::synchronize();
    const auto& graph = graphs.emplace_back(std::make_unique<runtime::Graph>(all));
    contenders.push_back({name, static_cast<double>(arrays.weights_bytes), [&graph = *graph] { graph.launch(); }});
  };

  add("read only", [&](int i) {
    benchmarks::launch_read_only(arrays.weights_of(i), static_cast<std::int64_t>(arrays.weights_bytes),
                                 reinterpret_cast<std::uint32_t*>(arrays.c));
  });
  Cublas cublas(g);
  add("cuBLAS", [&](int i) { cublas.gemm(arrays.rounded_a.data(), arrays.weights_of(i), arrays.c_of(i)); });
  for (const Cublas::Algorithm& algorithm : cublas.algorithms()) {
    add("cublasLt " + std::to_string(contenders.size() - 2),
        [&](int i) { cublas.matmul(algorithm, arrays.rounded_a.data(), arrays.weights_of(i), arrays.c_of(i)); });
  }
  const std::size_t first_variant = contenders.size();
  std::vector<std::unique_ptr<run::DeviceArrays>> scratches;
  const run::LinearStrides of_k{std::int64_t{g.m} * g.k, std::int64_t{g.m} * g.k, g.k};
  const run::LinearStrides of_weights{std::int64_t{g.n} * g.k, std::int64_t{g.n} * g.k, g.k};
  const run::LinearStrides of_c{std::int64_t{g.m} * g.n, std::int64_t{g.m} * g.n, g.n};
  const auto launch_of = [&](int i, const run::DeviceArrays& scratch) {
    return run::LinearLaunch{.shape = g,
                             .a = arrays.a.data(),
                             .b = arrays.weights_of(i),
                             .bias = nullptr,
                             .experts = nullptr,
                             .routing = nullptr,
                             .c = arrays.c_of(i),
                             .a_strides = of_k,
                             .b_strides = of_weights,
                             .c_strides = of_c,
                             .arrays = scratch};
  };
  for (const run::LinearVariant* variant : chosen(step, g, options)) {
    const auto& scratch = *scratches.emplace_back(std::make_unique<run::DeviceArrays>(variant->scratch_of(g)));
    add(variant->name, [&](int i) { variant->launch(launch_of(i, scratch)); });
  }
  if (options.sweep) {
    const auto& tuned =
        *std::find_if(step.variants.begin(), step.variants.end(), [](const auto& v) { return v.name == "tuned"; });
    if (!refusal(tuned.supports, g)) {
      const auto& scratch = *scratches.emplace_back(std::make_unique<run::DeviceArrays>(tuned.scratch_of(g)));
      for (const auto& [tile, name] : few_tokens::tiles) {
        for (const bool dependent : {true, false}) {
          add(std::string("tile ") + name + (dependent ? "" : ", alone"),
              [&, tile = tile, dependent](int i) { few_tokens::launch_tile(launch_of(i, scratch), tile, dependent); });
        }
      }
    }
    const auto& tiled = *std::get<const run::GemmStep*>(tiled_gemm::step());
    const problem::Gemm gemm = problem::resolve(problem::Gemm{.m = g.m, .n = g.n, .k = g.k, .dtype = g.dtype});
    for (const run::GemmVariant& variant : tiled.variants) {
      if (variant.name != "tuned" || g.dtype_a != g.dtype || refusal(variant.supports, gemm)) continue;
      const auto& scratch = *scratches.emplace_back(std::make_unique<run::DeviceArrays>(variant.scratch_of(gemm)));
      add("02_tiled_gemm, tuned", [&, gemm](int i) {
        variant.launch({gemm, arrays.a.data(), arrays.weights_of(i), arrays.c_of(i), of_k.sample, of_weights.sample,
                        of_c.sample, scratch});
      });
    }
  }

  bool right = true;
  for (std::size_t i = 1; i < contenders.size(); ++i) {
    contenders[i].verdict = verdict(contenders[i], arrays, truth);
    right = right && contenders[i].verdict == "ok";
  }
  benchmarks::measure(contenders, options.turns);
  for (Contender& contender : contenders) {  // of a launch, not of a graph
    for (double& ms : contender.burst_ms) ms /= arrays.launches;
    contender.sustained_ms /= arrays.launches;
  }
  // Of cublasLt's algorithms the fastest remains.
  const auto light = contenders.begin() + 2, ours = contenders.begin() + static_cast<std::ptrdiff_t>(first_variant);
  if (light != ours) {
    const auto time = [](const Contender& c) { return benchmarks::median(c.burst_ms); };
    const auto best = std::min_element(light, ours, [&](const auto& a, const auto& b) { return time(a) < time(b); });
    std::iter_swap(light, best);
    light->name = "cublasLt, best of " + std::to_string(ours - light);
    contenders.erase(light + 1, ours);
  }
  benchmarks::report(contenders, options.turns,
                     {problem::to_string(g),
                      {{"m", g.m},
                       {"n", g.n},
                       {"k", g.k},
                       {"dtype", problem::name(g.dtype)},
                       {"dtype_a", problem::name(*g.dtype_a)},
                       {"copies", arrays.copies},
                       {"launches_of_a_graph", arrays.launches}},
                      "bytes",
                      "TB/s",
                      {"read_only", "cublas"}});
  return right ? run::exit_good : run::exit_failed;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Step 08 beside cuBLAS and a kernel that only reads", "few_tokens_peers");
  std::optional<int> m, n, k;
  std::optional<problem::Dtype> dtype, dtype_a;
  Options options;
  options.turns.sustained_ms = 40;
  run::add_whole_number(app, "--m", m, 1, "tokens (default 1)");
  run::add_whole_number(app, "--n", n, 1, "rows of the weights (default 4096)");
  run::add_whole_number(app, "--k", k, 1, "columns of the weights (default 4096)");
  run::add_dtype(app, dtype);
  run::add_dtype(app, dtype_a, "--dtype-a", "of the tokens: fp32, or the weights' type (default)");
  app.add_option("--variant", options.variants, "of step 08; may be repeated (default: all that take the shape)");
  app.add_flag("--sweep", options.sweep, "also each tile that the step chooses among, and step 02");
  benchmarks::add_turn_options(app, options.turns);
  return run::run_command_line(app, argc, argv, [&] {
    Linear g;
    g.m = m.value_or(1);
    g.n = n.value_or(4096);
    g.k = k.value_or(4096);
    g.dtype = dtype.value_or(problem::Dtype::fp16);
    g.dtype_a = dtype_a;
    if (g.dtype == problem::Dtype::fp32) throw run::InputError("--dtype: fp16 or bf16");
    return compare(run::this_step_as<run::LinearStep>(), problem::resolve(g), options);
  });
}
