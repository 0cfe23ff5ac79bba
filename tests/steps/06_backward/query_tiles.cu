#include "common/device/backward/query_tiles.cuh"
#include "tests/steps/06_backward/query_tiles.h"

namespace tests {

QueryTiles query_tiles(const device::AttentionShape& shape, int first_key, int keys, int queries) {
  const backward::QueryTiles tiles = backward::query_tiles(shape, first_key, keys, queries);
  return {tiles.begin, tiles.free_begin, tiles.free_end, tiles.end};
}

}  // namespace tests
