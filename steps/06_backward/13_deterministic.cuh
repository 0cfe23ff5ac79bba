// 06_backward, deterministic: dQ by a kernel of its own, with the ideas of the tuned ones.
// Predecessor: 09_tuned_64.cuh (option: the same bits in every run)
//
// The tuned rungs add to dQ in global memory. The order in which blocks add changes from run to run, and fp32 sums depend on
// it. Who looks for a fault in a training run wants two equal runs. As in `two_kernels`, a second kernel makes dQ, with S and
// dP once more. The first one is the tuned kernel without its fifth product.
//
//   warp   32 queries × 32 keys of S and dP at a time, two slices of 16: each fragment of K and V feeds four mma; dQ of these
//          queries. dS goes on as A, in its registers: no shared memory and no barrier for it. Up to head dim 64 the warp's
//          rows of Q and dO stay in registers, too: 1.0 wavefronts of shared memory for an mma instead of 1.67
//   Smem   q, d_o[a query for each thread][dim], stage[2] of k, v[64][dim]
//
// What to expect: seven products instead of five, and nothing is added in global memory: 0.72 of the tuned rungs.
#pragma once

#include <bit>

#include "common/device/backward/slices.cuh"

namespace backward {

// Threads of a block; it has as many queries. At dim 64 two blocks share an SM. At dim 128 one block of 128 threads would be
// alone there; so above dim 64 a block has 256.
template <int dim>
constexpr int query_threads = dim <= 64 ? 128 : 256;
constexpr int query_slices = 2;  // of 16 queries, of a warp

// A thread's copies of K and V: 16 bytes of each, `row_step` rows apart. As in `tuned_64`, their addresses are made once.
template <int threads, class T, int rows, int dim>
struct KeyCopies {
  static constexpr int row_chunks = dim / chunk, row_step = std::bit_floor(threads / unsigned{row_chunks});
  static_assert(rows % row_step == 0);
  const Heads<const T>&from_k, &from_v;
  const int seq_k;
  const T *k, *v;  // this thread's chunk of the first tile

  __device__ KeyCopies(const Heads<const T>& k_heads, const Heads<const T>& v_heads, int batch, int kv_head, int keys)
      : from_k(k_heads), from_v(v_heads), seq_k(keys) {
    const int row = threadIdx.x / row_chunks, column = threadIdx.x % row_chunks * chunk;
    k = from_k.row(batch, kv_head, 0) + row * from_k.row_stride + column;
    v = from_v.row(batch, kv_head, 0) + row * from_v.row_stride + column;
  }
  // Rows behind the last key become zeros: of 0 bytes nothing is read.
  __device__ void copy(Tile<T, rows, dim>& k_tile, Tile<T, rows, dim>& v_tile, int first) const {
    if (threads % row_chunks != 0 && threadIdx.x >= row_step * row_chunks)
      return;  // head dim 96: a quarter of them has no share
    const int place = threadIdx.x / row_chunks * k_tile.width + threadIdx.x % row_chunks * chunk;
#pragma unroll
    for (int n = 0; n < rows; n += row_step) {
      const bool inside = static_cast<int>(threadIdx.x) / row_chunks < seq_k - (first + n);
      const std::int64_t down = first + n;
      ptx::cp_async_16(&k_tile.at[n][0] + place, inside ? k + down * from_k.row_stride : k, inside ? 16 : 0);
      ptx::cp_async_16(&v_tile.at[n][0] + place, inside ? v + down * from_v.row_stride : v, inside ? 16 : 0);
    }
  }
};

template <class T, int dim>
struct DeterministicSmem {
  struct Stage {
    Tile<T, tile_keys, dim> k, v;
  };
  Tile<T, query_threads<dim>, dim> q, d_o;
  Stage stage[2];
};

// A warp's rows of Q or dO, as operands A. Up to head dim 64 they are loaded once and kept; beyond it there are no registers
// for them, and each product loads them again.
template <class T, int rows, int dim>
struct RowsOfWarp {
  static constexpr int kept_steps = dim <= 64 ? dim / 16 : 0;
  const Tile<T, rows, dim>& tile;
  int row;
  std::uint32_t kept[kept_steps + 1][query_slices][4];

