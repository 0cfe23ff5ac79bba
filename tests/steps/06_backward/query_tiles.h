// Step 06's query_tiles() for host code: its header has kernels' code, too.
#pragma once

#include "common/device/shapes.h"

namespace tests {

struct QueryTiles {  // backward::QueryTiles
  int begin, free_begin, free_end, end;
};
QueryTiles query_tiles(const device::AttentionShape& shape, int first_key, int keys, int queries);

}  // namespace tests
