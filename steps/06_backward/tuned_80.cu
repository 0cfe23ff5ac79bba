// Step 06: what `tuned_80` takes. red adds one number at a time there, and tiles must fit 99 KB.
#include "steps/06_backward/06_transposed.cuh"
#include "steps/06_backward/07_pipeline.cuh"
#include "steps/06_backward/any_dim.h"
#include "steps/06_backward/launches.h"
#include "steps/06_backward/shared_heads.h"

namespace backward {
namespace {

template <class T, int dim>
struct PipelineFor80 : Block<PipelineSmem<T, dim>, tile_keys, tile_threads> {
  static constexpr auto kernel = backward_pipeline<T, dim, false>;
  static constexpr bool by_lane = true;
};
template <class T, int dim>
struct TransposedFor80 : Block<TransposedSmem<T, dim>, tile_keys, tile_threads> {
  static constexpr auto kernel = backward_transposed<T, dim, false>;
  static constexpr bool by_lane = true;
};

}  // namespace

Rung pipeline_80() { return shared_rung_of<PipelineFor80, 32, 64, 96>(); }
Rung transposed_80() { return shared_rung_of<TransposedFor80, 128>(); }
Rung any_dim_80() { return {launch_any_dim<false>, any_dim_bytes<false>, "convert_padded"}; }

}  // namespace backward
