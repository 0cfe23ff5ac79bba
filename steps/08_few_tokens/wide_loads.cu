// Step 08, host side: launches of wide_loads, apart from step.cu because its kernels take long to compile.
#include <algorithm>

#include "steps/08_few_tokens/03_wide_loads.cuh"
#include "steps/08_few_tokens/host.h"
#include "steps/08_few_tokens/launches.h"

namespace few_tokens {
namespace {

using problem::Linear;
using run::LinearLaunch;

// Two blocks an SM, or as many as have a row. The simulator stands for an H100.
dim3 wide_grid(const Linear& g) {
  const runtime::Properties& device = runtime::properties();
  const int multiprocessors = device.backend == "sim" ? 132 : device.multiprocessors;
  dim3 grid = grid_of(g, wide_warps);
  grid.x = std::min(grid.x, static_cast<unsigned>(wide_blocks * multiprocessors));
  return grid;
}

// Of one token of the weights' type.
template <int SLOTS>
void launch_in_flight(const LinearLaunch& l) {
  device::with_16_bit_type(l.shape.dtype, [&]<class W>(W) {
    launch_kernel<W, W>(l, wide_loads<W, W, 1, SLOTS>, wide_grid(l.shape), 32 * wide_warps);
  });
}

}  // namespace

void launch_wide_loads(const LinearLaunch& l) {
  launch_for_types(l, wide_grid(l.shape), 32 * wide_warps, []<class W, class A, int TOK>(W, A, device::Constant<TOK>) {
    constexpr int room = 16 / TOK * sizeof(W) / sizeof(A);  // in registers: sums and tokens need it, too
    return wide_loads<W, A, TOK, std::clamp(room, 1, 4)>;
  });
}

void launch_in_flight_8k(const LinearLaunch& l) { launch_in_flight<1>(l); }
void launch_in_flight_16k(const LinearLaunch& l) { launch_in_flight<2>(l); }
void launch_in_flight_64k(const LinearLaunch& l) { launch_in_flight<8>(l); }

}  // namespace few_tokens
