// Step 07: step 05's tuned loop as three parts, so that each kernel here says only which tiles of keys it visits:
//
//   Attend a(…)                     the block's queries and what a lane knows of its copies; copies nothing
//   a.begin(…, first, …)            starts to copy Q and the first tile
//   a.attend(j, after_j, more, …)   multiplies tile j while tile after_j is copied, if there are more; masked: std::true_type
//                                   for a partial tile
//   a.finish(…) or a.leave(…)       O and LSE, or the same of a part of each row, which a later launch merges
//
// begin and attend take one more argument, with_copies(stage): what else is copied then, as the index for a.tile_after().
#pragma once

#include "steps/07_block_sparse/block.cuh"

namespace block_sparse {

__device__ inline void nothing_else(int) {}

// by_token: partial tiles may be cut by a head that streams by token, too.
template <class T, class Tile, bool by_token>
struct Attend {
  using Shape = typename Tile::Shape;
  static constexpr int dim = Tile::dim, keys = Tile::keys, slices = Tile::slices;

  const Shape& shape;
  SparseSmem<T, Tile>& smem;
  const float scale_log2;
  const int warp_row;
  NextTile<T, dim, keys> next_tile;
  WarpOperands<T, Tile> warp;
  float acc[slices][dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[slices][2];
  NanGuard<tile_threads> guard;
  float to_base_2 = 1;
  int stage_index = 0;  // of this tile: its lowest bit. Without `& 1` nvcc copies accumulators in each round at dim 128
  bool q_kept = false;  // has warp.keep_q been called?

  __device__ Attend(const Shape& shape_, const Tokens& tokens, const QueryTile& tile, const Heads<const T>& k,
                    const Heads<const T>& v)
      : shape(shape_),
        smem(device::shared_storage<SparseSmem<T, Tile>>()),
        scale_log2(magnitude(shape_.scale)),
        warp_row(__shfl_sync(all_lanes, threadIdx.x / 32, 0) * 16 * slices),
        next_tile(k, v, tile, 0) {
    if (threadIdx.x == 0) store_facts(smem.facts, tile, tokens);
#pragma unroll
    for (int s = 0; s < slices; ++s) states[s][0] = states[s][1] = {lowest, 0.0f};
  }

  // Copies Q and the first tile of keys, which may be the last of all keys.
  template <class WithCopies>
  __device__ void begin(const QueryTile& tile, const Heads<const T>& q, const Heads<const T>& k, const Heads<const T>& v,
                        int first, const WithCopies& with_copies) {
    copy_rows(smem.q, q, tile.batch, tile.head, tile.first, shape.seq_q);
    copy_rows(smem.stage[0].k, k, tile.batch, tile.kv_head, first * keys, shape.seq_k);
    copy_rows(smem.stage[0].v, v, tile.batch, tile.kv_head, first * keys, shape.seq_k);
    with_copies(0);
    ptx::cp_async_commit_group();
    if (shape.scale <= 0.0f) {
      ptx::cp_async_wait_group<0>();  // this thread's part of Q has come: it multiplies only that
      apply_sign<T, tile_threads>(smem.q, shape.scale);
    }
    next_tile.move(first);
  }

  // This tile, while the next one is copied, if there are more.
  template <class Masked, class WithCopies>
  __device__ void attend(int j, int after_j, bool more, Masked masked, const WithCopies& with_copies) {
    auto& stage = smem.stage[stage_index & 1];
    auto& next = smem.stage[(stage_index & 1) ^ 1];
    ptx::cp_async_wait_group<0>();            // this thread's part of the tile has come, and of Q
    guard.template barrier<masked>(stage.v);  // __syncthreads(), with a vote on NaNs in V where keys are masked
    // Behind this barrier everyone's part has come; and everyone has read the other stage, which is filled next.
    if (!q_kept) warp.keep_q(smem.q, warp_row);
    q_kept = true;
    next_tile.move(std::int64_t{after_j - j});

    // S = Q K^T, and between the mma the copies of the next tile
    float s[slices][keys / 8][4] = {};
    scores<T, Tile>(s, warp, smem.q, warp_row, stage.k, [&](int step) {
      if (more) next_tile.load(next, copies_before<Tile>(step), copies_before<Tile>(step + 1));
    });
    stage_index = (stage_index & 1) ^ 1;
    with_copies(stage_index);
    ptx::cp_async_commit_group();
    if constexpr (Masked::value) {
      const int first_row = load(&smem.facts.first) + warp_row;
      if constexpr (by_token) {
        mask_seen(s, shape, tokens_of(smem.facts), first_row, j * keys);
      } else {
        mask_slices(s, shape, first_row, j * keys);
      }
      guard.take_out(stage.v);
    }
    // row maximum; rescale where it has grown too far
    lazy_rescale(s, scale_log2, to_base_2, states, acc);
    // P = exp2(S - m) and O += P V
    device::KeptPairs<2 * slices> kept;  // of 32 keys
    const QueryTile of_dropout = device::drops<Shape> ? tile_of(smem.facts) : QueryTile{};
    accumulate<T, Tile>(acc, states, s, to_base_2, warp, stage.v, [&](auto& p_frag, int g) {
      device::drop_pairs(p_frag, kept, shape, of_dropout.batch, of_dropout.head, of_dropout.first + warp_row, j * keys + 16 * g,
                         g);
    });
  }

  // Behind attend: the index that came with the tile that was multiplied, of the tile after the next.
  __device__ int tile_after() const { return load(&smem.after[(stage_index & 1) ^ 1]); }

  // O and LSE of whole rows. partial(n) is the n-th of `partials` tiles with a mask.
  template <class Partial>
  __device__ void finish(int partials, const Partial& partial, const Heads<const T>& v, const Heads<T>& o, float* lse) {
    device::multiply_by_factor(acc, shape);
    __syncthreads();  // the block's facts are there, even if it has no tile
    const QueryTile tile = tile_of(smem.facts);
    finish_slices(acc, states, shape, tile, tile.first + warp_row, o, lse);
    if (!guard.taken_out) return;
    put_back<dim, keys>(shape, tile, tokens_of(smem.facts), partials, partial, v, [&](int i, int column, float x) {
      T* of_o = &o.row(tile.batch, tile.head, i)[column];
      store(of_o, from_float<T>(to_float(load(of_o)) + x));
    });
  }
  // The same of a part of each row, for merge_parts: O, not divided, and (m, l).
  template <class Partial>
  __device__ void leave(int partials, const Partial& partial, const Heads<const T>& v,
                        float* part_o,                // [tile queries, dim]
                        SoftmaxState* part_states) {  // [tile queries]
    device::multiply_by_factor(acc, shape);
    leave_part<dim>(acc, states, warp_row, part_o, part_states);
    if (!guard.taken_out) return;
    const QueryTile tile = tile_of(smem.facts);
    put_back<dim, keys>(shape, tile, tokens_of(smem.facts), partials, partial, v,
                        [&](int i, int column, float x) { part_o[(i - tile.first) * dim + column] += x; });
  }
};

}  // namespace block_sparse
