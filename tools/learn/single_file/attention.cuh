// Attention and its backward pass: shapes, masks, what a variant takes, and a row of the forward pass in double precision.
#pragma once

#include "common/device/shapes.h"
#include "common/device/visibility.h"
#include "tools/learn/single_file/host.cuh"
// [if sparse]
#include "tools/learn/single_file/sparse.cuh"
// [end]

namespace host {

struct Attention {
  int batch, heads, kv_heads, seq_q, seq_k, dim;
  bool causal;  // query i sees keys j ≤ i + seq_k − seq_q
  int window;   // N > 0: key j is seen only if |i + seq_k − seq_q − j| < N
  Dtype dtype;
  int dropout = 0;  // which this file leaves out
  bool is_packed() const { return false; }
  // [if sparse]
  const SparseMask* sparse = nullptr;
  // [end]

  float scale() const { return 1 / std::sqrt(static_cast<float>(dim)); }
  // [if sparse]
  // The keys that query i sees, but for the mask of blocks: first_key(i) … last_key(i) − 1.
  int first_key(int i) const { return visibility::first_key(*this, i); }
  int last_key(int i) const { return visibility::end_key(*this, i); }
  // [end]
  // Of a head, which is counted through batch entries.
  bool sees([[maybe_unused]] std::int64_t head, int i, int j) const {
    // [if sparse]
    if (!sparse->sees(static_cast<int>(head % heads), i, j)) return false;
    // [end]
    const int ahead = j - (i + seq_k - seq_q);  // of the key beside query i
    return (!causal || ahead <= 0) && (window == 0 || std::abs(ahead) < window);
  }
};

// What a variant can compute.
struct AttentionSupport {
  std::vector<Dtype> dtypes = {Dtype::fp32};
  std::vector<int> dims = {};  // empty: every one from 1 to max_dim
  int max_dim = 256;
  bool causal = true;
  bool window = false;
  bool packed = false;  // packed sequences and dropout, which this file leaves out
  bool dropout = false;
  bool packed_dropout = false;
  // [if sparse]
  std::vector<int> sparse_q = {}, sparse_k = {};  // queries and keys of a mask's block
  bool sparse_tokens = false;                     // heads that stream by token
  // [end]
  bool grouped_heads = true;                // kv_heads < heads
  int row_alignment = 1;                    // bytes
  std::int64_t max_row_stride = INT64_MAX;  // elements; rows of this file lie side by side
  int max_batch = 65535;
  int max_heads = 65535;
};

inline void require_supported(const AttentionSupport& supports, const Attention& a) {
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
  // [if sparse]
  const auto has = [](const std::vector<int>& sizes, int size) {
    return std::find(sizes.begin(), sizes.end(), size) != sizes.end();
  };
  require(has(supports.sparse_q, a.sparse->block_q),
          "this kernel has no blocks of " + std::to_string(a.sparse->block_q) + " queries");
  require(has(supports.sparse_k, a.sparse->block_k),
          "this kernel has no blocks of " + std::to_string(a.sparse->block_k) + " keys");
  require(supports.sparse_tokens || !has(a.sparse->types, 3), "this kernel has no heads that stream by token");
  // [end]
  require(a.batch <= supports.max_batch && a.heads <= supports.max_heads, "too many batch entries or heads for this kernel");
}

// What the command line asks for, of as many queries unless it says how many.
inline Attention asked_shape(CommandLine& line, const AttentionSupport& supports, int queries) {
  const std::vector<int>& dims = supports.dims;
  Attention a{};
  a.batch = line.number("--batch", 1);
  a.heads = line.number("--heads", 16);
  a.kv_heads = line.number("--kv-heads", a.heads);
  a.seq_q = line.number("--seq-q", queries);
  a.seq_k = line.number("--seq-k", a.seq_q);
  a.dim = line.number("--dim", dims.empty() || std::count(dims.begin(), dims.end(), 64) > 0 ? 64 : dims.front());
  a.causal = line.number("--causal", 0, 0) != 0;
  a.window = line.number("--window", 0, 0);
  a.dtype = line.dtype(supports.dtypes);
  return a;
}

inline void print_shape(const char* variant, const Attention& a) {
  std::printf("%s: batch %d, heads %d over %d, %d x %d, dim %d, causal %d, window %d, %s\n", variant, a.batch, a.heads,
              a.kv_heads, a.seq_q, a.seq_k, a.dim, a.causal, a.window, name(a.dtype));
}

// As kernels take it.
inline device::AttentionShape shape_on_device(const Attention& a) {
  return {.batch = a.batch,
          .heads = a.heads,
          .kv_heads = a.kv_heads,
          .seq_q = a.seq_q,
          .seq_k = a.seq_k,
          .dim = a.dim,
          .causal = a.causal,
          .scale = a.scale(),
          .window = a.window};
}

// A dense [batch, heads, rows, dim] array.
template <bool Const>
device::AnyHeads<Const> view(const DeviceArray& array, std::int64_t heads, std::int64_t rows, std::int64_t dim) {
  return {array.data(), heads * rows * dim, rows * dim, dim};
}

// Whether every row, of `element` bytes an element, begins at a multiple of `bytes`.
template <bool Const>
bool has_rows_at(const device::AnyHeads<Const>& x, std::int64_t bytes, std::int64_t element) {
  return x.row_stride * element % bytes == 0;
}
// Elements from one row to the next.
template <bool Const>
std::int64_t row_distance(const device::AnyHeads<Const>& x, int) {
  return x.row_stride;
}

// Calls f with the shape as kernels take it.
template <class Launch, class F>
void with_device_shape(const Launch& l, F f) {
  f(l.device_shape());
}
// The same; options of scores are left out of this file.
template <class T, class Launch, class F>
void with_score_options(const Launch& l, F f) {
  f(l.device_shape());
}
// [if plan]
// The same with and without dropout; sequences are not packed here, so they need not be found.
template <class Launch, class F>
void with_found_shape(const Launch& l, F f) {
  f(l.device_shape());
}
template <class Launch, class F>
void with_sequences(const Launch& l, F f) {
  f(l.device_shape());
}
template <class Launch>
void launch_find_sequences(const Launch&) {}
// [end]
// And with the kernel of a rung.
template <class K, class Shape, class F>
void with_kernel(const Shape&, F f) {
  f(K::kernel);
}

// A row of O and its LSE in double precision. `row` counts through batch entries, heads and queries.
inline double reference_row(const Attention& a, const std::vector<float>& q, const std::vector<float>& k,
                            const std::vector<float>& v, std::int64_t row, std::vector<double>& o) {
  const int i = static_cast<int>(row % a.seq_q);
  const std::int64_t first_key = row / a.seq_q / (a.heads / a.kv_heads) * a.seq_k;  // of the head
  std::vector<double> scores(static_cast<std::size_t>(a.seq_k), -INFINITY);
  for (int j = 0; j < a.seq_k; ++j) {
    if (!a.sees(row / a.seq_q, i, j)) continue;
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

}  // namespace host
