// 09_decoding, stream_k: a fixed grid shares all tiles of all items; whole_rows: the same, and no item is cut.
// Predecessor: 03_split_kv.cuh
//
// `split_kv` cuts every item into the same number of parts. With 32 items and 132 SMs, 4 parts leave 4 SMs idle, and 5 parts
// need a second wave, in which most SMs have nothing. Here as many blocks as fit on the device share all tiles of all items
// evenly (stream-K). A block takes a range of tiles, which may begin and end inside an item. Only items that are cut need a
// merge.
//
// And a block that goes from one item to the next keeps its ring full: the keys of the next item are under way while it merges
// the warps of this one.
//
//   block    tiles first_unit(b) · unit up to first_unit(b + 1) · unit, counted over all items. unit = 1: tiles are shared
//            evenly. unit = tiles of an item: a block takes whole items
//   parts    two places a block: 2b for keys that go on from the block before, 2b + 1 for keys that begin here
//
// What to expect: whole_rows needs no merge and no second launch, so it is the fastest where items fill the SMs evenly: a wave
// of 128 blocks on 132 SMs. Elsewhere stream_k: each SM reads as much as any other, and the merge of the seams costs two
// microseconds.
#pragma once

#include "steps/09_decoding/03_split_kv.cuh"

namespace decoding {

// A block's walk over its tiles. `before_q` is called when the first keys are under way, and nothing else has been read.
// [doc: stream_k]
template <class T, class Tile, class Shape, class BeforeQ>
__device__ void walk(RingSmem<T, Tile>& smem, const Shape& shape, const Work& work, const Heads<const T>& q,
                     const Heads<const T>& k, const Heads<const T>& v, const Stream& of_host, const Parts<Tile::dim>& parts,
                     const Outputs<T>& outputs, const BeforeQ& before_q) {
  const Stream stream = on_device(of_host, shape);
  const int block = blockIdx.x, blocks = working_blocks(stream, shape, gridDim.x);
  if (block >= blocks) return before_q();
  std::int64_t at = stream.first_tile(block, blocks);
  const std::int64_t end = stream.first_tile(block + 1, blocks);
  Position ahead(stream, work, shape, at, end);  // what is requested next
  KeyRing<T, Tile, Shape> ring(smem, shape, k, v);
  const auto request = [&] {
    const bool there = ahead.left > 0;
    ring.request(ahead.item, ahead.item.keys.first_tile + ahead.tile, there);
    if (there) ahead.next(work, shape);
    if (ahead.left > 0) ring.look_up(ahead.item, ahead.item.keys.first_tile + ahead.tile);
  };
  ring.look_up(ahead.item, ahead.item.keys.first_tile + ahead.tile);
  for (int i = 0; i < Tile::stages - 1; ++i) request();
  before_q();
  WarpRows<T, Tile::dim, Shape> rows;
  while (at < end) {
    const Position here(stream, work, shape, at, end);
    const ItemKeys& keys = here.item.keys;
    const std::int64_t up_to = here.tile + here.left;
    const int last = up_to < keys.tiles ? static_cast<int>(up_to) : keys.tiles;
    rows.begin(shape, work, here.item, q);
    for (int tile = here.tile; tile < last; ++tile) {
      ring.wait();
      request();
      ring.attend(rows, here.item, keys.first_tile + tile);
    }
    const bool whole = here.tile == 0 && last == keys.tiles;
    const int place = 2 * block + (here.tile > 0 ? 0 : 1);
    ring.merge(rows, here.item.rows, [&](int row, int column, const SoftmaxState& state, const float4& o) {
      if (whole) return outputs.store_row(shape, work, here.item, row, column, state, o);
      parts.put(place, row, column, state, o);
    });
    at += last - here.tile;
  }
}
// [/doc: stream_k]

// Merges the parts of an item, if it was cut. All threads of a block call.
// [doc: fix_seams]
template <class T, int dim, class Shape>
__device__ void fix_seam(int number, int grid, const Shape& shape, const Work& work, const Stream& of_host,
                         const Parts<dim>& parts, const Outputs<T>& outputs) {
  const Stream stream = on_device(of_host, shape);
  const int blocks = working_blocks(stream, shape, grid);
  const Item item = item_of(work, shape, number);
  const std::int64_t begin = first_tile_of(stream, work, shape, number);
  const int first = stream.block_of(begin, blocks), last = stream.block_of(begin + item.keys.tiles - 1, blocks);
  if (first == last) return;
  parts.merge(
      last - first + 1, [=](int part) { return 2 * (first + part) + (part == 0 ? 1 : 0); }, shape, work, item, outputs);
}
// [/doc: fix_seams]

// Grid: any number of blocks, of Tile::threads.
template <class T, class Tile, class Shape = AttentionShape>
__global__ void __launch_bounds__(Tile::threads) stream_k(Shape shape, Work work,
                                                          Heads<const T> q,  // [batch, heads, seq_q, dim]
                                                          Heads<const T> k,  // [batch, kv_heads, seq_k, dim]
                                                          Heads<const T> v,  // [batch, kv_heads, seq_k, dim]
                                                          Stream stream, Parts<Tile::dim> parts, Outputs<T> outputs) {
  walk(device::shared_storage<RingSmem<T, Tile>>(), shape, work, q, k, v, stream, parts, outputs, [] {});
}

// Grid: over items. Where a row's keys begin with the row's own block and end in another one, its parts become one. `blocks`:
// those of stream_k.
template <class T, int dim, class Shape = AttentionShape>
__global__ void fix_seams(Shape shape, Work work, Stream stream, int blocks, Parts<dim> parts, Outputs<T> outputs) {
  fix_seam(blockIdx.x, blocks, shape, work, stream, parts, outputs);
}

}  // namespace decoding
