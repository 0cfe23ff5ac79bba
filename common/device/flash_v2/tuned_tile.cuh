// The tile of the rungs from `rows_32` on: its sizes, its shared memory, how a warp multiplies it, and its softmax.
#pragma once

#include "common/device/flash_v2/extremes.cuh"
#include "common/device/ptx/arithmetic.cuh"

namespace flash_v2 {

template <int dim_>
struct TunedTile {
  using Shape = AttentionShape;
  static constexpr int dim = dim_;
  static constexpr int slices = dim <= 128 ? 2 : 1;  // of 16 rows, of a warp
  static constexpr int rows = 16 * slices * tile_threads / 32;
  static constexpr int keys = dim <= 128 ? 64 : 32;
  static constexpr bool keeps_q = dim <= 64;
};

template <int dim>
struct PackedTile : TunedTile<dim> {
  using Shape = device::PackedShape;
};
template <int dim>
struct DroppedTile : TunedTile<dim> {
  using Shape = device::Dropped<AttentionShape>;
};
template <class T, int dim>
struct ScoredTile : TunedTile<dim> {
  using Shape = device::ScoredShape<T>;
};

template <class T, class Tile>
struct TunedSmem {
  struct Stage {
    alignas(16) T k[Tile::keys][Tile::dim];
    alignas(16) T v[Tile::keys][Tile::dim];
  };
  alignas(16) T q[Tile::rows][Tile::dim];
  Stage stage[2];
};

// ---- products ----

// C += A · B for all slices of A and the two fragments of B that one ldmatrix.x4 brings: accumulators n and n + 1.
template <class T, int slices, int frags>
__device__ void mma_slices(float (&acc)[slices][frags][4], int n, const std::uint32_t (&a_frag)[slices][4],
                           const std::uint32_t (&b_frags)[4]) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const std::uint32_t b_frag[2] = {b_frags[2 * side], b_frags[2 * side + 1]};
#pragma unroll
    for (int s = 0; s < slices; ++s) ptx::mma_m16n8k16<T>(acc[s][n + side], a_frag[s], b_frag);
  }
}

// What a warp multiplies: its rows of Q as fragments, kept or loaded anew for each tile; and where a lane finds its rows of Q,
// V (a_from) and K (b_from).
template <class T, class Tile>
struct WarpOperands : LaneRows<T, Tile::dim> {
  static constexpr int dim = Tile::dim, steps = dim / 16;  // of 16 columns
  std::uint32_t q[Tile::keeps_q ? steps : 1][Tile::slices][4];

  __device__ void load_q(const T (&of_q)[Tile::rows][dim], int warp_row, int step) {
#pragma unroll
    for (int s = 0; s < Tile::slices; ++s) {
      ptx::ldmatrix_x4(q[Tile::keeps_q ? step : 0][s],
                       bytes_beyond(&of_q[warp_row + 16 * s][0], columns_beyond<dim>(this->a_from, step)));
    }
  }
  __device__ void keep_q(const T (&of_q)[Tile::rows][dim], int warp_row) {
    if constexpr (Tile::keeps_q) {
#pragma unroll
      for (int step = 0; step < steps; ++step) load_q(of_q, warp_row, step);
    }
  }
};

// S = Q Kᵀ of a tile; between(step) stands behind the mma of 16 columns of Q and K.
template <class T, class Tile, class Between>
__device__ void scores(float (&s)[Tile::slices][Tile::keys / 8][4], WarpOperands<T, Tile>& warp,
                       const T (&q)[Tile::rows][Tile::dim], int warp_row, const T (&k)[Tile::keys][Tile::dim],
                       const Between& between) {
#pragma unroll
  for (int step = 0; step < Tile::dim / 16; ++step) {
    if (!Tile::keeps_q) warp.load_q(q, warp_row, step);
#pragma unroll
    for (int g = 0; g < Tile::keys / 16; ++g) {  // 16 keys
      std::uint32_t k_frag[4];
      ptx::ldmatrix_x4(k_frag, bytes_beyond(&k[16 * g][0], columns_beyond<Tile::dim>(warp.b_from, step)));
      mma_slices<T>(s, 2 * g, warp.q[Tile::keeps_q ? step : 0], k_frag);
    }
    between(step);
  }
}

// ---- the softmax, from `lazy_rescale` on ----

// Of 05_flash_v2/11_lazy_rescale.cuh: m may be below a row's maximum.
constexpr float tolerance = 8.0f;   // base 2: how far a row's maximum may be above m
constexpr float lowest = -FLT_MAX;  // where m begins: beyond fma_limit, so to_base_2 begins at 1

// Of 05_flash_v2/11_lazy_rescale.cuh: moves m of the rows whose maximum is too far above it, and brings l and O's accumulator
// to the new m. All lanes of the warp make the call. to_base_2 is scale_log2 if the products may stay unrounded, or 1 if they
// are rounded here.
// [doc: lazy_rescale]
template <int slices, int frags, int columns>
__device__ void lazy_rescale(float (&s)[slices][frags][4], float scale_log2, float& to_base_2,
                             SoftmaxState (&states)[slices][2], float (&acc)[slices][columns][4]) {
  float lane_max[slices][2];
  bool too_far = to_base_2 != scale_log2;  // then the products of every tile must be rounded
#pragma unroll
  for (int i = 0; i < slices; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      lane_max[i][r] = fmaxf(s[i][0][2 * r], s[i][0][2 * r + 1]);
#pragma unroll
      for (int n = 1; n < frags; ++n) lane_max[i][r] = fmaxf(lane_max[i][r], fmaxf(s[i][n][2 * r], s[i][n][2 * r + 1]));
      too_far |= lane_max[i][r] * scale_log2 > states[i][r].m + tolerance;
    }
  }
  if (!__any_sync(all_lanes, too_far)) return;
  // [/doc: lazy_rescale]
  to_base_2 = scale_log2;
