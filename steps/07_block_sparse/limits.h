// Step 07, host side: how large a plan can be. Its lists have room for so many tiles. Its kernels count rows, tiles and entries
// of lists in 32 bits, and the mask need not be in the host's memory: so what might be larger is refused by name.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "common/problem/attention.h"

namespace block_sparse {

using problem::Attention;

// Tiles of queries × tiles of keys of one head that hold a visible pair, but for a sparse mask: at most so many.
inline double visible_tiles(const Attention& a, int tile_queries, int tile_keys) {
  double tiles = 0;
  for (std::int64_t first = 0; first < a.seq_q; first += tile_queries) {
    const auto last = static_cast<int>(std::min<std::int64_t>(first + tile_queries, a.seq_q) - 1);
    const std::int64_t begin = a.first_key(static_cast<int>(first)) / tile_keys;
    const std::int64_t end = (std::int64_t{a.last_key(last)} + tile_keys - 1) / tile_keys;
    tiles += static_cast<double>(std::max<std::int64_t>(end - begin, 0));
  }
  return tiles;
}

// The same of all heads and batch entries, under the mask. Nothing but the mask in the host's memory is known of it: bits that
// nobody gave are 1.
inline double most_live_tiles(const Attention& a, int tile_queries, int tile_keys) {
  const auto tiles_of = [](double n, double tile) { return std::ceil(n / tile); };
  const double rows = tiles_of(a.seq_q, tile_queries);
  const double visible = visible_tiles(a, tile_queries, tile_keys);
  if (!a.sparse) return visible * a.heads * a.batch;
  const problem::SparseMask& mask = *a.sparse;
  const double of_block = tiles_of(mask.block_q, tile_queries) * tiles_of(mask.block_k, tile_keys);
  const std::size_t words = static_cast<std::size_t>(problem::query_blocks(mask, a)) * problem::words_of_row(mask, a);
  const auto live_blocks = [&](int batch, int head) {
    double blocks = 0;
    const auto first = mask.live.begin() + static_cast<std::ptrdiff_t>((std::size_t{1} * batch * a.heads + head) * words);
    std::for_each_n(first, words, [&](std::int32_t bits) { blocks += std::popcount(static_cast<std::uint32_t>(bits)); });
    return blocks;
  };
  // Of a tile of queries: a sink from the first key on, and what is near its own keys, each with a tile that begins before it.
  const auto streamed = [&](const problem::Streaming& s, double unit, double own) {
    return rows * (tiles_of(s.sink * unit, tile_keys) + tiles_of(2.0 * s.local * unit + own, tile_keys) + 2);
  };
  double tiles = 0;
  for (int batch = 0; batch < mask.batches; ++batch) {
    for (int head = 0; head < a.heads; ++head) {
      switch (mask.type(head)) {
        case problem::HeadType::dense:
          tiles += visible;
          break;
        case problem::HeadType::block_sparse:
          tiles += std::min(visible, live_blocks(batch, head) * of_block);
          break;
        case problem::HeadType::streaming_blocks:
          tiles += std::min(visible, streamed(mask.streaming[head], mask.block_k, mask.block_q + 2.0 * mask.block_k));
          break;
        case problem::HeadType::streaming_tokens:
          // Between two packed sequences a tile may list all of the first one.
          tiles += a.is_packed() ? visible : std::min(visible, streamed(mask.streaming[head], 1, tile_queries));
          break;
      }
    }
  }
  return mask.batches == 1 ? tiles * a.batch : tiles;
}

// What of the problem is too large for a plan with such tiles, in words; empty: nothing. by_keys: rows are tiles of keys.
inline std::string too_large_for_plan(const Attention& a, int tile_queries, int tile_keys, bool by_keys) {
  const double query_tiles = std::ceil(1.0 * a.seq_q / tile_queries), key_tiles = std::ceil(1.0 * a.seq_k / tile_keys);
  const double rows = a.batch * (by_keys ? a.kv_heads * key_tiles : a.heads * query_tiles);
  if (rows > 0x1p26) return std::string("more than 2^26 tiles of ") + (by_keys ? "keys" : "queries");
  const double all = query_tiles * key_tiles * a.heads * a.batch;
  if (all >= 0x1p31 && most_live_tiles(a, tile_queries, tile_keys) >= 0x1p31) {
    return "2^31 or more live tiles of " + std::to_string(tile_queries) + " queries by " + std::to_string(tile_keys) + " keys";
  }
  return "";
}

}  // namespace block_sparse
