// Step 06: the warps of `roles` and `tuned_128`. Both roles have 64 keys, half of the queries of a tile, and half of the
// columns of dV or dK.
#pragma once

#include "common/device/backward/split_warp.cuh"
#include "common/device/ptx/barrier.cuh"

namespace backward {

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