  __device__ void load_step(std::uint32_t (&a)[query_slices][4], int step) const {
#pragma unroll
    for (int i = 0; i < query_slices; ++i) load_a(a[i], tile, row + 16 * i, 16 * step);
  }
  __device__ void keep() {
#pragma unroll
    for (int step = 0; step < kept_steps; ++step) load_step(kept[step], step);
  }
};

// acc += A Bᵀ, with `frags` · 8 rows of B.
template <class T, int a_rows, int b_rows, int dim, int frags>
__device__ void multiply_rows(float (&acc)[query_slices][frags][4], RowsOfWarp<T, a_rows, dim>& a,
                              const Tile<T, b_rows, dim>& b_tile, int b_row) {
#pragma unroll
  for (int step = 0; step < dim / 16; ++step) {
    auto& of_step = a.kept[min(step, a.kept_steps)];  // the one behind the kept ones is loaded each time
    if (step >= a.kept_steps) a.load_step(of_step, step);
#pragma unroll
    for (int n = 0; n < frags; n += 2) {
      std::uint32_t b[2][2];
      load_b(b, b_tile, b_row + 8 * n, 16 * step);
      mma_slices<T>(acc, n, of_step, b);
    }
  }
}

// softmax_gradient where every row sees every key.
template <int frags>
__device__ void softmax_gradient_of_all(float (&s)[frags][4], float (&dp)[frags][4], const LaneRows& lane, float scale_log2) {
#pragma unroll
  for (int p = 0; p < frags; ++p) {
#pragma unroll
    for (int e = 0; e < 4; ++e) dp[p][e] *= device::exp2_fast(fmaf(s[p][e], scale_log2, -lane.lse2[e / 2]));
  }
}

// A warp, and its part of each product: of 32 queries, with 32 keys from row `part` of a tile on.
template <class T, int dim>
struct QueriesWarp {
  using Scores = float[query_slices][part_rows / 8][4];
  RowsOfWarp<T, query_threads<dim>, dim> q, d_o;
  LaneRows lane[query_slices];
  float acc[query_slices][dim / 8][4] = {};  // dQ, without the scale

