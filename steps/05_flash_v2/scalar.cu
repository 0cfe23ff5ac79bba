// Step 05: the rung without tensor cores.
#include "steps/05_flash_v2/01_scalar.cuh"
#include "steps/05_flash_v2/launches.h"

namespace flash_v2 {
namespace {

template <class F>
auto with_scalar_columns(int dim, F f) {  // 32 columns for each lane of a warp
  return with_at_least<2, 4, 8>(ceil_div(dim, 32), f);
}

void launch_scalar(const AttentionLaunch& l) {
  with_type(l.shape.dtype, [&]<class T>(T) {
    with_scalar_columns(l.shape.dim, [&](auto columns) {
      run::with_device_shape(l, [&]<class Shape>(const Shape& shape) {
        launch_tiles<T>(l, shape, flash_scalar<T, columns, Shape>, scalar_rows, scalar_threads, sizeof(ScalarSmem<columns>));
      });
    });
  });
}
std::size_t scalar_bytes(const Attention& a) {
  return with_scalar_columns(a.dim, [](auto columns) { return sizeof(ScalarSmem<columns>); });
}

}  // namespace

Rung scalar_rung() { return {launch_scalar, scalar_bytes}; }

}  // namespace flash_v2
