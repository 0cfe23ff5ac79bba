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

// A thread's copies of K and V: 16 bytes of each, `pass` rows apart. As in `tuned_64`, their addresses are made once.
template <int threads, class T, int rows, int dim>
struct KeyCopies {
  static constexpr int row_chunks = dim / chunk, pass = std::bit_floor(threads / unsigned{row_chunks});
  static_assert(rows % pass == 0);
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
    if (threads % row_chunks != 0 && threadIdx.x >= pass * row_chunks) return;  // head dim 96: a quarter of them has no share
    const int place = threadIdx.x / row_chunks * k_tile.width + threadIdx.x % row_chunks * chunk;
#pragma unroll
    for (int n = 0; n < rows; n += pass) {
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
  LaneRows lane[query_slices];
#pragma unroll
  for (int i = 0; i < query_slices; ++i) look_up(lane[i], shape, rows, batch, head, first + warp_row + 16 * i);
  RowsOfWarp<T, threads, dim> rows_of_q{smem.q, warp_row, {}}, rows_of_d_o{smem.d_o, warp_row, {}};
  float acc[query_slices][dim / 8][4] = {};

  const auto attend_tile = [&](int tile, auto is_masked) {
    auto& stage = smem.stage[tile % 2];
#pragma unroll 1
    for (int part = 0; part < tile_keys; part += part_rows) {
      float s[query_slices][part_rows / 8][4] = {}, dp[query_slices][part_rows / 8][4];
      std::uint32_t frag[part_rows / 16][query_slices][4];  // of dS
      // S = Q K^T, the copies of the next tile, dP - D = dO V^T - D
      multiply_rows(s, rows_of_q, stage.k, part);
      if (part == 0) copy_next(tile + 1);
#pragma unroll
      for (int i = 0; i < query_slices; ++i) {
#pragma unroll
        for (int e = 0; e < part_rows / 2; ++e) dp[i][e / 4][e % 4] = lane[i].minus_delta[e % 4 / 2];
      }
      multiply_rows(dp, rows_of_d_o, stage.v, part);
      // dS = exp2(S - LSE) (dP - D)
#pragma unroll
      for (int i = 0; i < query_slices; ++i) {
        if constexpr (decltype(is_masked)::value) {
          LaneRows with_keys;  // looked up here only: not held in registers meanwhile
          look_up(with_keys, shape, rows, batch, head, first + warp_row + 16 * i);
          softmax_gradient(s[i], dp[i], with_keys, tile * tile_keys + part, scale_log2);
        } else {
          softmax_gradient_of_all(s[i], dp[i], lane[i], scale_log2);
        }
      }
      // dQ += dS K
      pack_slices<T>(frag, dp);
      multiply_kept(acc, frag, stage.k, part);
    }
  };
#pragma unroll 1
  for (int tile = begin; tile < end; ++tile) {
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the tile, and before the first one Q and dO, have come for everyone; everyone has left the other stage
    if (tile == begin) {
      rows_of_q.keep();
      rows_of_d_o.keep();
    }
    if (tile >= free_begin && tile < free_end) {
      attend_tile(tile, std::false_type{});
    } else {
      attend_tile(tile, std::true_type{});
    }
  }

  ptx::cp_async_wait_all();  // of Q and dO, where they see no key
  float* flag = rows.flag(shape, batch, kv_head);
#pragma unroll
  for (int i = 0; i < query_slices; ++i) {
    store_rows(dq, batch, head, first + warp_row + 16 * i, shape.seq_q, shape.scale, acc[i], flag);
  }
}

}  // namespace backward
