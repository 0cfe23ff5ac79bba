// experts_peers [--experts --top --m --variant …]: products routed to experts (step 08) beside cuBLAS and beside a kernel that
// only reads the weights of the experts that are named.
//
// All take turns (turns.h). A turn is a CUDA graph of 32 launches or more, and each launch finds the next copy of the weights:
// of those that are named, all copies have 850 MB at least, because L2 would keep less for the next turn. cuBLAS is called as
// others do, once for each expert that is named, and once for all of them (cublasGemmGroupedBatchedEx). It gets its tokens
// gathered, and leaves a row for each pair: neither routing nor the sum over slots is in its times. Step 08's variants have
// both in theirs. The last kernel, `combine`, and both ways to sort pairs by expert are measured alone, too; with --sort-only
// nothing else is.
//
// A variant's C is right if it is what cuBLAS's rows add up to; a sort is, if its permutation is that of std::stable_sort.
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include "benchmarks/turns.h"
#include "common/device/dialect.h"
#include "common/run/family/any_step.h"
#include "common/run/family/linear.h"
#include "steps/08_few_tokens/11_experts.cuh"
#include "steps/08_few_tokens/launches.h"

namespace {

using benchmarks::Contender;
using few_tokens::Routing;
using problem::Linear;

constexpr double rotating_bytes = 850e6;
constexpr std::size_t workspace_bytes = std::size_t{64} << 20;
constexpr int least_launches = 32;  // of a graph
constexpr int threads = 256;        // of a block, of the kernels of this file
constexpr int blocks = 1056;        // 8 for each SM of an H100

struct Options {
  std::vector<std::string> variants;  // none: all that take the problem
  bool sort_only = false;
  benchmarks::TurnOptions turns;
};

void require(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw runtime::Error(std::string(call) + ": " + cublasGetStatusString(status));
}

template <class T>
class Device {
 public:
  explicit Device(std::size_t count) { CUDA_CHECK(cudaMalloc(&data_, count * sizeof(T))); }
  explicit Device(const std::vector<T>& values) : Device(values.size()) {
    CUDA_CHECK(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Device() { cudaFree(data_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  T* get() const { return data_; }
  std::vector<T> first(std::size_t count) const {
    std::vector<T> values(count);
    CUDA_CHECK(cudaMemcpy(values.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
};

// ---- kernels of the benchmark itself ----

__global__ void fill(__half* values, std::int64_t count, std::uint32_t seed) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += std::int64_t{gridDim.x} * blockDim.x) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761u + seed;
    x = (x ^ (x >> 15)) * 2246822519u;
    x ^= x >> 13;
    values[i] = __float2half((static_cast<float>(x >> 8) * 0x1p-23f - 1.0f) * 0.1f);
  }
}

// The tokens of all pairs, in the order of the experts. A block for each pair.
__global__ void gather(const __half* tokens, const int* order, int top, int k, __half* rows) {
  for (int i = threadIdx.x; i < k; i += blockDim.x) {
    rows[std::int64_t{blockIdx.x} * k + i] = tokens[std::int64_t{order[blockIdx.x] / top} * k + i];
  }
}

// C of a token, from the rows of its pairs, which lie in the order of the experts. A block for each token.
__global__ void add_slots(const __half* rows, const int* place, const float* routing, int top, int n, __half* c) {
  for (int j = threadIdx.x; j < n; j += blockDim.x) {
    double sum = 0;
    for (int pair = blockIdx.x * top; pair < (blockIdx.x + 1) * top; ++pair) {
      sum += double{routing[pair]} * __half2float(rows[std::int64_t{place[pair]} * n + j]);
    }
    c[std::int64_t{blockIdx.x} * n + j] = __double2half(sum);
  }
}

// Adds the squares of the differences, and of what is expected.
__global__ void compare(const __half* found, const __half* expected, std::int64_t count, double* squares) {
  double difference = 0, size = 0;
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += std::int64_t{gridDim.x} * blockDim.x) {
    const double x = __half2float(expected[i]), d = __half2float(found[i]) - x;
    difference += d * d;
    size += x * x;
  }
  atomicAdd(&squares[0], difference);
  atomicAdd(&squares[1], size);
}

// Reads the weights of the experts that have pairs. Grid: x over the parts of an expert, y over experts.
__global__ void __launch_bounds__(threads)
    read_only(const uint4* weights, std::int64_t words, const int* bounds, unsigned* never) {
  if (bounds[blockIdx.y] == bounds[blockIdx.y + 1]) return;
  const uint4* matrix = weights + blockIdx.y * words;
  const std::int64_t stride = std::int64_t{threads} * gridDim.x;
  unsigned all = 0;
  for (std::int64_t i = blockIdx.x * threads + threadIdx.x; i < words; i += 4 * stride) {
    uint4 part[4];
#pragma unroll
    for (int s = 0; s < 4; ++s) part[s] = device::load_if(i + s * stride < words, matrix + i + s * stride);
#pragma unroll
    for (int s = 0; s < 4; ++s) all |= part[s].x & part[s].y & part[s].z & part[s].w;
  }
  if (all == 0xffffffff) *never = all;  // no weight has all bits set
}

// ---- the problem ----

struct Experts {
  std::vector<int> ids;            // [tokens, top]
  std::vector<float> routing;      // [tokens, top]
  std::vector<int> bounds, order;  // the pairs by expert, each expert's in their order
  std::vector<int> place;          // of each pair, in `order`
  std::vector<int> named;          // experts that have pairs

  // Each token names different experts. Its weights differ, and add up to 1.
  Experts(const Linear& g) : bounds(static_cast<std::size_t>(g.experts) + 1), place(static_cast<std::size_t>(g.pairs())) {
    std::mt19937 random(static_cast<unsigned>(g.m));
    std::vector<int> all(static_cast<std::size_t>(g.experts));
    std::iota(all.begin(), all.end(), 0);
    for (int t = 0; t < g.m; ++t) {
      std::shuffle(all.begin(), all.end(), random);
      ids.insert(ids.end(), all.begin(), all.begin() + g.top);
      for (int s = 0; s < g.top; ++s) {
        routing.push_back(2.0f * static_cast<float>(g.top - s) / static_cast<float>(g.top * (g.top + 1)));
      }
    }
    order.resize(ids.size());
    std::iota(order.begin(), order.end(), 0);
    const auto id = [&](int pair) { return ids[static_cast<std::size_t>(pair)]; };
    std::stable_sort(order.begin(), order.end(), [&](int one, int other) { return id(one) < id(other); });
    for (std::size_t i = 0; i < order.size(); ++i) place[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
    for (int e = 0; e <= g.experts; ++e) {
      const auto first = std::partition_point(order.begin(), order.end(), [&](int pair) { return id(pair) < e; });
      bounds[static_cast<std::size_t>(e)] = static_cast<int>(first - order.begin());
    }
    for (int e = 0; e < g.experts; ++e) {
      if (pairs_of(e) > 0) named.push_back(e);
    }
  }
  int first_of(int expert) const { return bounds[static_cast<std::size_t>(expert)]; }
  int pairs_of(int expert) const { return first_of(expert + 1) - first_of(expert); }
};

// What launches work on, in device memory. Copies hold different weights.
struct Arrays {
  Linear g;
  Experts host;
  std::int64_t matrix, pairs;  // elements of an expert's weights; pairs
  double named_bytes;
  int copies, launches;
  Device<int> ids, bounds, order;
  Device<float> routing_weights;
  Device<__half> weights, tokens, c;

  Arrays(const Linear& shape)
      : g(shape),
        host(g),
        matrix(std::int64_t{g.n} * g.k),
        pairs(g.pairs()),
        named_bytes(2.0 * static_cast<double>(matrix) * static_cast<double>(host.named.size())),
        copies(static_cast<int>(std::clamp(std::ceil(rotating_bytes / named_bytes), 1.0, 64.0))),
        launches(std::max(copies, least_launches)),
        ids(host.ids),
        bounds(host.bounds),
        order(host.order),
        routing_weights(host.routing),
        weights(static_cast<std::size_t>(copies * g.experts * matrix)),
        tokens(static_cast<std::size_t>(std::int64_t{g.m} * g.k)),
        c(static_cast<std::size_t>(c_count())) {
    runtime::launch(fill, {.grid = blocks, .block = threads}, weights.get(), copies * g.experts * matrix, 1u);
    runtime::launch(fill, {.grid = blocks, .block = threads}, tokens.get(), std::int64_t{g.m} * g.k, 2u);
  }
  std::int64_t c_count() const { return std::int64_t{g.m} * g.n; }
  Routing routing() const { return {ids.get(), routing_weights.get(), g.m, g.top, g.experts}; }
  __half* weights_of(int launch, int expert) const {
    return weights.get() + (std::int64_t{launch % copies} * g.experts + expert) * matrix;
  }
  run::LinearLaunch launch(int i, const run::DeviceArrays& scratch) const {
    const std::int64_t a_entry = std::int64_t{g.m} * g.k;
    return {.shape = g,
            .a = tokens.get(),
            .b = weights_of(i, 0),
            .bias = nullptr,
            .experts = ids.get(),
            .routing = routing_weights.get(),
            .c = c.get(),
            .a_strides = {a_entry, a_entry, g.k},
            .b_strides = {g.experts * matrix, matrix, g.k},
            .c_strides = {c_count(), c_count(), g.n},
            .arrays = scratch};
  }
};

// ---- cuBLAS ----

// It counts along columns, so of an expert it sees rowsᵀ[n, pairs] = weights[n, k] · tokens[pairs, k]ᵀ.
class Cublas {
 public:
  Device<__half> gathered, rows;  // [pairs, k], [pairs, n], in the order of the experts

  Cublas(const Arrays& arrays)
      : gathered(static_cast<std::size_t>(arrays.pairs * arrays.g.k)),
        rows(static_cast<std::size_t>(arrays.pairs * arrays.g.n)),
        arrays_(arrays),
        workspace_(workspace_bytes),
        operands_(operands_of_all()),
        transposed_(groups(), CUBLAS_OP_T),
        plain_(groups(), CUBLAS_OP_N),
        n_(groups(), arrays.g.n),
        k_(groups(), arrays.g.k),
        each_(groups(), 1),
        ones_(groups(), one_),
        zeros_(groups(), zero_) {
    for (const int e : arrays.host.named) pairs_.push_back(arrays.host.pairs_of(e));
    require(cublasCreate(&handle_), "cublasCreate");
    runtime::launch(gather, {.grid = static_cast<unsigned>(arrays.pairs), .block = threads}, arrays.tokens.get(),
                    arrays.order.get(), arrays.g.top, arrays.g.k, gathered.get());
  }
  ~Cublas() { cublasDestroy(handle_); }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  void call_for_each_expert(int launch) {
    prepare();
    const Linear& g = arrays_.g;
    for (const int e : arrays_.host.named) {
      const std::int64_t first = arrays_.host.first_of(e);
      require(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, g.n, arrays_.host.pairs_of(e), g.k, &one_,
                           arrays_.weights_of(launch, e), CUDA_R_16F, g.k, gathered.get() + first * g.k, CUDA_R_16F, g.k,
                           &zero_, rows.get() + first * g.n, CUDA_R_16F, g.n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              "cublasGemmEx");
    }
  }

  // One call for all: each expert that is named is a group of one product.
  void grouped_call(int launch) {
    prepare();
    void** const operands = operands_.get() + 3 * groups() * static_cast<std::size_t>(launch % arrays_.copies);
    require(cublasGemmGroupedBatchedEx(handle_, transposed_.data(), plain_.data(), n_.data(), pairs_.data(), k_.data(),
                                       ones_.data(), operands, CUDA_R_16F, k_.data(), operands + groups(), CUDA_R_16F,
                                       k_.data(), zeros_.data(), operands + 2 * groups(), CUDA_R_16F, n_.data(),
                                       static_cast<int>(groups()), each_.data(), CUBLAS_COMPUTE_32F),
            "cublasGemmGroupedBatchedEx");
  }

 private:
  void prepare() {
    require(cublasSetStream(handle_, runtime::launch_stream), "cublasSetStream");
    require(cublasSetWorkspace(handle_, workspace_.get(), workspace_bytes), "cublasSetWorkspace");  // a stream forgets it
  }

  // For each copy: where the weights of all named experts begin, their tokens, and their rows.
  std::vector<void*> operands_of_all() const {
    std::vector<void*> all;
    for (int copy = 0; copy < arrays_.copies; ++copy) {
      for (const int e : arrays_.host.named) all.push_back(arrays_.weights_of(copy, e));
      for (const int e : arrays_.host.named)
        all.push_back(gathered.get() + std::int64_t{arrays_.host.first_of(e)} * arrays_.g.k);
      for (const int e : arrays_.host.named) all.push_back(rows.get() + std::int64_t{arrays_.host.first_of(e)} * arrays_.g.n);
    }
    return all;
  }

  std::size_t groups() const { return arrays_.host.named.size(); }

  const Arrays& arrays_;
  const float one_ = 1, zero_ = 0;
  cublasHandle_t handle_ = nullptr;
  Device<char> workspace_;
  Device<void*> operands_;
  // Of each group. A recorded call may read them whenever its graph is launched.
  const std::vector<cublasOperation_t> transposed_, plain_;
  const std::vector<int> n_, k_, each_;
  const std::vector<float> ones_, zeros_;
  std::vector<int> pairs_;
};

// ---- the contest ----

class Contest {
 public:
  Contest(const run::LinearStep& step, const Linear& g, const Options& options)
      : arrays_(g), options_(options), variants_(chosen(step, g, options)) {}

  // Whether all results are right.
  bool run() {
    if (!options_.sort_only) {
      cublas_ = std::make_unique<Cublas>(arrays_);
      add_others();
      for (const run::LinearVariant* variant : variants_) add_variant(*variant);
      add_combine();
    }
    add_sort("route", [&](int* bounds, int* order) { few_tokens::launch_route(arrays_.routing(), bounds, order); });
    const auto parts = static_cast<std::size_t>(few_tokens::parts_of(static_cast<int>(arrays_.pairs)));
    const Device<int> counts(parts * arrays_.g.experts);
    add_sort("count, scan, place", [&](int* bounds, int* order) {
      few_tokens::launch_count_scan_place(arrays_.routing(), counts.get(), bounds, order);
    });
    benchmarks::measure(contenders_, options_.turns);
    for (Contender& contender : contenders_) {  // of a launch, not of a graph
      for (double& ms : contender.burst_ms) ms /= arrays_.launches;
      contender.sustained_ms /= arrays_.launches;
    }
    report();
    return std::none_of(contenders_.begin(), contenders_.end(), [](const Contender& c) { return c.verdict == "WRONG"; });
  }

 private:
  static std::vector<const run::LinearVariant*> chosen(const run::LinearStep& step, const Linear& g, const Options& options) {
    for (const std::string& name : options.variants) {
      const bool known = std::any_of(step.variants.begin(), step.variants.end(), [&](const auto& v) { return v.name == name; });
      if (!known) throw run::InputError("--variant: " + step.name + " has no variant '" + name + "'");
    }
    std::vector<const run::LinearVariant*> result;
    for (const run::LinearVariant& variant : step.variants) {
      const bool named = std::find(options.variants.begin(), options.variants.end(), variant.name) != options.variants.end();
      const auto reason = refusal(variant.supports, g);
      if (named && reason) throw run::InputError(variant.name + " " + *reason);
      if (!reason && (named || options.variants.empty())) result.push_back(&variant);
    }
    return result;
  }

  // What a contender leaves in device memory.
  struct Output {
    void* data = nullptr;
    std::size_t bytes = 0;
  };

  // A contender whose launches go round the copies. The last launch of a graph is that of the first copy, and is judged.
  template <class Launch, class Verdict>
  void add(const std::string& name, double bytes, const Output& output, const Launch& launch, const Verdict& verdict) {
    launch(0);  // what happens at a kernel's first launch cannot be recorded
    const auto& graph = graphs_.emplace_back(std::make_unique<runtime::Graph>([&] {
      for (int i = arrays_.launches; i-- > 0;) launch(i);
    }));
    if (output.bytes > 0) CUDA_CHECK(cudaMemset(output.data, 0xff, output.bytes));
    graph->launch();
    runtime::synchronize();
    contenders_.push_back({name, bytes, [&graph = *graph] { graph.launch(); }, verdict()});
  }

  // Relative error, of the norm: two roundings to fp16 lie between two right results.
  std::string same(const __half* found, const __half* expected, std::int64_t count) const {
    const Device<double> squares(std::vector<double>{0, 0});
    runtime::launch(compare, {.grid = blocks, .block = threads}, found, expected, count, squares.get());
    runtime::synchronize();
    const std::vector<double> both = squares.first(2);
    return std::sqrt(both[0] / both[1]) < 1e-3 ? "ok" : "WRONG";  // NaN is wrong, too
  }

  void add_others() {
    const Linear& g = arrays_.g;
    const auto nothing = [] { return std::string(); };
    const auto words = arrays_.matrix / 8;
    const dim3 grid(std::max(1u, blocks / static_cast<unsigned>(arrays_.host.named.size())), static_cast<unsigned>(g.experts));
    add(
        "read only", arrays_.named_bytes, {},
        [&](int i) {
          runtime::launch(read_only, {.grid = grid, .block = threads}, reinterpret_cast<const uint4*>(arrays_.weights_of(i, 0)),
                          words, arrays_.bounds.get(), reinterpret_cast<unsigned*>(arrays_.c.get()));
        },
        nothing);
    // The others are compared with its rows.
    const Output rows{cublas_->rows.get(), rows_bytes()};
    add(
        "cuBLAS, a call for each expert", arrays_.named_bytes, rows, [&](int i) { cublas_->call_for_each_expert(i); },
        [&] {
          CUDA_CHECK(cudaMemcpy(rows_.get(), cublas_->rows.get(), rows_bytes(), cudaMemcpyDeviceToDevice));
          const Device<int> place(arrays_.host.place);
          runtime::launch(add_slots, {.grid = static_cast<unsigned>(g.m), .block = threads}, rows_.get(), place.get(),
                          arrays_.routing_weights.get(), g.top, g.n, expected_.get());
          runtime::synchronize();
          return std::string();
        });
    try {
      add(
          "cuBLAS, grouped", arrays_.named_bytes, rows, [&](int i) { cublas_->grouped_call(i); },
          [&] { return same(cublas_->rows.get(), rows_.get(), arrays_.pairs * g.n); });
    } catch (const runtime::Error& error) {  // not each cuBLAS can do this, or can be recorded while it does
      std::cerr << "cuBLAS, grouped: left out: " << error.what() << '\n';
      cudaGetLastError();  // else the next launch would report it
    }
  }

  void add_variant(const run::LinearVariant& variant) {
    const auto& scratch = *scratches_.emplace_back(std::make_unique<run::DeviceArrays>(variant.scratch_of(arrays_.g)));
    const Output c{arrays_.c.get(), sizeof(__half) * static_cast<std::size_t>(arrays_.c_count())};
    add(
        variant.name, arrays_.named_bytes, c, [&](int i) { variant.launch(arrays_.launch(i, scratch)); },
        [&] { return same(arrays_.c.get(), expected_.get(), arrays_.c_count()); });
  }

  void add_combine() {
    using few_tokens::combine;
    const Linear& g = arrays_.g;
    const std::int64_t count = arrays_.pairs * g.n;
    sums_ = std::make_unique<Device<float>>(static_cast<std::size_t>(count));
    CUDA_CHECK(cudaMemset(sums_->get(), 0, sizeof(float) * static_cast<std::size_t>(count)));
    const few_tokens::Epilogue<__half> epilogue{
        nullptr, 0, 0, few_tokens::Activation::none, few_tokens::OutputType::fp16, {arrays_.c.get(), 0, 0, g.n}};
    const dim3 grid(static_cast<unsigned>(g.m), static_cast<unsigned>(few_tokens::ceil_div(g.n, few_tokens::combine_threads)));
    add(
        "combine", 4.0 * static_cast<double>(count), {},
        [&](int) {
          runtime::launch(combine<__half>, {.grid = grid, .block = few_tokens::combine_threads}, arrays_.routing(), g.n,
                          static_cast<const float*>(sums_->get()), epilogue);
        },
        [] { return std::string(); });
  }

  // A way to sort the pairs: sort(bounds, order).
  template <class Sort>
  void add_sort(const std::string& name, const Sort& sort) {
    const Device<int>&bounds = *lists_.emplace_back(std::make_unique<Device<int>>(arrays_.host.bounds.size())),
          &order = *lists_.emplace_back(std::make_unique<Device<int>>(arrays_.host.order.size()));
    add(
        name, 4.0 * static_cast<double>(arrays_.pairs), {order.get(), sizeof(int) * static_cast<std::size_t>(arrays_.pairs)},
        [&](int) { sort(bounds.get(), order.get()); },
        [&] {
          const bool right = bounds.first(arrays_.host.bounds.size()) == arrays_.host.bounds &&
                             order.first(arrays_.host.order.size()) == arrays_.host.order;
          return std::string(right ? "ok" : "WRONG");
        });
  }

  std::size_t rows_bytes() const { return sizeof(__half) * static_cast<std::size_t>(arrays_.pairs * arrays_.g.n); }

  void report() const {
    const Linear& g = arrays_.g;
    const std::vector<std::string> others = {"read_only", "cublas"};
    benchmarks::report(contenders_, options_.turns,
                       {problem::to_string(g),
                        {{"experts", g.experts},
                         {"top", g.top},
                         {"m", g.m},
                         {"n", g.n},
                         {"k", g.k},
                         {"dtype", problem::name(g.dtype)},
                         {"experts_named", arrays_.host.named.size()},
                         {"sort_only", options_.sort_only},
                         {"copies", arrays_.copies},
                         {"launches_of_a_graph", arrays_.launches}},
                        "bytes",
                        "TB/s",
                        options_.sort_only ? std::vector<std::string>{} : others});
  }

  const Arrays arrays_;
  const Options& options_;
  const std::vector<const run::LinearVariant*> variants_;
  std::unique_ptr<Cublas> cublas_;
  Device<__half> rows_{static_cast<std::size_t>(arrays_.pairs * arrays_.g.n)};  // cuBLAS's, of the first launch
  Device<__half> expected_{static_cast<std::size_t>(arrays_.c_count())};        // C, from these
  std::vector<std::unique_ptr<run::DeviceArrays>> scratches_;
  std::vector<std::unique_ptr<Device<int>>> lists_;
  std::unique_ptr<Device<float>> sums_;
  std::vector<std::unique_ptr<runtime::Graph>> graphs_;
  std::vector<Contender> contenders_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Products routed to experts (step 08) beside cuBLAS and a kernel that only reads", "experts_peers");
  std::optional<int> experts, top, m, n, k;
  Options options;
  options.turns.sustained_ms = 40;
  run::add_whole_number(app, "--experts", experts, 1, "matrices of weights (default 8)");
  run::add_whole_number(app, "--top", top, 1, "experts that each token names (default 2)");
  run::add_whole_number(app, "--m", m, 1, "tokens (default 8)");
  run::add_whole_number(app, "--n", n, 1, "rows of the weights (default 4096)");
  run::add_whole_number(app, "--k", k, 1, "columns of the weights, a multiple of 8 (default 4096)");
  app.add_option("--variant", options.variants, "of step 08; may be repeated (default: all that take the problem)");
  app.add_flag("--sort-only", options.sort_only, "measure the sort of the pairs, and nothing else");
  benchmarks::add_turn_options(app, options.turns);
  return run::run_command_line(app, argc, argv, [&] {
    Linear g;
    g.experts = experts.value_or(8);
    g.top = top.value_or(2);
    g.m = m.value_or(8);
    g.n = options.sort_only ? 8 : n.value_or(4096);
    g.k = options.sort_only ? 8 : k.value_or(4096);
    Contest contest(run::this_step_as<run::LinearStep>(), problem::resolve(g), options);
    return contest.run() ? run::exit_good : run::exit_failed;
  });
}
