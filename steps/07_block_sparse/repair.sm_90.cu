// Step 07: the kernel behind the backward pass, which repairs rows. It is compiled for what its variant runs on.
#include "common/device/dispatch.h"
#include "common/launches/repair.h"
#include "steps/07_block_sparse/backward.h"
#include "steps/07_block_sparse/host.h"
#include "steps/07_block_sparse/key_plan.cuh"

namespace block_sparse {

void repair(const run::BackwardLaunch& l, const device::AnyShape& shape) {
  device::with_16_bit_type(l.shape.dtype, [&]<class T>(T) { launch_repair<T>(l, shape, LivePairs{device_mask(l)}); });
}

}  // namespace block_sparse
