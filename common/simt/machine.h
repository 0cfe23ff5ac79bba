// What a multiprocessor holds at once, and how many of them there are: NVIDIA's tables of compute capabilities.
#pragma once

#include <cstddef>

#include "common/simt/simt.h"

namespace simt {

struct Machine {
  const char* name;
  std::size_t multiprocessors, blocks, warps, registers, shared_bytes, shared_bytes_of_block, blocks_of_cluster;
  bool dependent_launches;
};

inline const Machine& machine() {
  static constexpr Machine machines[] = {{"an H100", 132, 32, 64, 65536, 228 * 1024, max_shared_bytes, 8, true},
                                         {"an RTX 3090", 82, 16, 48, 65536, 100 * 1024, 99 * 1024, 1, false}};
  return machines[static_cast<int>(options().device)];
}

}  // namespace simt
