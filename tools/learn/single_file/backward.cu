// Attention's backward pass, from Q, K, V, dO, and the O and LSE of the forward pass: dV = Pᵀ dO, dQ = scale · dS K,
// dK = scale · dSᵀ Q, where P = exp(S − LSE), S = scale · Q Kᵀ + mask, dS = P ∘ (dO Vᵀ − D), D = rowsum(dO ∘ O).
#include "tools/learn/single_file/attention.cuh"

namespace host {

struct Backward : Attention {};
using BackwardSupport = AttentionSupport;

// What a launch takes: everything in device memory.
struct BackwardLaunch {
  Backward shape;
  device::AnyHeads<true> q;    // [batch, heads, seq_q, dim]
  device::AnyHeads<true> k;    // [batch, kv_heads, seq_k, dim]
  device::AnyHeads<true> v;    // [batch, kv_heads, seq_k, dim]
  device::AnyHeads<true> o;    // [batch, heads, seq_q, dim], of the forward pass
  device::AnyHeads<true> d_o;  // [batch, heads, seq_q, dim]
  const float* lse;            // [batch, heads, seq_q], natural logarithm, of the forward pass
  device::AnyHeads<false> dq;  // [batch, heads, seq_q, dim]
  device::AnyHeads<false> dk;  // [batch, kv_heads, seq_k, dim]
  device::AnyHeads<false> dv;  // [batch, kv_heads, seq_k, dim]
  // [if scratch]
  const DeviceArrays& arrays;  // scratch memory
  // [end]

  device::AttentionShape device_shape() const { return shape_on_device(shape); }
};

}  // namespace host

// [the step]

namespace host {

// The backward pass in double precision, row by row, from O and LSE as they are stored.
struct Reference {
  const Backward& a;
  const std::vector<float>&q, &k, &v, &o, &d_o, &lse;

  double dot(const std::vector<float>& x, std::int64_t row, const std::vector<float>& y, std::int64_t other) const {
    double sum = 0;
    for (int d = 0; d < a.dim; ++d) sum += double{x[row * a.dim + d]} * y[other * a.dim + d];
    return sum;
  }
  // P and dS of a query and a key that it sees, given by their rows.
  double p(std::int64_t query, std::int64_t key) const { return std::exp(a.scale() * dot(q, query, k, key) - lse[query]); }
  double ds(std::int64_t query, std::int64_t key) const {
    return p(query, key) * (dot(d_o, query, v, key) - dot(d_o, query, o, query));
  }

