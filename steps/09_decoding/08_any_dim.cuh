// 09_decoding, any_dim: CUDA cores, for rows of any length, in any type, at any address.
// Predecessor: 03_split_kv.cuh (option: rows of any length, without tensor cores)
//
// With one query a head, S = Q Kᵀ is a product of a matrix and a vector: each element of K is needed once. What tensor cores
// give is not needed, and 16 rows of an mma are 15 too many. This kernel says how far plain loads go.
//
//   block    a query of a head, and a part of its keys
//   warp     every 8th group of the part's keys. Its softmax knows only these, so warps merge at the end, and then blocks
//   lane     elements lane, lane + 32, … of Q, and of O
//
//   Smem     o[warps][256], states[warps]
//   parts    [queries, splits] (m, l), and rows of O in fp32, for the second kernel
//
// What to expect: with one head a group and long rows near the bandwidth, because warps read whole sectors. With more heads a
// group, each head reads the keys again, from L2 at best.
#pragma once

#include "steps/09_decoding/merge.cuh"

namespace decoding {

constexpr int any_dim_warps = 8, any_dim_threads = 32 * any_dim_warps;
constexpr int most_dim = 256;
constexpr int keys_at_a_time = 4;  // whose loads a lane has under way

struct AnyDimSmem {
  float o[any_dim_warps][most_dim];
  SoftmaxState states[any_dim_warps];
};

// What blocks pass on: of query n, part p is number n · splits + p.
struct QueryParts {
  int splits;
  float* o;              // [queries · splits, dim]
  SoftmaxState* states;  // [queries · splits]
};

// As `merged`, of one column.
struct Column {
  SoftmaxState state;
  float o;
};
template <class StateAt, class OAt>
__device__ Column merged_column(int count, const StateAt& state_at, const OAt& o_at) {
  float m = -INFINITY;
#pragma unroll 1
  for (int i = 0; i < count; ++i) m = fmaxf(m, load(&state_at(i)->m));
  Column sum = {{m, 0.0f}, 0.0f};
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    const SoftmaxState part = load(state_at(i));
    const float factor = device::rescale_factor(part.m, m);
    sum.state.l += factor * part.l;
    sum.o += factor * load(o_at(i));
  }
  return sum;
}

// A query of a head, counted over all batch entries, and where it lies.
struct OneQuery {
  int batch, head, i;
};
__device__ inline OneQuery one_query(const AttentionShape& shape, int number) {
  const int head_of_all = number / shape.seq_q, batch = head_of_all / shape.heads;
  return {batch, head_of_all - batch * shape.heads, number - head_of_all * shape.seq_q};
}

