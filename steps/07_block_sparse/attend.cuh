// Step 07: step 05's tuned loop as three parts, so that each kernel here says only which tiles of keys it visits:
//
//   Attend a(…)            the block's queries and what a lane knows of its copies; copies nothing
//   a.begin(tile)          starts to copy Q and the first tile
//   a.attend(tile, next, more)   multiplies a tile, while the next one is copied, if there are more; masked: std::true_type for
//                          a partial tile
//   a.finish(…)            O and LSE
//
// begin and attend take one more argument, with_copies(stage): what else is copied with the tile of that stage.
#pragma once

#include "steps/07_block_sparse/block.cuh"

namespace block_sparse {

__device__ inline void nothing_else(int) {}

// by_token: partial tiles may be cut by a head that streams by token, too.
template <class T, class Tile, bool by_token>
struct Attend {
  using Shape = typename Tile::Shape;
  static constexpr int dim = Tile::dim, keys = Tile::keys, slices = Tile::slices;
  static constexpr int steps = dim / 16, groups = keys / 16;  // of 16 columns of Q and K; of 16 keys
  static constexpr int element = sizeof(T);

  const Shape& shape;
  SparseSmem<T, Tile>& smem;
  const float scale_log2;
  const int warp_row;
  // The source of this thread's first chunks of the tile that is copied next, and their place in a stage.
  const T *k_next[Tile::kinds], *v_next[Tile::kinds];
  int to[Tile::kinds];
  const int k_pass, v_pass;            // bytes between two rows of a thread's copies
  int a_from, b_from;                  // the byte of this lane's row in a fragment
  float acc[slices][dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[slices][2];
  std::uint32_t q_frag[Tile::keeps_q ? steps : 1][slices][4];
  NanGuard<tile_threads> guard;
  float to_base_2 = 1;
  int stage_index = 2;  // of this tile: its lowest bit; 2 before the first one

  __device__ Attend(const Shape& shape_, const Tokens& tokens, const QueryTile& tile, const Heads<const T>& k,
                    const Heads<const T>& v)
      : shape(shape_),
        smem(device::shared_storage<SparseSmem<T, Tile>>()),
        scale_log2(magnitude(shape_.scale)),
        warp_row(__shfl_sync(all_lanes, threadIdx.x / 32, 0) * 16 * slices),
        k_pass(static_cast<int>(k.row_stride) * Tile::pass * element),
        v_pass(static_cast<int>(v.row_stride) * Tile::pass * element) {
    if (threadIdx.x == 0) store_facts(smem.facts, tile, tokens);
    const int lane = threadIdx.x % 32;
    a_from = ((lane % 16) * dim + swizzled<dim>(lane % 16, lane / 16 * chunk)) * element;
    b_from = ((lane / 16 * 8 + lane % 8) * dim + swizzled<dim>(lane % 8, lane / 8 % 2 * chunk)) * element;
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
#pragma unroll
    for (int i = 0; i < Tile::kinds; ++i) {
      const int n = threadIdx.x + i * tile_threads, row = n / Tile::chunks, column = n % Tile::chunks * chunk;
      const std::int64_t key = static_cast<std::int64_t>(first) * keys + row;
      k_next[i] = k.row(tile.batch, tile.kv_head, 0) + key * k.row_stride + column;
      v_next[i] = v.row(tile.batch, tile.kv_head, 0) + key * v.row_stride + column;
      to[i] = row * dim + swizzled<dim>(row, column);
    }
  }

  __device__ void load_q_fragments(int step) {
#pragma unroll
    for (int s = 0; s < slices; ++s) {
      ptx::ldmatrix_x4(q_frag[Tile::keeps_q ? step : 0][s],
                       bytes_beyond(&smem.q[warp_row + 16 * s][0], columns_beyond<dim>(a_from, step)));
    }
  }

  // This tile, while the next one is copied, if there are more.
  template <class Masked, class WithCopies>
  __device__ void attend(int j, int next_tile, bool more, Masked masked, const WithCopies& with_copies) {
    auto& stage = smem.stage[stage_index & 1];
    auto& next = smem.stage[(stage_index & 1) ^ 1];
    ptx::cp_async_wait_group<0>();  // this thread's part of the tile has come, and of Q
    guard.template barrier<masked>(stage.v);
    // Behind this barrier everyone's part has come; and everyone has read the other stage, which is filled next.
    if (Tile::keeps_q && stage_index == 2) {
#pragma unroll
      for (int step = 0; step < steps; ++step) load_q_fragments(step);
    }
    // to the sources of the next tile
#pragma unroll
    for (int i = 0; i < Tile::kinds; ++i) {
      k_next[i] = bytes_beyond(k_next[i], std::int64_t{next_tile - j} * Tile::copies * k_pass);
      v_next[i] = bytes_beyond(v_next[i], std::int64_t{next_tile - j} * Tile::copies * v_pass);
    }

    // S = Q K^T, and between the mma the copies of the next tile
    float s[slices][keys / 8][4] = {};
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if (!Tile::keeps_q) load_q_fragments(step);
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        std::uint32_t k_frag[4];
        ptx::ldmatrix_x4(k_frag, bytes_beyond(&stage.k[16 * g][0], columns_beyond<dim>(b_from, step)));
        mma_slices<T>(s, 2 * g, q_frag[Tile::keeps_q ? step : 0], k_frag);
      }
      if (more) {
#pragma unroll
        for (int n = copies_before<Tile>(step); n < copies_before<Tile>(step + 1); ++n) {
          const int i = n % Tile::kinds, down = n / Tile::kinds;
          ptx::cp_async_16(&next.k[down * Tile::pass][0] + to[i], bytes_beyond(k_next[i], std::int64_t{down} * k_pass));
          ptx::cp_async_16(&next.v[down * Tile::pass][0] + to[i], bytes_beyond(v_next[i], std::int64_t{down} * v_pass));
        }
      }
    }
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
    // P = exp2(S - m) of the first 16 keys
    std::uint32_t p_frag[2][slices][4];  // of these 16 keys, and of the next
    constexpr int pairs = 4 * slices;
#pragma unroll
    for (int i = 0; i < pairs; ++i) exponentials<T>(p_frag[0], states, s, to_base_2, 0, i);
    // O += P V, and between the mma P = exp2(S - m) of the next 16 keys
    device::KeptPairs<2 * slices> kept;  // of 32 keys
    const QueryTile of_dropout = device::drops<Shape> ? tile_of(smem.facts) : QueryTile{};
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      device::drop_pairs(p_frag[g % 2], kept, shape, of_dropout.batch, of_dropout.head, of_dropout.first + warp_row,
                         j * keys + 16 * g, g);
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        std::uint32_t v_frag[4];
        ptx::ldmatrix_x4_trans(v_frag, bytes_beyond(&stage.v[16 * g][0], columns_beyond<dim>(a_from, step)));
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