#pragma unroll
  for (int i = 0; i < slices; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float old = states[i][r].m, row_max = quad_maximum(lane_max[i][r]) * scale_log2;
      const float m = row_max > old + tolerance ? row_max : old;  // the row's own decision
      const float factor = device::exp2_fast(old - m);
      states[i][r] = {m, states[i][r].l * factor};
      if (fabsf(m) > fma_limit && m < INFINITY) to_base_2 = 1.0f;
#pragma unroll
      for (int n = 0; n < columns; ++n) {
        acc[i][n][2 * r] *= factor;
        acc[i][n][2 * r + 1] *= factor;
      }
    }
  }
  if (to_base_2 == scale_log2) return;
#pragma unroll
  for (int i = 0; i < slices; ++i) {
    round_products(s[i], 0, scale_log2);
    round_products(s[i], 1, scale_log2);
  }
}

// Of 05_flash_v2/11_lazy_rescale.cuh: P = exp2(S − m) for two neighbouring scores of a row: they become one register of A's
// fragment, of 16 keys g. There are 4 · slices such pairs, counted by `pair`.
template <class T, int slices, int frags>
__device__ void exponentials(std::uint32_t (&p_frag)[slices][4], SoftmaxState (&states)[slices][2],
                             const float (&s)[slices][frags][4], float to_base_2, int g, int pair) {
  const int slice = pair / 4, side = pair / 2 % 2, r = pair % 2;
  const float(&x)[4] = s[slice][2 * g + side];
  const float first = device::exp2_fast(fmaf(x[2 * r], to_base_2, -states[slice][r].m));
  const float second = device::exp2_fast(fmaf(x[2 * r + 1], to_base_2, -states[slice][r].m));
  states[slice][r].l += first;
  states[slice][r].l += second;
  p_frag[slice][2 * side + r] = packed<T>(first, second);
}

// ---- copies and exponentials between the mma: `tuned` ----

// Of 05_flash_v2/12_tuned.cuh: how many of a tile's copies are issued before this step of 16 columns of Q Kᵀ, all half way.
template <class Tile>
__device__ constexpr int copies_before(int step) {
  constexpr int all = Tile::keys * Tile::dim / chunk / tile_threads;
  const int due = all * 2 * step / (Tile::dim / 16);
  return due < all ? due : all;
}

// Of 05_flash_v2/12_tuned.cuh: O += P V of a tile, with P = exp2(S − m): of the first 16 keys before all mma, of the next 16
// between the mma of those before. drop(p_frag, g) takes dropped pairs out of P's fragment of 16 keys g.
// [doc: tuned_values]
template <class T, class Tile, class Drop>
__device__ void accumulate(float (&acc)[Tile::slices][Tile::dim / 8][4], SoftmaxState (&states)[Tile::slices][2],
                           const float (&s)[Tile::slices][Tile::keys / 8][4], float to_base_2,
                           const WarpOperands<T, Tile>& warp, const T (&v)[Tile::keys][Tile::dim], const Drop& drop) {
  constexpr int pairs = 4 * Tile::slices, groups = Tile::keys / 16, steps = Tile::dim / 16;
  std::uint32_t p_frag[2][Tile::slices][4];  // of these 16 keys, and of the next
#pragma unroll
  for (int i = 0; i < pairs; ++i) exponentials<T>(p_frag[0], states, s, to_base_2, 0, i);
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    drop(p_frag[g % 2], g);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      std::uint32_t v_frag[4];
      ptx::ldmatrix_x4_trans(v_frag, bytes_beyond(&v[16 * g][0], columns_beyond<Tile::dim>(warp.a_from, step)));
      if (g + 1 < groups) {
#pragma unroll
        for (int i = pairs * step / steps; i < pairs * (step + 1) / steps; ++i) {
          exponentials<T>(p_frag[(g + 1) % 2], states, s, to_base_2, g + 1, i);
        }
      }
      mma_slices<T>(acc, 2 * step, p_frag[g % 2], v_frag);
    }
  }
}
// [/doc: tuned_values]

// ---- masks and the epilogue ----

// mask_scores for all slices of a warp, whose first query is `row`.
template <int slices, int frags, class Shape>
__device__ void mask_slices(float (&s)[slices][frags][4], const Shape& shape, int row, int key) {
#pragma unroll
  for (int i = 0; i < slices; ++i) {
    RowKeys rows[2];
    visible_keys(shape, row + 16 * i, rows);
    mask_scores(s[i], rows, key);
  }
}

// finish_rows for all slices of a warp, whose first query is `row`.
template <class T, int slices, int frags, class Shape>
__device__ void finish_slices(const float (&acc)[slices][frags][4], const SoftmaxState (&states)[slices][2], const Shape& shape,
                              const QueryTile& tile, int row, const Heads<T>& o, float* lse) {
#pragma unroll
  for (int s = 0; s < slices; ++s) finish_rows<T, true>(acc[s], states[s], shape, tile, row + 16 * s, o, lse);
}

}  // namespace flash_v2
