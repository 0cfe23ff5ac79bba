// Step 06: the kernel behind all others, which repairs rows. It is compiled once, for all variants.
#include "common/launches/repair.h"
#include "steps/06_backward/launches.h"

namespace backward {

void repair(const run::BackwardLaunch& l, const device::AnyShape& shape) {
  with_16_bit_type(l.shape.dtype, [&]<class T>(T) { launch_repair<T>(l, shape, AllPairs{}); });
}

}  // namespace backward
