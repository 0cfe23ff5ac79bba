// A linear layer for a few tokens: C[m, n] = activation(A[m, k] · B[n, k]ᵀ + bias[n]), of each channel of each sample.
#include <limits>
#include <optional>

#include "tools/learn/single_file/host.cuh"

namespace host {

enum class Activation { none, relu, gelu, silu };

struct Linear {
  int samples, channels;
  int weight_samples, weight_channels;  // several entries of tokens may meet the same weights
  int m, n, k;
  int lda, ldb, ldc;             // elements from one row to the next
  Dtype dtype;                   // of B and of the bias; sums are fp32
  std::optional<Dtype> dtype_a;  // of A: dtype, or fp32, which kernels round to dtype
  std::optional<Dtype> dtype_c;
  Activation activation;
  bool bias;
  // [if experts]
  int experts, top;  // each token names `top` of the experts, which are the channels of the weights

  std::int64_t pairs() const { return std::int64_t{m} * top; }
  // [end]

  std::int64_t entries() const { return std::int64_t{samples} * channels; }
};

constexpr std::int64_t most_grid_y = 65535;

// Where the rows of a [samples, channels, rows, columns] array lie, in elements.
struct LinearStrides {
  std::int64_t sample, channel, row;
};

// What a launch takes: everything in device memory.
struct LinearLaunch {
  Linear shape;
  const void* a;     // [samples, channels, m, k]
  const void* b;     // [weight_samples, weight_channels, n, k]
  const void* bias;  // [weight_samples, weight_channels, n]; null: none
  // [if experts]
  const int* experts;    // [m, top]
  const float* routing;  // [m, top]
  // [end]
  void* c;  // [samples, channels, m, n]
  LinearStrides a_strides, b_strides, c_strides;
  // [if scratch]
  const DeviceArrays& arrays;  // scratch memory
  // [end]
};

// What a variant can compute.
struct LinearSupport {
  std::vector<Dtype> dtypes = {Dtype::fp16, Dtype::bf16};  // of the weights
  bool fp32_tokens = true;
  int max_m = std::numeric_limits<int>::max();
  int k_multiple = 1;
  int row_bytes = 1;  // rows of A and B begin at multiples of so many bytes
  // [if experts]
  bool experts = false;
  int max_pairs = std::numeric_limits<int>::max();  // m · top
  // [end]
};

}  // namespace host

// [the step]

