// Step 06: the warps of `tuned_128`. Both roles have 64 keys, half of the queries of a tile, and half of the columns of dV or
// dK.
#pragma once

#include "common/device/backward/dropped.cuh"
#include "common/device/backward/stage_copies.cuh"

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

template <class T, int dim>
struct RoleWarp {
  int key, query, column;                    // the warp's first, of Sᵀ or dPᵀ, and of dV or dK
  float acc[role_slices][dim / 16][4] = {};  // dV or dK: 64 keys × dim / 2

  __device__ explicit RoleWarp(int warp)
      : key(warp % 4 / 2 * 64), query(warp % 2 * role_queries), column(warp % 2 * (dim / 2)) {}

  // dV += Pᵀ dO or dK += dSᵀ Q, of the warp's own queries, whose P or dS is in its registers.
  __device__ void add_own(const std::uint32_t (&own)[role_steps][role_slices][4], const Tile<T, tile_rows, dim>& queries) {
    multiply_kept(acc, own, queries, query, column);
  }
  // The same of the other queries, whose P or dS comes from shared memory. `drops`: it may be −P, which counts as 0.
  template <bool drops = false>
  __device__ void add_other(const Tile<T, role_keys, tile_rows>& pairs, const Tile<T, tile_rows, dim>& queries) {
    const int other = query ^ role_queries;
#pragma unroll
    for (int step = 0; step < role_steps; ++step) {
      std::uint32_t a[1][role_slices][4];
#pragma unroll
      for (int s = 0; s < role_slices; ++s) load_a(a[0][s], pairs, key + 16 * s, other + 16 * step);
      if constexpr (drops) keep_positive<T>(a);
      multiply_kept(acc, a, queries, other + 16 * step, column);
    }
  }
  // dS = P ∘ (dP − D) as operands; P from shared memory, where another warp put it.
  __device__ void times_stored(std::uint32_t (&ds)[role_steps][role_slices][4],
                               const float (&dp)[role_slices][role_queries / 8][4],
                               const Tile<T, role_keys, tile_rows>& p) const {
#pragma unroll
    for (int step = 0; step < role_steps; ++step) {
#pragma unroll
      for (int s = 0; s < role_slices; ++s) {
        std::uint32_t pairs[4];
        load_a(pairs, p, key + 16 * s, query + 16 * step);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const float2 pair = unpacked<T>(pairs[w]);
          const float(&of)[4] = dp[s][2 * step + w / 2];
          ds[step][s][w] = packed<T>(pair.x * of[w % 2 * 2], pair.y * of[w % 2 * 2 + 1]);
        }
      }
    }
  }
  // The same with dropout, from dO Vᵀ: −P is a pair that is left out.
  __device__ void times_stored(std::uint32_t (&ds)[role_steps][role_slices][4],
                               const float (&products)[role_slices][role_queries / 8][4],
                               const Tile<T, role_keys, tile_rows>& p, const float* minus_delta, float factor) const {
#pragma unroll
    for (int step = 0; step < role_steps; ++step) {
#pragma unroll
      for (int s = 0; s < role_slices; ++s) {
        std::uint32_t pairs[4];
        load_a(pairs, p, key + 16 * s, query + 16 * step);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const float2 pair = unpacked<T>(pairs[w]);
          const int n = 2 * step + w / 2;
          const float2 of_rows = load(reinterpret_cast<const float2*>(&minus_delta[query + 8 * n + threadIdx.x % 4 * 2]));
          const float(&of)[4] = products[s][n];
          ds[step][s][w] = packed<T>(device::gradient_with_dropout(pair.x, of[w % 2 * 2], factor, of_rows.x),
                                     device::gradient_with_dropout(pair.y, of[w % 2 * 2 + 1], factor, of_rows.y));
        }
      }
    }
  }
  // To the warp's part of dV or dK.
  __device__ void store(const Heads<T>& to, int batch, int head, int first_key, int end, float factor, float* flag) const {
    Heads<T> columns = to;
    columns.data += column;
#pragma unroll
    for (int s = 0; s < role_slices; ++s) store_rows(columns, batch, head, first_key + key + 16 * s, end, factor, acc[s], flag);
  }
};

}  // namespace backward
