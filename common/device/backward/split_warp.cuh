// Step 06: the warps of `column_split`, `roles` and `tuned_128`, and their products. A block has 128 keys and eight warps. Two
// warps have the same keys: each has half of the queries of Sᵀ and dPᵀ, and half of the columns of dV or dK. P and dS of the
// other queries come from shared memory.
#pragma once

#include "common/device/backward/query_tiles.cuh"
#include "common/device/backward/slices.cuh"
#include "common/device/ptx/barrier.cuh"

namespace backward {

constexpr int split_threads = 256;
constexpr int split_keys = 128;    // of a block
constexpr int split_queries = 32;  // of Sᵀ or dPᵀ, of a warp
constexpr int split_steps = split_queries / 16;

// Of 06_backward/10_column_split.cuh: all of a block's.
template <class T, int dim, int q_tiles = 2, int ds_tiles = 1>
struct SplitSmem {
  Tile<T, split_keys, dim> k;
  Tile<T, split_keys, dim> v;
  Tile<T, tile_rows, dim> q[q_tiles];
  Tile<T, tile_rows, dim> d_o[2];
  Tile<T, split_keys, tile_rows> p;
  Tile<T, split_keys, tile_rows> ds[ds_tiles];
  alignas(16) float lse2[2][tile_rows];
  alignas(16) float minus_delta[2][tile_rows];
};

template <int slices>
using SplitScores = float[slices][split_queries / 8][4];  // Sᵀ, P, dPᵀ or dS of a warp
template <int slices>
using SplitOperands = std::uint32_t[split_steps][slices][4];  // P or dS, rounded to 16 bits

// `slices` of 16 keys each.
template <class T, int dim, int slices, class Smem>
struct SplitWarp {
  Smem& smem;
  int key, query, column;  // the warp's first, of Sᵀ or dPᵀ, and of dV or dK
  __device__ SplitWarp(Smem& shared, int first_key, int side)
      : smem(shared), key(first_key), query(side * split_queries), column(side * (dim / 2)) {}