// Grid: over batch · heads · seq_q and, within, over splits. Blocks of any_dim_threads. lane_dims: ⌈dim / 32⌉ or more.
template <class T, int lane_dims, class Shape = AttentionShape>
__global__ void __launch_bounds__(any_dim_threads) any_dim(Shape shape,
                                                           Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                           Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                           Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                           QueryParts parts) {
  auto& smem = device::shared_storage<AnyDimSmem>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int number = blockIdx.x / parts.splits, part = blockIdx.x - number * parts.splits;
  const auto [batch, head, i] = one_query(shape, number);
  const int kv_head = shape.kv_head(head);
  const AttentionShape entry = device::entry_of(shape, batch);
  const Keys all_seen = {entry.first_key(i), entry.end_key(i)};
  const std::int64_t count = max(all_seen.end - all_seen.first, 0);
  const Keys seen = {all_seen.first + static_cast<int>(count * part / parts.splits),
                     all_seen.first + static_cast<int>(count * (part + 1) / parts.splits)};
  device::RowScores<Shape> scored;
  scored.begin(shape, batch, head, i);
  // Elements of a row that this lane has; zeros beyond its end, or where there is no row.
  const auto read = [&](float(&x)[lane_dims], const T* row, bool there) {
#pragma unroll
    for (int d = 0; d < lane_dims; ++d) {
      const int column = lane + 32 * d;
      x[d] = device::to_float(load_if(there && column < shape.dim, &row[column]));
    }
  };
  float q_row[lane_dims], acc[lane_dims] = {};
  read(q_row, q.row(batch, head, i), true);
  SoftmaxState state;
  for (int first = seen.first + warp * keys_at_a_time; first < seen.end; first += any_dim_warps * keys_at_a_time) {
    float k_row[keys_at_a_time][lane_dims], v_row[keys_at_a_time][lane_dims], s[keys_at_a_time];
#pragma unroll
    for (int j = 0; j < keys_at_a_time; ++j) {
      const bool there = first + j < seen.end;
      const device::KeyPlace at = device::place_of(shape, batch, there ? first + j : seen.first);
      read(k_row[j], k.row(at.batch, kv_head, at.row), there);
      read(v_row[j], v.row(at.batch, kv_head, at.row), there && !scored.hides(first + j));
    }
    // S = Q K^T
    float m = state.m;
#pragma unroll
    for (int j = 0; j < keys_at_a_time; ++j) {
      s[j] = 0.0f;
#pragma unroll
      for (int d = 0; d < lane_dims; ++d) s[j] += q_row[d] * k_row[j][d];
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) s[j] += __shfl_xor_sync(all_lanes, s[j], distance);
      s[j] = first + j < seen.end ? scored.score(s[j], first + j) : -INFINITY;
      m = fmaxf(m, s[j]);
    }
    // rescale
    const float factor = device::rescale_factor(state.m, m);
    state = {m, state.l * factor};
#pragma unroll
    for (float& x : acc) x *= factor;
      // P = exp2(S - m), O += P V
#pragma unroll
    for (int j = 0; j < keys_at_a_time; ++j) {
      const float p = device::exp2_fast(s[j] - device::safe_maximum(m));
      state.l += p;
#pragma unroll
      for (int d = 0; d < lane_dims; ++d) acc[d] += p * v_row[j][d];
    }
  }
  // ---- the warps merge ----
#pragma unroll
  for (int d = 0; d < lane_dims; ++d) smem.o[warp][lane + 32 * d] = acc[d];
  if (lane == 0) store(&smem.states[warp], state);
  __syncthreads();  // all warps have handed over what they have
  for (int column = threadIdx.x; column < shape.dim; column += any_dim_threads) {
    const Column all = merged_column(
        any_dim_warps, [&](int w) { return &smem.states[w]; }, [&](int w) { return &smem.o[w][column]; });
    parts.o[std::int64_t{blockIdx.x} * shape.dim + column] = all.o;
    store_if(column == 0, &parts.states[blockIdx.x], all.state);
  }
}

// Merges the parts of a query, in the order of the keys. Grid: over batch · heads · seq_q. Blocks of any_dim_threads.
template <class T, class Shape = AttentionShape>
__global__ void __launch_bounds__(any_dim_threads) combine_any_dim(Shape shape, QueryParts parts,
                                                                   Heads<T> o,    // [batch, heads, seq_q, dim]
                                                                   float* lse) {  // [batch, heads, seq_q]
  const auto [batch, head, i] = one_query(shape, blockIdx.x);
  const std::int64_t first = std::int64_t{blockIdx.x} * parts.splits;
  for (int column = threadIdx.x; column < shape.dim; column += any_dim_threads) {
    Column all = merged_column(
        parts.splits, [&](int part) { return &parts.states[first + part]; },
        [&](int part) { return &parts.o[(first + part) * shape.dim + column]; });
    all.o *= device::add_sink(shape, head, all.state);
    store(&o.row(batch, head, i)[column], device::from_float<T>(all.o * device::inverse_sum(all.state.l)));
    store_if(column == 0, &lse[blockIdx.x], device::log_sum_exp(all.state));
  }
}

}  // namespace decoding
