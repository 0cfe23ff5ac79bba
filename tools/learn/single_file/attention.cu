// Attention: O = softmax(scale · Q Kᵀ + mask) V, and LSE = log Σ exp(scores), of each query.
#include "common/device/mask.h"
#include "common/device/views.h"
#include "tools/learn/single_file/host.cuh"

namespace host {

struct Attention {
  int batch, heads, kv_heads, seq_q, seq_k, dim;
  bool causal;  // query i sees keys j ≤ i + seq_k − seq_q
  int window;   // N > 0: key j is seen only if |i + seq_k − seq_q − j| < N
  Dtype dtype;

  float scale() const { return 1 / std::sqrt(static_cast<float>(dim)); }
  bool sees(int i, int j) const {
    const int ahead = j - (i + seq_k - seq_q);  // of the key beside query i
    return (!causal || ahead <= 0) && (window == 0 || std::abs(ahead) < window);
  }
};

// What a launch takes: everything in device memory.
struct AttentionLaunch {
  Attention shape;
  device::AnyHeads<true> q;   // [batch, heads, seq_q, dim]
  device::AnyHeads<true> k;   // [batch, kv_heads, seq_k, dim]
  device::AnyHeads<true> v;   // [batch, kv_heads, seq_k, dim]
  device::AnyHeads<false> o;  // [batch, heads, seq_q, dim]
  float* lse;                 // [batch, heads, seq_q], natural logarithm
  // [if scratch]
  const DeviceArrays& arrays;  // scratch memory
  // [end]

  device::AttentionShape device_shape() const {
    const Attention& a = shape;
    return {a.batch, a.heads, a.kv_heads, a.seq_q, a.seq_k, a.dim, a.causal, a.scale(), a.window};
  }
};

// What a variant can compute.
struct AttentionSupport {
  std::vector<Dtype> dtypes = {Dtype::fp32};
  std::vector<int> dims = {};  // empty: every one from 1 to max_dim
  int max_dim = 256;
  bool causal = true;
  bool window = false;
  bool grouped_heads = true;  // kv_heads < heads
  int row_alignment = 1;      // bytes
  int max_batch = 65535;
  int max_heads = 65535;
};

}  // namespace host

// [the step]