  // S^T = K Q^T, and copy(step) between the mma
  template <class Copy>
  __device__ void scores(SplitScores<slices>& s, const Tile<T, tile_rows, dim>& q, const Copy& copy) const {
    multiply_rows(s, smem.k, key, q, query, nullptr, copy);
  }
  // P = exp2(S - LSE), in place of S and packed. mask(p, j) makes 0 of pairs that are masked, in accumulators of 16 keys; j:
  // the lane's first key.
  template <class Mask>
  __device__ void probabilities(SplitOperands<slices>& p, SplitScores<slices>& s, int stage, float scale_log2, int first_key,
                                const Mask& mask) const {
#pragma unroll
    for (int n = 0; n < slices; ++n) {
      exponentiate(s[n], &smem.lse2[stage][query], scale_log2);
      mask(s[n], first_key + key + 16 * n + static_cast<int>(threadIdx.x % 32) / 4);
    }
    pack_slices<T>(p, s);
  }
  // dP^T - D = V dO^T - D, and copy(step) between the mma
  template <class Copy>
  __device__ void dp(SplitScores<slices>& to, int stage, const Copy& copy) const {
    multiply_rows(to, smem.v, key, smem.d_o[stage], query, smem.minus_delta[stage], copy);
  }
  // acc += Pᵀ dO or dSᵀ Q, of the warp's columns: the warp's own queries, whose P or dS is in its registers …
  __device__ void add_own(float (&acc)[slices][dim / 16][4], const SplitOperands<slices>& own,
                          const Tile<T, tile_rows, dim>& queries) const {
    multiply_kept(acc, own, queries, query, column);
  }
  // … and the other queries, whose P or dS comes from shared memory. `negative`: it may be −P, which counts as 0.
  template <bool negative = false>
  __device__ void add_other(float (&acc)[slices][dim / 16][4], const Tile<T, split_keys, tile_rows>& pairs,
                            const Tile<T, tile_rows, dim>& queries) const {
    const int other = query ^ split_queries;
#pragma unroll
    for (int step = 0; step < split_steps; ++step) {
      std::uint32_t a[1][slices][4];
#pragma unroll
      for (int s = 0; s < slices; ++s) load_a(a[0][s], pairs, key + 16 * s, other + 16 * step);
      if constexpr (negative) keep_positive<T>(a);
      multiply_kept(acc, a, queries, other + 16 * step, column);
    }
  }
  // dQ += dS K, of 8 · slices queries × dim / 2, to the sums of the tile whose dS this is.
  __device__ void add_dq(const Tile<T, split_keys, tile_rows>& ds_tile, float* dq_sums) const {
    float acc[slices / 2][dim / 16][4] = {};
    multiply_tile_columns(acc, ds_tile, key / 2, smem.k, column);
    add_slices<true, dim>(dq_sums, key / 2, column, acc);
  }
  // To the warp's part of dV or dK.
  __device__ void store(const Heads<T>& to, int batch, int head, int first_key, int end, float factor,
                        const float (&acc)[slices][dim / 16][4], float* flag) const {
    Heads<T> columns = to;
    columns.data += column;
    store_rows(columns, batch, head, first_key + key, end, factor, acc, flag);
  }
};

// Of 06_backward/10_column_split.cuh: a warp. dV and dK of 32 keys.
template <class T, int dim>
struct ColumnsWarp : SplitWarp<T, dim, 2, SplitSmem<T, dim>> {
  using Base = SplitWarp<T, dim, 2, SplitSmem<T, dim>>;
  using Base::smem;
  float acc_dv[2][dim / 16][4] = {}, acc_dk[2][dim / 16][4] = {};
  __device__ ColumnsWarp(SplitSmem<T, dim>& shared, int warp) : Base(shared, warp / 2 * 32, warp % 2) {}
  // dS = P (dP - D)
  __device__ void ds(SplitOperands<2>& to, SplitScores<2>& dp_scores, const SplitScores<2>& p) const {
    times(dp_scores, p);
    pack_slices<T>(to, dp_scores);
  }
  // dV += P^T dO
  __device__ void add_dv(const SplitOperands<2>& p, const Tile<T, tile_rows, dim>& d_o) {
    this->add_own(acc_dv, p, d_o);
    this->add_other(acc_dv, smem.p, d_o);
  }
  // dK += dS^T Q
  __device__ void add_dk(const SplitOperands<2>& own, const Tile<T, tile_rows, dim>& q) {
    this->add_own(acc_dk, own, q);
    this->add_other(acc_dk, smem.ds[0], q);
  }
};

// ---- the roles of `roles` and `tuned_128` ----

// Both have 64 keys, half of the queries of a tile, and half of the columns of dV or dK.

constexpr int role_slices = 4;  // of 16 keys, of a warp
using RoleScores = SplitScores<role_slices>;
using RoleOperands = SplitOperands<role_slices>;

// A warp of either role, and its part of each product.
template <class T, int dim, class Smem>
struct RoleWarp : SplitWarp<T, dim, role_slices, Smem> {
  using Base = SplitWarp<T, dim, role_slices, Smem>;
  using Base::key, Base::query, Base::smem;
  bool makes_p;                              // a P-warp
  float acc[role_slices][dim / 16][4] = {};  // dV or dK: 64 keys × dim / 2
  __device__ RoleWarp(Smem& shared, int warp) : Base(shared, warp % 4 / 2 * 64, warp % 2), makes_p(warp < 4) {}
  // dV += P^T dO: first the warp's own queries, until the other P-warps' P is there, too.
  __device__ void add_dv(const RoleOperands& p, const Tile<T, tile_rows, dim>& d_o) {
    this->add_own(acc, p, d_o);
    ptx::bar_sync(3, split_threads / 2);  // P of the other queries is there
    this->add_other(acc, smem.p, d_o);
  }
  // dS = P (dP - D), P from shared memory, where a P-warp put it. of_pairs makes dS of two pairs, from query 8 n on.
  template <class OfPairs>
  __device__ void ds(RoleOperands& to, const RoleScores& dp_scores, const OfPairs& of_pairs) const {
#pragma unroll
    for (int step = 0; step < split_steps; ++step) {
#pragma unroll
      for (int s = 0; s < role_slices; ++s) {
        std::uint32_t p[4];
        load_a(p, smem.p, key + 16 * s, query + 16 * step);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const int n = 2 * step + w / 2;
          to[step][s][w] = of_pairs(unpacked<T>(p[w]), dp_scores[s][n][w % 2 * 2], dp_scores[s][n][w % 2 * 2 + 1], n);
        }
      }
    }
  }
  __device__ void ds(RoleOperands& to, const RoleScores& dp_scores) const {
    ds(to, dp_scores, [](float2 p, float even, float odd, int) { return packed<T>(p.x * even, p.y * odd); });
  }
  // dK += dS^T Q
  __device__ void add_dk(const RoleOperands& own, const Tile<T, split_keys, tile_rows>& ds_tile,
                         const Tile<T, tile_rows, dim>& q) {
    this->add_own(acc, own, q);
    this->add_other(acc, ds_tile, q);
  }
};