  std::vector<double> dq(std::int64_t query) const {
    std::vector<double> sums(static_cast<std::size_t>(a.dim));
    const std::int64_t first_key = query / a.seq_q / (a.heads / a.kv_heads) * a.seq_k;  // of the head
    for (int j = 0; j < a.seq_k; ++j) {
      if (!a.sees(query / a.seq_q, static_cast<int>(query % a.seq_q), j)) continue;
      const double factor = a.scale() * ds(query, first_key + j);
      for (int d = 0; d < a.dim; ++d) sums[d] += factor * k[(first_key + j) * a.dim + d];
    }
    return sums;
  }
  void dk_and_dv(std::int64_t key, std::vector<double>& dk, std::vector<double>& dv) const {
    dk.assign(static_cast<std::size_t>(a.dim), 0);
    dv = dk;
    const std::int64_t queries = std::int64_t{a.heads / a.kv_heads} * a.seq_q;  // of all heads that share the key
    const std::int64_t first_query = key / a.seq_k * queries;
    for (std::int64_t query = first_query; query < first_query + queries; ++query) {
      if (!a.sees(query / a.seq_q, static_cast<int>(query % a.seq_q), static_cast<int>(key % a.seq_k))) continue;
      const double weight = p(query, key), factor = a.scale() * ds(query, key);
      for (int d = 0; d < a.dim; ++d) {
        dk[d] += factor * q[query * a.dim + d];
        dv[d] += weight * d_o[query * a.dim + d];
      }
    }
  }
};

bool run(int argc, char** argv) {
  CommandLine line(argc, argv);
  Backward a{asked_shape(line, supports, 1024)};
  // [if sparse]
  SparseMask mask;
  mask.block_q = line.number("--block-q", 128);
  mask.block_k = line.number("--block-k", 128);
  mask.seq_q = a.seq_q;
  mask.seq_k = a.seq_k;
  const std::string pattern = line.text("--pattern", "random:0.25");
  // [end]
  const int seed = line.number("--seed", 1), repeat = line.number("--repeat", 20);
  line.end();
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  // [if sparse]
  fill(mask, a.heads, pattern, random);
  a.sparse = &mask;
  // [end]
  require_supported(supports, a);
  print_shape(variant_name, a);
  // [if sparse]
  std::printf("%s, in blocks of %d x %d\n", pattern.c_str(), mask.block_q, mask.block_k);
  // [end]

  const std::int64_t rows = std::int64_t{a.batch} * a.heads * a.seq_q, keys = std::int64_t{a.batch} * a.kv_heads * a.seq_k;
  std::vector<float> q = random_values(random, rows * a.dim), k = random_values(random, keys * a.dim);
  std::vector<float> v = random_values(random, keys * a.dim), d_o = random_values(random, rows * a.dim);
  const DeviceArray q_array(a.dtype, q), k_array(a.dtype, k), v_array(a.dtype, v), do_array(a.dtype, d_o);
  std::vector<float> o(q.size()), lse(static_cast<std::size_t>(rows));  // of the forward pass, which the host computes
  std::vector<double> row_values;
  for (std::int64_t row = 0; row < rows; ++row) {
    lse[row] = static_cast<float>(reference_row(a, q, k, v, row, row_values));
    std::copy(row_values.begin(), row_values.end(), &o[row * a.dim]);
  }
  const DeviceArray o_array(a.dtype, o), lse_array(Dtype::fp32, lse);
  const DeviceArray dq_array(a.dtype, q.size()), dk_array(a.dtype, k.size()), dv_array(a.dtype, v.size());
  // [if scratch]
  DeviceArrays arrays(scratch_of(a));
  // [end]
  // [if sparse]
  arrays.upload("head_type", mask.types);
  arrays.upload("streaming", mask.streaming);
  arrays.upload("block_mask", mask.live);
  // [end]
  const BackwardLaunch l{
      .shape = a,
      .q = view<true>(q_array, a.heads, a.seq_q, a.dim),
      .k = view<true>(k_array, a.kv_heads, a.seq_k, a.dim),
      .v = view<true>(v_array, a.kv_heads, a.seq_k, a.dim),
      .o = view<true>(o_array, a.heads, a.seq_q, a.dim),
      .d_o = view<true>(do_array, a.heads, a.seq_q, a.dim),
      .lse = static_cast<const float*>(lse_array.data()),
      .dq = view<false>(dq_array, a.heads, a.seq_q, a.dim),
      .dk = view<false>(dk_array, a.kv_heads, a.seq_k, a.dim),
      .dv = view<false>(dv_array, a.kv_heads, a.seq_k, a.dim),
      // [if scratch]
      .arrays = arrays,
      // [end]
  };
  // [if plan]
  plan_variant(l);  // once for the mask
  // [end]
  launch_variant(l);
  CUDA_CHECK(cudaDeviceSynchronize());

  const std::vector<float> dq = dq_array.values(), dk = dk_array.values(), dv = dv_array.values();
  const Reference reference{a, q, k, v, o, d_o, lse};
  std::vector<double> dk_row, dv_row;
  double dq_error = 0, dk_error = 0, dv_error = 0;
  for (const std::int64_t query : some_rows(random, rows, 128)) {
    dq_error = std::max(dq_error, row_error(&dq[query * a.dim], reference.dq(query)));
  }
  for (const std::int64_t key : some_rows(random, keys, 128)) {
    reference.dk_and_dv(key, dk_row, dv_row);
    dk_error = std::max(dk_error, row_error(&dk[key * a.dim], dk_row));
    dv_error = std::max(dv_error, row_error(&dv[key * a.dim], dv_row));
  }
  const double allowed = tolerance(a.dtype);
  const bool right = passes("dQ", dq_error, allowed) & passes("dK", dk_error, allowed) & passes("dV", dv_error, allowed);
  double pairs = 0;  // of queries and keys that see each other
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int j = 0; j < a.seq_k; ++j) pairs += a.sees(row / a.seq_q, static_cast<int>(row % a.seq_q), j);
  }
  print_time(repeat, 10 * pairs * a.dim, [&] { launch_variant(l); });
  return right;
}

}  // namespace host

int main(int argc, char** argv) {
  return host::exit_status([&] { return host::run(argc, argv); });
}