namespace host {

void require_supported(const AttentionSupport& supports, const Attention& a) {
  std::string dims;
  for (const int dim : supports.dims) dims += " " + std::to_string(dim);
  require(dims.empty() || std::find(supports.dims.begin(), supports.dims.end(), a.dim) != supports.dims.end(),
          "--dim is " + std::to_string(a.dim) + "; this kernel takes" + dims);
  require(a.dim <= supports.max_dim, "--dim is at most " + std::to_string(supports.max_dim) + " for this kernel");
  require(a.dim * bytes(a.dtype) % static_cast<std::size_t>(supports.row_alignment) == 0,
          "rows of this kernel are multiples of " + std::to_string(supports.row_alignment) + " bytes");
  require(a.heads % a.kv_heads == 0, "--heads must be a multiple of --kv-heads");
  require(supports.grouped_heads || a.heads == a.kv_heads, "this kernel takes as many key/value heads as query heads");
  require(supports.causal || !a.causal, "this kernel has no causal mask");
  require(supports.window || a.window == 0, "this kernel has no window");
  require(a.batch <= supports.max_batch && a.heads <= supports.max_heads, "too many batch entries or heads for this kernel");
}

// A dense [batch, heads, rows, dim] array.
template <bool Const>
device::AnyHeads<Const> view(const DeviceArray& array, std::int64_t heads, std::int64_t rows, std::int64_t dim) {
  return {array.data(), heads * rows * dim, rows * dim, dim};
}

// A row of O and its LSE in double precision. `row` counts through batch entries, heads and queries.
double reference_row(const Attention& a, const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v,
                     std::int64_t row, std::vector<double>& o) {
  const int i = static_cast<int>(row % a.seq_q);
  const std::int64_t first_key = row / a.seq_q / (a.heads / a.kv_heads) * a.seq_k;  // of the head
  std::vector<double> scores(static_cast<std::size_t>(a.seq_k), -INFINITY);
  for (int j = 0; j < a.seq_k; ++j) {
    if (!a.sees(i, j)) continue;
    double sum = 0;
    for (int d = 0; d < a.dim; ++d) sum += double{q[row * a.dim + d]} * k[(first_key + j) * a.dim + d];
    scores[j] = a.scale() * sum;
  }
  o.assign(static_cast<std::size_t>(a.dim), 0);
  const double largest = *std::max_element(scores.begin(), scores.end());
  if (largest == -INFINITY) return -INFINITY;  // the query sees no key
  double sum = 0;
  for (int j = 0; j < a.seq_k; ++j) {
    const double p = std::exp(scores[j] - largest);
    sum += p;
    for (int d = 0; d < a.dim; ++d) o[d] += p * v[(first_key + j) * a.dim + d];
  }
  for (double& x : o) x /= sum;
  return largest + std::log(sum);
}

bool run(int argc, char** argv) {
  CommandLine line(argc, argv);
  Attention a{};
  a.batch = line.number("--batch", 1);
  a.heads = line.number("--heads", 16);
  a.kv_heads = line.number("--kv-heads", a.heads);
  a.seq_q = line.number("--seq-q", 2048);
  a.seq_k = line.number("--seq-k", a.seq_q);
  a.dim = line.number("--dim", 64);
  a.causal = line.number("--causal", 0, 0) != 0;
  a.window = line.number("--window", 0, 0);
  a.dtype = line.dtype(supports.dtypes);
  const int seed = line.number("--seed", 1), repeat = line.number("--repeat", 20);
  line.end();
  require_supported(supports, a);
  std::printf("%s: batch %d, heads %d over %d, %d x %d, dim %d, causal %d, window %d, %s\n", variant_name, a.batch, a.heads,
              a.kv_heads, a.seq_q, a.seq_k, a.dim, a.causal, a.window, name(a.dtype));

  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  const std::int64_t rows = std::int64_t{a.batch} * a.heads * a.seq_q;
  const std::int64_t kv_size = std::int64_t{a.batch} * a.kv_heads * a.seq_k * a.dim;
  std::vector<float> q = random_values(random, rows * a.dim), k = random_values(random, kv_size);
  std::vector<float> v = random_values(random, kv_size, 1, 0.5f);
  const DeviceArray q_array(a.dtype, q), k_array(a.dtype, k), v_array(a.dtype, v);
  const DeviceArray o_array(a.dtype, q.size()), lse_array(Dtype::fp32, rows);
  // [if scratch]
  const DeviceArrays arrays(scratch_of(a));
  // [end]
  const AttentionLaunch l{
      .shape = a,
      .q = view<true>(q_array, a.heads, a.seq_q, a.dim),
      .k = view<true>(k_array, a.kv_heads, a.seq_k, a.dim),
      .v = view<true>(v_array, a.kv_heads, a.seq_k, a.dim),
      .o = view<false>(o_array, a.heads, a.seq_q, a.dim),
      .lse = static_cast<float*>(lse_array.data()),
      // [if scratch]
      .arrays = arrays,
      // [end]
  };
  launch_variant(l);
  CUDA_CHECK(cudaDeviceSynchronize());

  const std::vector<float> o = o_array.values(), lse = lse_array.values();
  std::vector<double> o_row;
  double o_error = 0, lse_error = 0;
  for (const std::int64_t row : some_rows(random, rows, 256)) {
    lse_error = std::max(lse_error, row_error(&lse[row], {reference_row(a, q, k, v, row, o_row)}));
    o_error = std::max(o_error, row_error(&o[row * a.dim], o_row));
  }
  const bool right = passes("O", o_error, tolerance(a.dtype)) & passes("LSE", lse_error, tolerance(a.dtype));
  double pairs = 0;  // of queries and keys that see each other
  for (int i = 0; i < a.seq_q; ++i) {
    for (int j = 0; j < a.seq_k; ++j) pairs += a.sees(i, j);
  }
  print_time(repeat, 4 * pairs * a.dim * a.heads * a.batch, [&] { launch_variant(l); });
  return right;
}

}  // namespace host

int main(int argc, char** argv) {
  return host::exit_status([&] { return host::run(argc, argv); });
}