// Of 06_backward/12_tuned_128.cuh: dK and dQ of a tile are made one tile late, and need its Q and its dS until then.
template <class T, int dim>
using RolesSmem = SplitSmem<T, dim, 3, 2>;

// Of 06_backward/12_tuned_128.cuh: which buffer this tile of queries has: of three for Q; of two for dO, the statistics and dS.
struct RoleStage {
  int q = 0, d_o = 0;
  __device__ int next_q() const { return q == 2 ? 0 : q + 1; }
  __device__ int next_d_o() const { return d_o ^ 1; }
  __device__ void advance() {
    q = next_q();
    d_o = next_d_o();
  }
};

// The same warp, as `tuned_128` has it: with dropout. −P is a pair that is left out, and dP begins at 0 instead of −D.
template <class T, int dim, class Shape>
struct TunedRoleWarp : RoleWarp<T, dim, RolesSmem<T, dim>> {
  using Base = RoleWarp<T, dim, RolesSmem<T, dim>>;
  using Base::acc, Base::key, Base::query, Base::smem;
  static constexpr bool drops = device::drops<Shape>;
  using Base::Base;
  __device__ void add_dv(RoleOperands& p, const Tile<T, tile_rows, dim>& d_o) {
    if constexpr (drops) keep_positive<T>(p);
    this->add_own(acc, p, d_o);
    ptx::bar_sync(3, split_threads / 2);  // P of the other queries is there
    this->template add_other<drops>(acc, smem.p, d_o);
  }
  template <class Copy>
  __device__ void dp(RoleScores& to, int stage, const Copy& copy) const {
    if constexpr (drops) zero(to);
    multiply_rows(to, smem.v, key, smem.d_o[stage], query, drops ? nullptr : smem.minus_delta[stage], copy);
  }
  __device__ void ds(RoleOperands& to, const RoleScores& dp_scores, int stage, const Shape& shape) const {
    if constexpr (drops) {
      Base::ds(to, dp_scores, [&](float2 p, float even, float odd, int n) {
        const float* minus_delta = &smem.minus_delta[stage][query + 8 * n];
        const float2 of_rows = load(reinterpret_cast<const float2*>(&minus_delta[threadIdx.x % 4 * 2]));
        const float factor = shape.dropout.factor();
        return packed<T>(device::gradient_with_dropout(p.x, even, factor, of_rows.x),
                         device::gradient_with_dropout(p.y, odd, factor, of_rows.y));
      });
    } else {
      Base::ds(to, dp_scores);
    }
  }
};

}  // namespace backward
