// Step 05: rows of any length at any address.
#include "steps/05_flash_v2/13_any_dim.cuh"
#include "steps/05_flash_v2/launches.h"

namespace flash_v2 {
namespace {

template <class T, int dim>  // dims padded to `dim`
struct AnyDim : Block<typename AnyDimTile<T, dim>::Smem> {
  static constexpr auto kernel = flash_any_dim<T, dim>;
  static constexpr auto packed = flash_any_dim<T, dim, device::PackedShape>;
  static constexpr auto dropped = flash_any_dim<T, dim, device::Dropped<AttentionShape>>;
  static constexpr auto scored = flash_any_dim<T, dim, device::ScoredShape<T>>;
};

}  // namespace

Rung any_dim_rung() { return rung_of<AnyDim, 32, 64, 96, 128, 256>(); }

}  // namespace flash_v2
