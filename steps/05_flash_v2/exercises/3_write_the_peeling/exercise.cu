// Exercise 3 of step 05: the kernel of `registers` with one stage, and the tiles that task.cuh names.
#include EXERCISE_KERNEL

namespace exercise {

using namespace flash_v2;

using Smem = RecycledSmem<__half, exercise_dim>;

// Grid: x over tiles of queries, y over heads, z over the batch. Blocks of tile_threads.
__global__ void __launch_bounds__(tile_threads) flash(AttentionShape shape,
                                                      Heads<const __half> q,  // [batch, heads, seq_q, dim]
                                                      Heads<const __half> k,  // [batch, kv_heads, seq_k, dim]
                                                      Heads<const __half> v,  // [batch, kv_heads, seq_k, dim]
                                                      Heads<__half> o,        // [batch, heads, seq_q, dim]
                                                      float* lse) {           // [batch, heads, seq_q]
  auto& smem = device::shared_storage<Smem>();
  const QueryTile tile = query_tile(shape, tile_rows);
  const KeyTiles tiles = your_tiles(shape, tile.first, tile.count, tile_keys);
  const int warp_row = threadIdx.x / 32 * warp_rows;  // within the tile
  const float scale_log2 = magnitude(shape.scale);
  RowKeys rows[2];
  visible_keys(shape, tile.first + warp_row, rows);

  float acc[exercise_dim / 8][4] = {};  // O, not yet divided
  SoftmaxState states[2];
  NanGuard<tile_threads> guard;  // keeps NaNs in V from rows that do not see them
  std::uint32_t q_frag[exercise_dim / 16][4];
  copy_rows(smem.stage[1].q, q, tile.batch, tile.head, tile.first, shape.seq_q);
  ptx::cp_async_wait_all();
  __syncthreads();  // all of Q has come
  keep_q(q_frag, smem.stage[1].q, warp_row, shape.scale);
  const auto attend_tile = [&](int j, auto masked) {
    auto& stage = smem.stage[0];
    __syncthreads();  // everyone has read the tile before this one
    copy_rows(stage.k, k, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
    copy_rows(stage.v, v, tile.batch, tile.kv_head, j * tile_keys, shape.seq_k);
    ptx::cp_async_wait_all();
    guard.barrier<masked>(stage.v);
    // Everyone's copies have come.
    float s[score_frags][4] = {};
    scores<__half, exercise_dim>(s, q_frag, stage.k);
    if constexpr (masked) mask_scores(s, rows, j * tile_keys);
    softmax_folded(s, scale_log2, states, acc);
    guard.take_out(stage.v);
    add_values<__half>(acc, s, stage.v);
  };
  for_each_tile(tiles, attend_tile);
  finish_rows<__half, true>(acc, states, shape, tile, tile.first + warp_row, o, lse);
  guard.put_back(shape, tile, tiles, tile_keys, v, o);
}

}  // namespace exercise

run::AnyStep run::this_step() {
  static const AttentionStep step =
      flash_v2::exercise_step("exercise_05_3", "Which tiles need a mask?", exercise::flash, sizeof(exercise::Smem));
  return &step;
}
