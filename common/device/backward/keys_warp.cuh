// Step 06: the warps of `keys_32` and `tuned_64`, and their part of each product. A block has 128 keys, a warp 32 of them, two
// slices of 16. It makes Sᵀ, dPᵀ, dV and dK of its keys, for 32 queries at a time, and dQ of 32 queries × dim / 2.
#pragma once

#include "common/device/backward/query_tiles.cuh"
#include "common/device/backward/slices.cuh"

namespace backward {

// Of 06_backward/08_keys_32.cuh: sizes.
constexpr int key_slices = 2;                                       // of 16 keys, of a warp
constexpr int wide_keys = 16 * key_slices * tile_threads / 32;      // of a block: 128
using KeysScores = float[key_slices][part_rows / 8][4];             // Sᵀ, P, dPᵀ or dS of a warp
using KeysOperands = std::uint32_t[part_rows / 16][key_slices][4];  // P or dS, rounded to 16 bits

// Of 06_backward/08_keys_32.cuh: all of a block's.
template <class T, int dim>
struct Keys32Smem {
  Tile<T, wide_keys, dim> k;
  Tile<T, wide_keys, dim> v;
  Stage<T, tile_rows, dim> stage[2];
  Tile<T, wide_keys, tile_rows> ds[2];
};

// Of 06_backward/08_keys_32.cuh: a warp. `part`: the first of its 32 queries of a tile.
template <class T, int dim, bool vector>
struct KeysWarp {
  Keys32Smem<T, dim>& smem;
  int warp, key;  // the warp's number, and the first of its keys in the block
  float acc_dv[key_slices][dim / 8][4] = {}, acc_dk[key_slices][dim / 8][4] = {};
  __device__ explicit KeysWarp(Keys32Smem<T, dim>& shared)
      : smem(shared), warp(__shfl_sync(all_lanes, threadIdx.x / 32, 0)), key(16 * key_slices * warp) {}  // uniform
  // P = exp2(S - LSE). mask(p, j) makes 0 of pairs that are masked, in accumulators of 16 keys; j: the lane's first key.
  template <class Mask>
  __device__ void probabilities(KeysScores& s, const float* lse2, float scale_log2, int first_key, const Mask& mask) const {
#pragma unroll
    for (int n = 0; n < key_slices; ++n) {
      exponentiate(s[n], lse2, scale_log2);
      mask(s[n], first_key + key + 16 * n + static_cast<int>(threadIdx.x % 32) / 4);
    }
  }
  // dQ += dS K of the tile whose dS lies in this buffer, to its sums.
  __device__ void add_dq(int buffer, float* dq_sums) const {
    const int row = warp / 2 * 32, column = warp % 2 * (dim / 2);
    float acc[key_slices][dim / 16][4] = {};
    multiply_tile_columns(acc, smem.ds[buffer], row, smem.k, column);
    add_slices<vector, dim>(dq_sums, row, column, acc);
  }
};

// Of 06_backward/09_tuned_64.cuh: the same warp, with copies between its mma, dP from −D on, and dropout.
template <class T, int dim, class Shape>
struct TunedKeysWarp : KeysWarp<T, dim, true> {
  using Base = KeysWarp<T, dim, true>;
  using Base::acc_dk, Base::acc_dv, Base::key, Base::smem;
  static constexpr bool drops = device::drops<Shape>;
  using Base::Base;
  // S^T = K Q^T, and copy(step) between the mma
  template <class Copy>
  __device__ void scores(KeysScores& s, const Tile<T, tile_rows, dim>& q, int part, const Copy& copy) const {
    multiply_rows(s, smem.k, key, q, part, nullptr, copy);
  }
  // dV += P^T dO
  __device__ void add_dv(const KeysScores& p, const Tile<T, tile_rows, dim>& d_o, int part) {
    KeysOperands operands;
    pack_slices<T>(operands, p);
    if constexpr (drops) keep_positive<T>(operands);
    multiply_kept(acc_dv, operands, d_o, part);
  }
  // dP^T - D = V dO^T - D; with dropout dP^T
  __device__ void dp(KeysScores& acc_dp, const Tile<T, tile_rows, dim>& d_o, int part, const float* minus_delta) const {
    if constexpr (drops) zero(acc_dp);
    multiply_rows(acc_dp, smem.v, key, d_o, part, drops ? nullptr : minus_delta, [](int) {});
  }
  // dS = P (dP - D)
  __device__ void ds(KeysOperands& ds_frag, KeysScores& acc_dp, const KeysScores& p, const Shape& shape,
                     const float* minus_delta) const {
    if constexpr (drops) {
      times_with_dropout(acc_dp, p, minus_delta, shape.dropout.factor());
    } else {
      times(acc_dp, p);
    }
    pack_slices<T>(ds_frag, acc_dp);
  }
  // dK += dS^T Q
  __device__ void add_dk(const KeysOperands& ds_frag, const Tile<T, tile_rows, dim>& q, int part) {
    multiply_kept(acc_dk, ds_frag, q, part);
  }
};

}  // namespace backward
