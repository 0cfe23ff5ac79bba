// Step 06: the warps of `tuned_128`. Both roles have 64 keys, half of the queries of a tile, and half of the columns of dV or
// dK.
#pragma once

#include "common/device/backward/dropped.cuh"
#include "common/device/backward/stages.cuh"
#include "common/device/ptx/barrier.cuh"

namespace backward {

constexpr int role_threads = 256;
constexpr int role_keys = 128;    // of a block
constexpr int role_slices = 4;    // of 16 keys, of a warp
constexpr int role_queries = 32;  // of Sᵀ or dPᵀ, of a warp
constexpr int role_steps = role_queries / 16;

template <class T, int dim>
struct RolesSmem {
  Tile<T, role_keys, dim> k;
  Tile<T, role_keys, dim> v;
  Tile<T, tile_rows, dim> q[3];
  Tile<T, tile_rows, dim> d_o[2];
  Tile<T, role_keys, tile_rows> p;
  Tile<T, role_keys, tile_rows> ds[2];
  alignas(16) float lse2[2][tile_rows];
  alignas(16) float minus_delta[2][tile_rows];
};

using RoleScores = float[role_slices][role_queries / 8][4];      // Sᵀ or dPᵀ of a warp
using RoleOperands = std::uint32_t[role_steps][role_slices][4];  // P or dS, rounded to 16 bits

// Which buffer this tile of queries has: of three for Q; of two for dO, the statistics and dS.
struct RoleStage {
  int q = 0, d_o = 0;
  __device__ int next_q() const { return q == 2 ? 0 : q + 1; }
  __device__ int next_d_o() const { return d_o ^ 1; }
  __device__ void advance() {
    q = next_q();
    d_o = next_d_o();
  }
};

// A warp of either role, and its part of each product.
template <class T, int dim, class Shape>
struct RoleWarp {
  static constexpr bool drops = device::drops<Shape>;
  RolesSmem<T, dim>& smem;
  bool makes_p;                              // a P-warp
  int key, query, column;                    // the warp's first, of Sᵀ or dPᵀ, and of dV or dK
  float acc[role_slices][dim / 16][4] = {};  // dV or dK: 64 keys × dim / 2

  __device__ RoleWarp(RolesSmem<T, dim>& shared, int warp)
      : smem(shared), makes_p(warp < 4), key(warp % 4 / 2 * 64), query(warp % 2 * role_queries), column(warp % 2 * (dim / 2)) {}

  // ---- P-warps ----

  // S^T = K Q^T, and copy(step) between the mma
  template <class Copy>
  __device__ void scores(RoleScores& s, const Tile<T, tile_rows, dim>& q, const Copy& copy) const {
    multiply_rows(s, smem.k, key, q, query, nullptr, copy);
  }
  // P = exp2(S - LSE). mask(p, j) makes 0 of pairs that are masked, in accumulators of 16 keys; j: the lane's first key.
  template <class Mask>
  __device__ void probabilities(RoleOperands& p, RoleScores& s, int stage, float scale_log2, int first_key,
                                const Mask& mask) const {
#pragma unroll
    for (int n = 0; n < role_slices; ++n) {
      exponentiate(s[n], &smem.lse2[stage][query], scale_log2);
      mask(s[n], first_key + key + 16 * n + static_cast<int>(threadIdx.x % 32) / 4);
    }
    pack_slices<T>(p, s);
  }
  // dV += P^T dO: first the warp's own queries, until the other P-warps' P is there, too.
  __device__ void add_dv(RoleOperands& p, const Tile<T, tile_rows, dim>& d_o) {
    if constexpr (drops) keep_positive<T>(p);
    add_own(p, d_o);
    ptx::bar_sync(3, role_threads / 2);  // P of the other queries is there
    add_other<drops>(smem.p, d_o);
  }

  // ---- S-warps ----

