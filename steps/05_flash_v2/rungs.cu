// Step 05: the rungs from `tensor_cores` to `lazy_rescale`.
#include "steps/05_flash_v2/02_tensor_cores.cuh"
#include "steps/05_flash_v2/03_ldmatrix.cuh"
#include "steps/05_flash_v2/04_pipeline.cuh"
#include "steps/05_flash_v2/05_edge_masks.cuh"
#include "steps/05_flash_v2/06_folded_scale.cuh"
#include "steps/05_flash_v2/07_registers.cuh"
#include "steps/05_flash_v2/08_overlap.cuh"
#include "steps/05_flash_v2/09_addresses.cuh"
#include "steps/05_flash_v2/10_rows_32.cuh"
#include "steps/05_flash_v2/11_lazy_rescale.cuh"
#include "steps/05_flash_v2/launches.h"

namespace flash_v2 {
namespace {

template <class T, int dim>
struct TensorCores : Block<TensorCoreSmem<T, dim>> {
  static constexpr auto kernel = flash_tensor_cores<T, dim>;
};
template <class T, int dim>
struct Ldmatrix : Block<TensorCoreSmem<T, dim>> {
  static constexpr auto kernel = flash_ldmatrix<T, dim>;
};
template <class T, int dim>
struct Pipeline : Block<PipelineSmem<T, dim>> {
  static constexpr auto kernel = flash_pipeline<T, dim>;
};
template <class T, int dim>
struct EdgeMasks : Block<PipelineSmem<T, dim>> {
  static constexpr auto kernel = flash_edge_masks<T, dim>;
};
template <class T, int dim>
struct FoldedScale : Block<PipelineSmem<T, dim>> {
  static constexpr auto kernel = flash_folded_scale<T, dim>;
};
template <class T, int dim>
struct Registers : Block<RecycledSmem<T, dim>> {
  static constexpr auto kernel = flash_registers<T, dim>;
};
template <class T, int dim>
struct Overlap : Block<OverlapSmem<T, dim>> {
  static constexpr auto kernel = flash_overlap<T, dim>;
};
template <class T, int dim>
struct Addresses : Block<RecycledSmem<T, dim>> {
  static constexpr auto kernel = flash_addresses<T, dim>;
};
template <class T, int dim>
struct Rows32 : Block<TunedSmem<T, TunedTile<dim>>, TunedTile<dim>::rows> {
  static constexpr auto kernel = flash_rows_32<T, TunedTile<dim>>;
};
template <class T, int dim>
struct LazyRescale : Block<TunedSmem<T, TunedTile<dim>>, TunedTile<dim>::rows> {
  static constexpr auto kernel = flash_lazy_rescale<T, TunedTile<dim>>;
};

}  // namespace

Rung tensor_cores_rung() { return rung_of<TensorCores, 32, 64, 128>(); }
Rung ldmatrix_rung() { return rung_of<Ldmatrix, 32, 64, 128>(); }
Rung pipeline_rung() { return rung_of<Pipeline, 32, 64, 128>(); }
Rung edge_masks_rung() { return rung_of<EdgeMasks, 32, 64, 128>(); }
Rung folded_scale_rung() { return rung_of<FoldedScale, 32, 64, 128>(); }
Rung registers_rung() { return rung_of<Registers, 32, 64, 128>(); }
Rung overlap_rung() { return rung_of<Overlap, 32, 64>(); }
Rung addresses_rung() { return rung_of<Addresses, 32, 64, 128>(); }
Rung rows_32_rung() { return rung_of<Rows32, 32, 64, 128>(); }
Rung lazy_rescale_rung() { return rung_of<LazyRescale, 32, 64, 128>(); }

}  // namespace flash_v2
