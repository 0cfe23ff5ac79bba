// experts_peers [FILE]: products routed to experts (step 08) beside cuBLAS and beside a kernel that only reads, in one run.
//
// Each contender is a CUDA graph of several launches that go round copies of the weights, more bytes than L2 holds. All take
// turns, and what is shown is the median of the rounds. cuBLAS gets its tokens gathered beforehand and leaves a row a pair in
// fp16: no routing and no sum over slots is in its times. FILE: the figures as JSON.
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/device/dispatch.h"
#include "steps/08_few_tokens/10_route.cuh"
#include "steps/08_few_tokens/12_experts_unsorted.cuh"
#include "steps/08_few_tokens/13_experts_tiled.cuh"

namespace {

using namespace few_tokens;
using Json = nlohmann::ordered_json;

void require(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}
void require(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(cublasGetStatusString(status));
}

template <class T>
class Device {
 public:
  explicit Device(std::size_t count) { require(cudaMalloc(&data_, count * sizeof(T))); }
  explicit Device(const std::vector<T>& values) : Device(values.size()) {
    require(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Device() { cudaFree(data_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  operator T*() const { return data_; }

 private:
  T* data_ = nullptr;
};

__global__ void fill(__half* values, std::int64_t count, std::uint32_t seed) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += std::int64_t{gridDim.x} * blockDim.x) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761u + seed;
    x = (x ^ (x >> 15)) * 2246822519u;
    x ^= x >> 13;
    values[i] = __float2half((static_cast<float>(x >> 8) * 0x1p-23f - 1.0f) * 0.1f);
  }
}

__global__ void gather(const __half* tokens, const int* order, int top, int k, __half* rows) {
  for (int i = threadIdx.x; i < k; i += blockDim.x) {
    rows[std::int64_t{blockIdx.x} * k + i] = tokens[std::int64_t{order[blockIdx.x] / top} * k + i];
  }
}

// Reads the weights of the experts that have pairs. Grid: x over experts' parts, y over experts.
__global__ void __launch_bounds__(256) read_only(const uint4* weights, std::int64_t words, const int* bounds, unsigned* never) {
  if (bounds[blockIdx.y] == bounds[blockIdx.y + 1]) return;
  const uint4* matrix = weights + blockIdx.y * words;
  unsigned all = 0;
  for (std::int64_t i = blockIdx.x * 256 + threadIdx.x; i < words; i += 4 * 256 * std::int64_t{gridDim.x}) {
    uint4 part[4];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const std::int64_t at = i + s * 256 * std::int64_t{gridDim.x};
      part[s] = ptx::ld_global_nc_16_if(at < words, matrix + at);
    }
#pragma unroll
    for (int s = 0; s < 4; ++s) all |= part[s].x & part[s].y & part[s].z & part[s].w;
  }
  if (all == 0xffffffff) *never = all;  // no weight has all bits set
}

// Squares of the differences between a pair's sums and cuBLAS's row of it, and of the row.
__global__ void compare(const float* sums, const __half* rows, const int* order, int n, double* squares) {
  double difference = 0, size = 0;
  for (int j = threadIdx.x; j < n; j += blockDim.x) {
    const double x = __half2float(rows[std::int64_t{blockIdx.x} * n + j]);
    const double d = sums[std::int64_t{order[blockIdx.x]} * n + j] - x;
    difference += d * d;
    size += x * x;
  }
  atomicAdd(&squares[0], difference);
  atomicAdd(&squares[1], size);
}

struct Case {
  int experts, top, tokens, n, k;
  int launches;  // of a graph
};

struct Contender {
  std::string name;
  std::function<void(int copy)> launch;
  cudaGraphExec_t graph = nullptr;
  std::vector<double> us = {};  // a launch, in each round
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

cudaStream_t stream;

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, int threads, std::size_t shared_bytes, const Args&... args) {
  require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  kernel<<<grid, threads, shared_bytes, stream>>>(static_cast<Params>(args)...);
  require(cudaGetLastError());
}

// Different experts for each token, in random order.
std::vector<int> random_experts(const Case& c) {
  std::mt19937 random(c.tokens);
  std::vector<int> all(c.experts), ids;
  std::iota(all.begin(), all.end(), 0);
  for (int t = 0; t < c.tokens; ++t) {
    std::shuffle(all.begin(), all.end(), random);
    ids.insert(ids.end(), all.begin(), all.begin() + c.top);
  }
  return ids;
}

Json measure(const Case& c, cublasHandle_t cublas, int rounds) {
  const std::int64_t matrix = std::int64_t{c.n} * c.k;
  const int pairs = c.tokens * c.top;
  const int copies = static_cast<int>(std::max<std::int64_t>(1, 850'000'000 / (2 * matrix * c.experts)));
  Device<__half> weights(static_cast<std::size_t>(copies * c.experts * matrix)), tokens(std::size_t(c.tokens) * c.k);
  Device<__half> gathered(std::size_t(pairs) * c.k), rows(std::size_t(pairs) * c.n), result(std::size_t(c.tokens) * c.n);
  const std::vector<int> ids = random_experts(c);
  Device<int> experts(ids), bounds(c.experts + 1), order(pairs);
  Device<float> routing_weights(std::vector<float>(pairs, 1.0f / static_cast<float>(c.top))), sums(std::size_t(pairs) * c.n);
  Device<unsigned> never(1);
  launch(fill, 1024, 256, 0, weights, copies * c.experts * matrix, 1u);
  launch(fill, 1024, 256, 0, tokens, std::int64_t{c.tokens} * c.k, 2u);

  const Shape shape{c.tokens, c.n, c.k, 1, 1, 1, 1};
  const Routing routing{experts, routing_weights, c.tokens, c.top, c.experts};
  const Matrices<const __half> a{tokens, 0, 0, c.k};
  const Epilogue<__half> epilogue{nullptr, 0, 0, Activation::none, OutputType::fp16, {static_cast<__half*>(result), 0, 0, c.n}};
  const auto b = [&](int copy) { return Matrices<const __half>{weights + copy * c.experts * matrix, 0, matrix, c.k}; };

  const auto sort = [&] { launch(route, c.experts, route_threads, sizeof(RouteSmem), routing, bounds, order); };
  const auto add = [&] {
    launch(combine<__half>, dim3(c.tokens, ceil_div(c.n, combine_threads)), combine_threads, 0, routing, c.n, sums, epilogue);
  };
  const auto with_tile = [&](auto f) {  // the tiles of step 08
    device::with_at_least<8, 16>(c.tokens, [&]<int TOK>(device::Constant<TOK> tok) { f(tok, ExpertTile<TOK>{}); });
  };
  const auto product = [&](int copy) {
    with_tile([&]<int TOK, class Tile>(device::Constant<TOK>, Tile) {
      launch(experts_product<__half, __half, TOK, Tile>, dim3(ceil_div(c.n, Tile::rows), c.experts), Tile::threads,
             sizeof(RowSmem<Tile, TOK>), shape, routing, a, b(copy), bounds, order, sums);
    });
  };
  const auto unsorted = [&](int copy) {
    with_tile([&]<int TOK, class Tile>(device::Constant<TOK>, Tile) {
      launch(unsorted_experts_product<__half, __half, TOK, Tile>, dim3(ceil_div(c.n, Tile::rows), c.experts), Tile::threads,
             sizeof(UnsortedSmem<TOK, Tile>), shape, routing, a, b(copy), sums);
    });
  };

  sort();
  launch(gather, pairs, 256, 0, tokens, order, c.top, c.k, gathered);
  std::vector<int> first(c.experts + 1);
  require(cudaMemcpyAsync(first.data(), bounds, first.size() * sizeof(int), cudaMemcpyDeviceToHost, stream));
  require(cudaStreamSynchronize(stream));
  int live = 0;
  for (int e = 0; e < c.experts; ++e) live += first[e] < first[e + 1];

  const float one = 1, zero = 0;
  const auto call_an_expert = [&](int copy) {
    for (int e = 0; e < c.experts; ++e) {
      const int count = first[e + 1] - first[e];
      if (count == 0) continue;
      require(cublasGemmEx(cublas, CUBLAS_OP_T, CUBLAS_OP_N, c.n, count, c.k, &one, b(copy).row(0, e, 0), CUDA_R_16F, c.k,
                           gathered + std::int64_t{first[e]} * c.k, CUDA_R_16F, c.k, &zero, rows + std::int64_t{first[e]} * c.n,
                           CUDA_R_16F, c.n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    }
  };

  std::vector<Contender> all;
  if (c.n == 4096)
    all.push_back({"read_only", [&](int copy) {
                     launch(read_only, dim3(std::max(1, 1056 / live), c.experts), 256, 0,
                            reinterpret_cast<const uint4*>(b(copy).data), matrix / 8, bounds, never);
                   }});
  all.push_back({"route", [&](int) { sort(); }});
  if (c.n == 4096) {
    all.push_back({"combine", [&](int) { add(); }});
    all.push_back({"cublas_call_an_expert", call_an_expert});
    if (pairs <= most_unsorted_pairs) {
      all.push_back({"experts_unsorted", [&](int copy) {
                       unsorted(copy);
                       add();
                     }});
    }
    all.push_back({"experts", [&](int copy) {
                     sort();
                     product(copy);
                     add();
                   }});
    all.push_back({"experts_tiled", [&](int copy) {
                     sort();
                     const int tiles = pairs / tiled_pairs + std::min(c.experts, pairs);
                     launch(tiled_experts_product<__half>, ceil_div(c.n, tiled_rows) * tiles, tiled_threads,
                            sizeof(TiledSmem<__half>), shape, routing, a, b(copy), bounds, order, sums);
                     add();
                   }});
  }

  // Right? Against cuBLAS's rows.
  Json verdicts;
  if (c.n == 4096) {
    Device<double> squares(2);
    for (const Contender& contender : all) {
      if (contender.name.find("experts") != 0 && contender.name.find("product") != 0) continue;
      call_an_expert(0);
      require(cudaMemsetAsync(sums, 0xff, std::size_t(pairs) * c.n * sizeof(float), stream));
      require(cudaMemsetAsync(squares, 0, 2 * sizeof(double), stream));
      contender.launch(0);
      launch(compare, pairs, 256, 0, sums, rows, order, c.n, squares);
      double both[2];
      require(cudaMemcpyAsync(both, squares, sizeof(both), cudaMemcpyDeviceToHost, stream));
      require(cudaStreamSynchronize(stream));
      const double error = std::sqrt(both[0] / both[1]);
      if (!(error < 1e-3)) throw std::runtime_error(contender.name + " is wrong: " + std::to_string(error));
      verdicts[contender.name] = error;
    }
  }

  for (Contender& contender : all) {
    cudaGraph_t graph;
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < c.launches; ++i) contender.launch(i % copies);
    require(cudaStreamEndCapture(stream, &graph));
    require(cudaGraphInstantiate(&contender.graph, graph, 0));
    require(cudaGraphDestroy(graph));
  }
  cudaEvent_t begin, end;
  require(cudaEventCreate(&begin));
  require(cudaEventCreate(&end));
  for (int round = -1; round < rounds; ++round) {
    for (Contender& contender : all) {
      require(cudaEventRecord(begin, stream));
      require(cudaGraphLaunch(contender.graph, stream));
      require(cudaEventRecord(end, stream));
      require(cudaEventSynchronize(end));
      float ms;
      require(cudaEventElapsedTime(&ms, begin, end));
      if (round >= 0) contender.us.push_back(ms * 1e3 / c.launches);  // the first round warms up
    }
  }
  const double bytes = 2.0 * static_cast<double>(matrix) * live;
  Json times;
  std::printf("%d experts, top %d, %d tokens, n %d, k %d: %d experts named, %.0f MB\n", c.experts, c.top, c.tokens, c.n, c.k,
              live, bytes * 1e-6);
  for (Contender& contender : all) {
    times[contender.name] = median(contender.us);
    std::printf("  %-24s %9.1f us\n", contender.name.c_str(), median(contender.us));
    require(cudaGraphExecDestroy(contender.graph));
  }
  return {{"experts", c.experts},  {"top", c.top},           {"tokens", c.tokens},     {"n", c.n},         {"k", c.k},
          {"experts_named", live}, {"weights_bytes", bytes}, {"launches", c.launches}, {"rounds", rounds}, {"us", times}};
}

}  // namespace

int main(int argc, char** argv) try {
  cublasHandle_t cublas;
  require(cudaStreamCreate(&stream));
  require(cublasCreate(&cublas));
  require(cublasSetStream(cublas, stream));
  cudaDeviceProp properties;
  require(cudaGetDeviceProperties(&properties, 0));
  Json cases = Json::array();
  for (const Case& c :
       {Case{8, 2, 8, 4096, 4096, 32}, Case{64, 8, 1, 4096, 4096, 32}, Case{64, 8, 16, 4096, 4096, 8},
        Case{64, 8, 512, 4096, 4096, 8}, Case{64, 8, 4096, 4096, 4096, 4}, Case{8, 2, 64, 8, 8, 64}, Case{8, 2, 512, 8, 8, 64},
        Case{64, 8, 512, 8, 8, 64}, Case{64, 8, 4096, 8, 8, 64}, Case{256, 8, 4096, 8, 8, 64}, Case{256, 8, 32768, 8, 8, 64}}) {
    cases.push_back(measure(c, cublas, c.tokens >= 4096 && c.n > 8 ? 7 : 9));
  }
  if (argc > 1) std::ofstream(argv[1]) << Json{{"device", properties.name}, {"cases", cases}}.dump(1) << '\n';
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "experts_peers: %s\n", error.what());
  return 1;
}
