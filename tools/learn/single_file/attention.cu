// Attention: O = softmax(scale · Q Kᵀ + mask) V, and LSE = log Σ exp(scores), of each query.
#include "tools/learn/single_file/attention.cuh"

namespace host {

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

  device::AttentionShape device_shape() const { return shape_on_device(shape); }
};

}  // namespace host

// [the step]

namespace host {

bool run(int argc, char** argv) {
  CommandLine line(argc, argv);
  Attention a = asked_shape(line, supports, 2048);
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

  const std::int64_t rows = std::int64_t{a.batch} * a.heads * a.seq_q;
  const std::int64_t kv_size = std::int64_t{a.batch} * a.kv_heads * a.seq_k * a.dim;
  std::vector<float> q = random_values(random, rows * a.dim), k = random_values(random, kv_size);
  std::vector<float> v = random_values(random, kv_size, 1, 0.5f);
  const DeviceArray q_array(a.dtype, q), k_array(a.dtype, k), v_array(a.dtype, v);
  const DeviceArray o_array(a.dtype, q.size()), lse_array(Dtype::fp32, rows);
  // [if scratch]
  DeviceArrays arrays(scratch_of(a));
  // [end]
  // [if sparse]
  arrays.upload("head_type", mask.types);
  arrays.upload("streaming", mask.streaming);
  arrays.upload("block_mask", mask.live);
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
  // [if plan]
  plan_variant(l);  // once for the mask
  // [end]
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
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int j = 0; j < a.seq_k; ++j) pairs += a.sees(row / a.seq_q, static_cast<int>(row % a.seq_q), j);
  }
  print_time(repeat, 4 * pairs * a.dim, [&] { launch_variant(l); });
  return right;
}

}  // namespace host

int main(int argc, char** argv) {
  return host::exit_status([&] { return host::run(argc, argv); });
}