namespace host {

double activated(Activation activation, double x) {
  if (activation == Activation::relu) return x < 0 ? 0 : x;
  if (activation == Activation::gelu) return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
  if (activation == Activation::silu) return x / (1 + std::exp(-x));
  return x;
}

bool run(int argc, char** argv) {
  CommandLine line(argc, argv);
  Linear g{};
  // [if experts]
  g.samples = g.channels = g.weight_samples = 1;
  g.experts = g.weight_channels = line.number("--experts", 8);
  g.top = line.number("--top", 2);
  // [end]
  // [if plain]
  g.samples = g.weight_samples = line.number("--samples", 1);
  g.channels = g.weight_channels = line.number("--channels", 1);
  // [end]
  g.m = line.number("--m", 1);
  g.n = g.ldc = line.number("--n", 4096);
  g.k = g.lda = g.ldb = line.number("--k", 4096);
  g.dtype = line.dtype(supports.dtypes);
  g.dtype_a = g.dtype_c = g.dtype;
  g.activation = static_cast<Activation>(line.number("--activation", 0, 0));  // 0: none, 1: relu, 2: gelu, 3: silu
  g.bias = true;
  const int seed = line.number("--seed", 1), repeat = line.number("--repeat", 20);
  line.end();
  require(g.m <= supports.max_m, "--m is at most " + std::to_string(supports.max_m) + " for this kernel");
  const int multiple = std::max(supports.k_multiple, supports.row_bytes / static_cast<int>(bytes(g.dtype)));
  require(g.k % std::max(multiple, 1) == 0, "--k must be a multiple of " + std::to_string(multiple) + " for this kernel");
  require(g.activation <= Activation::silu, "--activation is at most 3");
  // [if experts]
  require(g.top <= g.experts, "--top is at most --experts");
  require(g.pairs() <= supports.max_pairs,
          "--m times --top is at most " + std::to_string(supports.max_pairs) + " for this kernel");
  // [end]
  std::printf("%s: samples %d, channels %d, m %d, n %d, k %d, %s\n", variant_name, g.samples, g.channels, g.m, g.n, g.k,
              name(g.dtype));

  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  const std::int64_t a_size = std::int64_t{g.m} * g.k, b_size = std::int64_t{g.n} * g.k, c_size = std::int64_t{g.m} * g.n;
  const std::int64_t matrices = std::int64_t{g.weight_samples} * g.weight_channels;
  std::vector<float> a = random_values(random, g.entries() * a_size);
  std::vector<float> b = random_values(random, matrices * b_size, 1 / std::sqrt(static_cast<float>(g.k)));
  std::vector<float> bias = random_values(random, matrices * g.n);
  const DeviceArray a_array(g.dtype, a), b_array(g.dtype, b), bias_array(g.dtype, bias), c_array(g.dtype, g.entries() * c_size);
  // [if experts]
  std::vector<int> experts(static_cast<std::size_t>(g.pairs()));  // a token may name one of them twice
  for (int& expert : experts) expert = static_cast<int>(random() % g.experts);
  std::vector<float> routing = random_values(random, experts.size());
  const DeviceArray routing_array(Dtype::fp32, routing);
  int* experts_array = nullptr;
  CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&experts_array), experts.size() * sizeof(int)));
  CUDA_CHECK(cudaMemcpy(experts_array, experts.data(), experts.size() * sizeof(int), cudaMemcpyHostToDevice));
  // [end]
  // [if scratch]
  const DeviceArrays arrays(scratch_of(g));
  // [end]
  const LinearLaunch l{
      .shape = g,
      .a = a_array.data(),
      .b = b_array.data(),
      .bias = bias_array.data(),
      // [if experts]
      .experts = experts_array,
      .routing = static_cast<const float*>(routing_array.data()),
      // [end]
      .c = c_array.data(),
      .a_strides = {g.channels * a_size, a_size, g.k},
      .b_strides = {g.weight_channels * b_size, b_size, g.k},
      .c_strides = {g.channels * c_size, c_size, g.n},
      // [if scratch]
      .arrays = arrays,
      // [end]
  };
  launch_variant(l);
  CUDA_CHECK(cudaDeviceSynchronize());

  const std::vector<float> c = c_array.values();
  // Of a row of A and a row of B.
  const auto element = [&](std::int64_t token, std::int64_t weights) {
    double sum = bias[weights];
    for (int i = 0; i < g.k; ++i) sum += double{a[token * g.k + i]} * b[weights * g.k + i];
    return activated(g.activation, sum);
  };
  std::vector<double> c_row(static_cast<std::size_t>(g.n));
  double error = 0;
  for (const std::int64_t row : some_rows(random, g.entries() * g.m, 64)) {
    for (int j = 0; j < g.n; ++j) {
      // [if experts]
      c_row[j] = 0;
      for (std::int64_t pair = row * g.top; pair < (row + 1) * g.top; ++pair) {
        c_row[j] += routing[pair] * element(row, std::int64_t{experts[pair]} * g.n + j);
      }
      // [end]
      // [if plain]
      c_row[j] = element(row, row / g.m * g.n + j);
      // [end]
    }
    error = std::max(error, row_error(&c[row * g.n], c_row));
  }
  const bool right = passes("C", error, tolerance(g.dtype));
  print_time(repeat, 2.0 * static_cast<double>(g.entries()) * g.m * g.n * g.k, [&] { launch_variant(l); });
  return right;
}

}  // namespace host

int main(int argc, char** argv) {
  return host::exit_status([&] { return host::run(argc, argv); });
}