  // dP^T - D = V dO^T - D, and copy(step) between the mma; with dropout dP^T
  template <class Copy>
  __device__ void dp(RoleScores& dp, int stage, const Copy& copy) const {
    if constexpr (drops) zero(dp);
    multiply_rows(dp, smem.v, key, smem.d_o[stage], query, drops ? nullptr : smem.minus_delta[stage], copy);
  }
  // dS = P (dP - D), P from shared memory, where a P-warp put it.
  __device__ void ds(RoleOperands& ds, const RoleScores& dp, int stage, const Shape& shape) const {
#pragma unroll
    for (int step = 0; step < role_steps; ++step) {
#pragma unroll
      for (int s = 0; s < role_slices; ++s) {
        std::uint32_t p[4];
        load_a(p, smem.p, key + 16 * s, query + 16 * step);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const int n = 2 * step + w / 2;
          const float* minus_delta = &smem.minus_delta[stage][query + 8 * n];
          ds[step][s][w] = ds_pair(p[w], dp[s][n][w % 2 * 2], dp[s][n][w % 2 * 2 + 1], minus_delta, shape);
        }
      }
    }
  }
  // dK += dS^T Q
  __device__ void add_dk(const RoleOperands& ds, int stage, const Tile<T, tile_rows, dim>& q) {
    add_own(ds, q);
    add_other(smem.ds[stage], q);
  }
  // dQ += dS K, of 32 queries × dim / 2, to the sums of the tile whose dS this is.
  __device__ void add_dq(int stage, float* dq_sums) const {
    const int row = key / 2;
    float acc_dq[2][dim / 16][4] = {};
    multiply_tile_columns(acc_dq, smem.ds[stage], row, smem.k, column);
    add_slices<true, dim>(dq_sums, row, column, acc_dq);
  }

  // To the warp's part of dV or dK.
  __device__ void store(const Heads<T>& to, int batch, int head, int first_key, int end, float factor, float* flag) const {
    Heads<T> columns = to;
    columns.data += column;
    store_rows(columns, batch, head, first_key + key, end, factor, acc, flag);
  }

 private:
  // Pᵀ dO or dSᵀ Q of the warp's own queries, whose P or dS is in its registers.
  __device__ void add_own(const RoleOperands& own, const Tile<T, tile_rows, dim>& queries) {
    multiply_kept(acc, own, queries, query, column);
  }
  // The same of the other queries, whose P or dS comes from shared memory. `negative`: it may be −P, which counts as 0.
  template <bool negative = false>
  __device__ void add_other(const Tile<T, role_keys, tile_rows>& pairs, const Tile<T, tile_rows, dim>& queries) {
    const int other = query ^ role_queries;
#pragma unroll
    for (int step = 0; step < role_steps; ++step) {
      std::uint32_t a[1][role_slices][4];
#pragma unroll
      for (int s = 0; s < role_slices; ++s) load_a(a[0][s], pairs, key + 16 * s, other + 16 * step);
      if constexpr (negative) keep_positive<T>(a);
      multiply_kept(acc, a, queries, other + 16 * step, column);
    }
  }
  // dS of two pairs. With dropout −P is a pair that is left out, and dp has no D yet.
  __device__ std::uint32_t ds_pair(std::uint32_t p_pair, float dp_even, float dp_odd, const float* minus_delta,
                                   const Shape& shape) const {
    const float2 p = unpacked<T>(p_pair);
    if constexpr (drops) {
      const float2 of_rows = load(reinterpret_cast<const float2*>(&minus_delta[threadIdx.x % 4 * 2]));
      const float factor = shape.dropout.factor();
      return packed<T>(device::gradient_with_dropout(p.x, dp_even, factor, of_rows.x),
                       device::gradient_with_dropout(p.y, dp_odd, factor, of_rows.y));
    } else {
      return packed<T>(p.x * dp_even, p.y * dp_odd);
    }
  }
};

}  // namespace backward
