// 07_block_sparse, balanced: long rows are split, and their parts merged by ⊕.
// Predecessor: 06_tokens.cuh
//
// A row that sees everything, among rows that see a tenth, is longer than all that is left when it begins: order does not help
// it. Rows above four times the mean are cut into parts, and each part is a work item. A part leaves O, not divided, and (m, l)
// of its rows in scratch memory; merge_parts makes the row of them, with the operator of step 03.
//
// The loop stands in the kernel, as in step 05, not in the struct Attend: so it is 1 % faster where all is live (README.md).
//
// What to expect: with one full row a head, the time of the rows without it and its share. Elsewhere the price of a launch that
// finds nothing to do, and of work items that are empty.
#pragma once

#include "steps/07_block_sparse/06_tokens.cuh"

namespace block_sparse {

// What the parts of split rows leave.
template <class Float = float>
struct Parts {
  Float* o;              // [slots, tile queries, dim], not divided
  SoftmaxState* states;  // [slots, tile queries]
};

// Grid: x over work items. Blocks of tile_threads.
template <class T, class Tile>
__global__ void __launch_bounds__(tile_threads, 2) sparse_balanced(typename Tile::Shape shape, Mask mask, Plan plan,
                                                                   Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                                   Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                                   Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                                   Heads<T> o,        // [batch, heads, seq_q, dim]
                                                                   float* lse,        // [batch, heads, seq_q]
                                                                   Parts<> parts) {
  using Shape = typename Tile::Shape;
  auto& smem = device::shared_storage<SparseSmem<T, Tile>>();
  constexpr int dim = Tile::dim, keys = Tile::keys, slices = Tile::slices;
  constexpr int steps = dim / 16, groups = keys / 16;  // of 16 columns of Q and K; of 16 keys
  const WorkItem item = load_item(&plan.work[blockIdx.x]);
  if (item.head < 0) return;
  const int lane = threadIdx.x % 32;
  const int warp_row = __shfl_sync(all_lanes, threadIdx.x / 32, 0) * 16 * slices;  // the same for all lanes: nvcc sees it
  const float scale_log2 = magnitude(shape.scale);
  const int batch = item.head / shape.heads, head = item.head % shape.heads, kv_head = shape.kv_head(head);
  const int* at = plan.tiles + item.first;
  int left = item.count();           // tiles, this one among them
  int next = left > 1 ? at[1] : -1;  // the one that is copied while this one is multiplied

  // ---- prologue ----
  if (threadIdx.x == 0) {
    const int count = min(Tile::rows, shape.seq_q - item.first_of_tile);
    store_facts(smem.facts, {batch, head, kv_head, item.first_of_tile, count}, tokens_of(mask, head));
  }
  if (left > 0) {
    copy_rows(smem.q, q, batch, head, item.first_of_tile, shape.seq_q);
    copy_rows(smem.stage[0].k, k, batch, kv_head, item.entry * keys, shape.seq_k);
    copy_rows(smem.stage[0].v, v, batch, kv_head, item.entry * keys, shape.seq_k);
    ptx::cp_async_commit_group();
    if (shape.scale <= 0.0f) {
      ptx::cp_async_wait_group<0>();  // this thread's part of Q has come: it multiplies only that
      apply_sign<T, tile_threads>(smem.q, shape.scale);
    }
  }
  // The source of this thread's first chunks of the next tile, and their place in a stage.
  constexpr int element = sizeof(T);
  const int k_pass = static_cast<int>(k.row_stride) * Tile::pass * element;  // bytes
  const int v_pass = static_cast<int>(v.row_stride) * Tile::pass * element;
  const T *k_next[Tile::kinds], *v_next[Tile::kinds];
  int to[Tile::kinds];  // element of stage.k, and of stage.v
#pragma unroll
  for (int i = 0; i < Tile::kinds; ++i) {
    const int n = threadIdx.x + i * tile_threads, row = n / Tile::chunks, column = n % Tile::chunks * chunk;
    const std::int64_t key = static_cast<std::int64_t>(next) * keys + row;
    k_next[i] = k.row(batch, kv_head, 0) + key * k.row_stride + column;
    v_next[i] = v.row(batch, kv_head, 0) + key * v.row_stride + column;
    to[i] = row * dim + swizzled<dim>(row, column);
  }
  const auto copy = [&](auto& into, int n) {  // n < kinds · copies: one chunk of K and one of V
    const int i = n % Tile::kinds, down = n / Tile::kinds;
    ptx::cp_async_16(&into.k[down * Tile::pass][0] + to[i], bytes_beyond(k_next[i], std::int64_t{down} * k_pass));
    ptx::cp_async_16(&into.v[down * Tile::pass][0] + to[i], bytes_beyond(v_next[i], std::int64_t{down} * v_pass));
  };
  float acc[slices][dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[slices][2];
#pragma unroll
  for (int s = 0; s < slices; ++s) states[s][0] = states[s][1] = {lowest, 0.0f};
  std::uint32_t q_frag[Tile::keeps_q ? steps : 1][slices][4];
  // The byte of this lane's row in a fragment: a_from for Q, and for V by columns; b_from for K.
  const int a_from = ((lane % 16) * dim + swizzled<dim>(lane % 16, lane / 16 * chunk)) * element;
  const int b_from = ((lane / 16 * 8 + lane % 8) * dim + swizzled<dim>(lane % 8, lane / 8 % 2 * chunk)) * element;
  const auto load_q_fragments = [&](int step) {
#pragma unroll
    for (int s = 0; s < slices; ++s) {
      ptx::ldmatrix_x4(q_frag[Tile::keeps_q ? step : 0][s],
                       bytes_beyond(&smem.q[warp_row + 16 * s][0], columns_beyond<dim>(a_from, step)));
    }
  };
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  float to_base_2 = 1;  // what scores are multiplied by: scale_log2, or 1 where some m is beyond fma_limit, as `lowest` is
  int stage_index = 2;  // of this tile: its lowest bit; 2 before the first one
  int j = item.entry;   // this tile
  // ---- main loop: this, for each tile of keys ----
  const auto attend_tile = [&](auto masked) {
    auto& stage = smem.stage[stage_index & 1];
    auto& other_stage = smem.stage[(stage_index & 1) ^ 1];
    const int tile_after = left > 2 ? at[2] : -1;  // comes while this tile is multiplied
    ptx::cp_async_wait_group<0>();                 // this thread's part of the tile has come, and of Q
    guard.barrier<masked>(stage.v);
    // Behind this barrier everyone's part has come; and everyone has read the other stage, which is filled next.
    if (Tile::keeps_q && stage_index == 2) {
#pragma unroll
      for (int step = 0; step < steps; ++step) load_q_fragments(step);
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
      if (left > 1) {
#pragma unroll
        for (int n = copies_before<Tile>(step); n < copies_before<Tile>(step + 1); ++n) copy(other_stage, n);
      }
    }
    stage_index = (stage_index & 1) ^ 1;
    ptx::cp_async_commit_group();
    // from the sources of the next tile to those of the one after it
#pragma unroll
    for (int i = 0; i < Tile::kinds; ++i) {
      k_next[i] = bytes_beyond(k_next[i], std::int64_t{tile_after - next} * Tile::copies * k_pass);
      v_next[i] = bytes_beyond(v_next[i], std::int64_t{tile_after - next} * Tile::copies * v_pass);
    }
    if constexpr (masked) {
      const int first_row = load(&smem.facts.first) + warp_row;
      const Tokens tokens = tokens_of(smem.facts);
      if (tokens.sink == 0 && tokens.local == 0) {
        mask_slices(s, shape, first_row, j * keys);
      } else {
        mask_seen(s, shape, tokens, first_row, j * keys);
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
    j = next;
    next = tile_after;
    ++at;
    --left;
  };
#pragma unroll 1
  for (const int others = item.full + item.left; left > others;) attend_tile(std::true_type{});
#pragma unroll 1
  for (const int others = load(&plan.work[blockIdx.x].left); left > others;) attend_tile(std::false_type{});
#pragma unroll 1
  while (left > 0) attend_tile(std::true_type{});

  // ---- epilogue ----
  device::multiply_by_factor(acc, shape);
  __syncthreads();  // the block's facts are there, even if it has no tile
  const QueryTile tile = tile_of(smem.facts);
  const WorkItem again = load_item(&plan.work[blockIdx.x]);
  const std::int64_t first = std::int64_t{again.slot} * Tile::rows;  // row of the parts
  if (again.slot < 0) {
    finish_slices(acc, states, shape, tile, tile.first + warp_row, o, lse);
  } else {
    leave_part<dim>(acc, states, warp_row, &parts.o[first * dim], &parts.states[first]);
  }
  if (!guard.taken_out) return;
  put_back<dim, keys>(
      shape, tile, tokens_of(smem.facts), again.right + again.left,
      [&](int n) { return plan.tiles[again.first + (n < again.right ? n : n + again.full)]; }, v,
      [&](int i, int column, float x) {
        if (again.slot < 0) {
          T* to_o = &o.row(tile.batch, tile.head, i)[column];
          store(to_o, from_float<T>(to_float(load(to_o)) + x));
        } else {
          parts.o[(first + i - tile.first) * dim + column] += x;
        }
      });
}

constexpr int merge_warps = 16;

// A block merges the parts of a split row, a warp those of a query. Grid: x over split rows, as many as there may be.
template <class T, class Tile>
__global__ void __launch_bounds__(32 * merge_warps) merge_parts(AttentionShape shape, PlanSizes sizes,
                                                                const int* split_rows,  // [rows / 4], −1 behind the last
                                                                const Rank* ranks,      // [rows]
                                                                Parts<> parts,
                                                                Heads<T> o,    // [batch, heads, seq_q, dim]
                                                                float* lse) {  // [batch, heads, seq_q]
  const int row_index = split_rows[blockIdx.x];
  if (row_index < 0) return;
  const int4 rank = load(reinterpret_cast<const int4*>(&ranks[row_index]));
  const int batch = row_index / sizes.rows_of_head / shape.heads, head = row_index / sizes.rows_of_head % shape.heads;
  const int first = row_index % sizes.rows_of_head * Tile::rows, lane = threadIdx.x % 32;
  constexpr int columns = Tile::dim / 32;
  for (int i = first + threadIdx.x / 32; i < min(first + Tile::rows, shape.seq_q); i += merge_warps) {
    SoftmaxState state;
    float acc[columns] = {};
    for (int part = 0; part < rank.z; ++part) {
      const std::int64_t at = std::int64_t{rank.w + part} * Tile::rows + i - first;
      const float2 other = load(reinterpret_cast<const float2*>(&parts.states[at]));
      const device::MergedSoftmax merged = device::merge(state, {other.x, other.y});
      state = merged.state;
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        acc[c] = merged.first * acc[c] + merged.second * parts.o[at * Tile::dim + lane + 32 * c];
      }
    }
    const float inverse = device::inverse_sum(state.l);
    T* to = o.row(batch, head, i);
#pragma unroll
    for (int c = 0; c < columns; ++c) store(&to[lane + 32 * c], from_float<T>(acc[c] * inverse));
    if (lane == 0) {
      lse[(static_cast<std::int64_t>(batch) * shape.heads + head) * shape.seq_q + i] = device::log_sum_exp(state);
    }
  }
}

}  // namespace block_sparse