  __device__ QueriesWarp(DeterministicSmem<T, dim>& smem, int row) : q{smem.q, row, {}}, d_o{smem.d_o, row, {}} {}
  // S = Q K^T
  __device__ void scores(Scores& s, const Tile<T, tile_keys, dim>& k, int part) { multiply_rows(s, q, k, part); }
  // dP - D = dO V^T - D
  __device__ void dp(Scores& dp, const Tile<T, tile_keys, dim>& v, int part) {
#pragma unroll
    for (int i = 0; i < query_slices; ++i) {
#pragma unroll
      for (int e = 0; e < part_rows / 2; ++e) dp[i][e / 4][e % 4] = lane[i].minus_delta[e % 4 / 2];
    }
    multiply_rows(dp, d_o, v, part);
  }
  // dQ += dS K
  __device__ void add_dq(const Scores& ds, const Tile<T, tile_keys, dim>& k, int part) {
    std::uint32_t operands[part_rows / 16][query_slices][4];
    pack_slices<T>(operands, ds);
    multiply_kept(acc, operands, k, part);
  }
};

// dQ. Grid: x over tiles of queries, y over heads, z over the batch. Blocks of query_threads<dim>.
template <class T, int dim>
__global__ void __launch_bounds__(query_threads<dim>, 256 / query_threads<dim>)
    gradient_of_queries_32(AttentionShape shape,
                           Heads<const T> q,    // [batch, heads, seq_q, dim]
                           Heads<const T> k,    // [batch, kv_heads, seq_k, dim]
                           Heads<const T> v,    // [batch, kv_heads, seq_k, dim]
                           Heads<const T> d_o,  // [batch, heads, seq_q, dim]
                           RowStatistics rows,
                           Heads<T> dq) {  // [batch, heads, seq_q, dim]
  auto& smem = device::shared_storage<DeterministicSmem<T, dim>>();
  constexpr int threads = query_threads<dim>;
  const int warp_row = __shfl_sync(all_lanes, threadIdx.x / 32, 0) * 16 * query_slices;
  // With a causal mask the last tile has the most keys: the first block takes it, and short ones fill the SMs at the end.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * threads, last = min(first + threads, shape.seq_q) - 1;
  const int head = blockIdx.y, batch = blockIdx.z, kv_head = shape.kv_head(head);
  const float scale_log2 = shape.scale * device::log2_e;
  // Tiles of keys that some query sees, and between them those that every query sees whole.
  const int begin = shape.first_key(first) / tile_keys, end = ceil_div(shape.end_key(last), tile_keys);
  const int free_begin = ceil_div(shape.first_key(last), tile_keys), free_end = shape.end_key(first) / tile_keys;

  // ---- prologue: Q, dO and the first tile ----
  const KeyCopies<threads, T, tile_keys, dim> copies(k, v, batch, kv_head, shape.seq_k);
  const auto copy_next = [&](int tile) {
    if (tile < end) copies.copy(smem.stage[tile % 2].k, smem.stage[tile % 2].v, tile * tile_keys);
    ptx::cp_async_commit_group();
  };
  copy_tile<threads>(smem.q, q, batch, head, first, shape.seq_q);
  copy_tile<threads>(smem.d_o, d_o, batch, head, first, shape.seq_q);
  copy_next(begin);
  QueriesWarp<T, dim> warp(smem, warp_row);
#pragma unroll
  for (int i = 0; i < query_slices; ++i) look_up(warp.lane[i], shape, rows, batch, head, first + warp_row + 16 * i);

  // dS = exp2(S - LSE) (dP - D), of keys from `key` on: dP - D becomes dS.
  const auto ds = [&](auto& s, auto& dp, int key, auto is_masked) {
#pragma unroll
    for (int i = 0; i < query_slices; ++i) {
      if constexpr (decltype(is_masked)::value) {
        LaneRows with_keys;  // looked up here only: not held in registers meanwhile
        look_up(with_keys, shape, rows, batch, head, first + warp_row + 16 * i);
        softmax_gradient(s[i], dp[i], with_keys, key, scale_log2);
      } else {
        softmax_gradient_of_all(s[i], dp[i], warp.lane[i], scale_log2);
      }
    }
  };
  const auto attend_tile = [&](int tile, auto is_masked) {
    auto& stage = smem.stage[tile % 2];
#pragma unroll 1
    for (int part = 0; part < tile_keys; part += part_rows) {
      float s[query_slices][part_rows / 8][4] = {}, dp[query_slices][part_rows / 8][4];
      warp.scores(s, stage.k, part);
      if (part == 0) copy_next(tile + 1);
      warp.dp(dp, stage.v, part);
      ds(s, dp, tile * tile_keys + part, is_masked);
      warp.add_dq(dp, stage.k, part);
    }
  };
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the tile, and before the first one Q and dO, have come for everyone; everyone has left the other stage
    if (tile == begin) {
      warp.q.keep();
      warp.d_o.keep();
    }
    if (tile >= free_begin && tile < free_end) {
      attend_tile(tile, std::false_type{});
    } else {
      attend_tile(tile, std::true_type{});
    }
  }

  ptx::cp_async_wait_all();  // of Q and dO, where they see no key
  store_rows(dq, batch, head, first + warp_row, shape.seq_q, shape.scale, warp.acc, rows.flag(shape, batch, kv_head));
}

}  // namespace backward
