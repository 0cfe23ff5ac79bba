// 09_decoding, warp_rings: each warp copies its own keys, and no warp waits for another one.
// Predecessor: 01_packed_heads.cuh
//
// In `packed_heads` any thread copies any chunk, so each tile needs a barrier of the block: the slowest warp decides when the
// next copies start. But a warp reads only its own 16 keys of a tile. Here it also copies them itself. cp.async.wait_group
// and __syncwarp are all that it waits for, until the warps merge at the end.
//
//   warp     its keys, in a ring of stages: one is read, the others are under way
//   lane     copies 16 bytes of every (256 / dim)th key
//
//   Smem     ring[warps][stages][2][16][dim]   K and V, swizzled
//            states                            as in `packed_heads`
//
// What to expect: a few percent where each block has many tiles; the time is still set by the SMs that have no block.
#pragma once

#include "steps/09_decoding/01_packed_heads.cuh"

namespace decoding {

// A warp's ring of keys. All lanes of the warp make each call.
template <class T, class Tile, class Shape = AttentionShape>
struct KeyRing {
  static constexpr int dim = Tile::dim;
  const Heads<const T>&k, &v;
  NextPages<Shape> pages;
  RingSmem<T, Tile>& smem;
  KeysAndValues<T, dim> (&ring)[Tile::stages];
  int filled = 0, read = 0;  // the stage that is filled next, and the one that is read next

  __device__ KeyRing(RingSmem<T, Tile>& memory, const Shape& shape, const Heads<const T>& keys, const Heads<const T>& values)
      : k(keys), v(values), pages(shape), smem(memory), ring(memory.ring[threadIdx.x / 32]) {}

  __device__ static int first_key(int tile) { return tile * Tile::keys + threadIdx.x / 32 * warp_keys; }
  __device__ static int next(int stage) { return stage + 1 == Tile::stages ? 0 : stage + 1; }

  // Starts to copy this warp's keys of a tile into the next stage; keys that no query sees become zeros. Without a tile the
  // group of copies is empty, so that the count of groups stays.
  __device__ void request(const Item& item, int tile, bool there) {
    if (there) copy_keys<T, dim>(ring[filled], k, v, item, pages, first_key(tile));
    ptx::cp_async_commit_group();
    filled = next(filled);
  }

  // Of a paged cache: before request() of the same tile.
  __device__ void look_up(const Item& item, int tile) { pages.look_up(item, first_key(tile)); }

  // The stages that are in flight before the loop. Not of a paged cache, where each request needs a look_up() before it.
  __device__ void request_first(const Item& item, const TileRange& tiles) {
#pragma unroll
    for (int i = 0; i < Tile::stages - 1; ++i) request(item, tiles.begin + i, tiles.begin + i < tiles.end);
  }

  // [doc: ring_attend]
  // Waits for the oldest tile that was requested.
  __device__ void wait() {
    ptx::cp_async_wait_group<Tile::stages - 2>();  // this lane's copies of the tile have come
    __syncwarp();  // so have the other lanes'; and all lanes have read the stage that is filled next
  }
  // Takes in this warp's keys of it.
  template <class Rows>
  __device__ void attend(Rows& rows, const Item& item, int tile) {
    rows.attend(item.keys, ring[read][0], ring[read][1], first_key(tile));
    read = next(read);
  }
  // All of `tiles`, whose first ones were requested.
  __device__ void attend_all(WarpRows<T, dim>& rows, const Item& item, const TileRange& tiles) {
    for (int tile = tiles.begin; tile < tiles.end; ++tile) {
      wait();
      const int later = tile + Tile::stages - 1;
      request(item, later, later < tiles.end);
      attend(rows, item, tile);
    }
  }
  // [/doc: ring_attend]

  // Merges the parts of the warps, which they hand over in the stage that they have read last: it is filled next.
  template <class Rows, class Emit>
  __device__ void merge(const Rows& rows, int count, const Emit& emit) {
    merge_warps<Tile>(
        smem.states, rows, count, [&](int w) -> auto& { return smem.ring[w][filled]; }, emit);
  }
};

// Grid: over items. Blocks of Tile::threads.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::threads) warp_rings(AttentionShape shape, Work work,
                                                            Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                            Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                            Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                            Outputs<T> outputs) {
  auto& smem = device::shared_storage<RingSmem<T, Tile>>();
  const Item item = item_of(work, shape, blockIdx.x);
  const TileRange tiles = part_of_tiles(item.keys, 0, 1);
  KeyRing<T, Tile> ring(smem, shape, k, v);
  ring.request_first(item, tiles);
  WarpRows<T, Tile::dim> rows;
  rows.begin(shape, work, item, q);
  ring.attend_all(rows, item, tiles);
  ring.merge(rows, item.rows, [&](int row, int column, const SoftmaxState& state, const float4& o) {
    outputs.store_row(shape, work, item, row, column, state, o);
  });
}

}  // namespace decoding
