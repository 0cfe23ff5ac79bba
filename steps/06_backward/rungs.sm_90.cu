// Step 06: the rungs on the way whose instructions need compute capability 9.0, red of 16 bytes and stmatrix.
#include "steps/06_backward/06_transposed.cuh"
#include "steps/06_backward/07_pipeline.cuh"
#include "steps/06_backward/08_keys_32.cuh"
#include "steps/06_backward/launches.h"

namespace backward {
namespace {

template <class T, int dim>
struct FragmentOrder : Block<KeysSmem<T, dim>, tile_keys, tile_threads> {
  static constexpr auto kernel = backward_one_kernel<T, dim, SumsByLane<true>>;
  static constexpr bool by_lane = true;
};
template <class T, int dim>
struct Transposed : Block<TransposedSmem<T, dim>, tile_keys, tile_threads> {
  static constexpr auto kernel = backward_transposed<T, dim, true>;
  static constexpr bool by_lane = true;
};
template <class T, int dim>
struct Pipeline : Block<PipelineSmem<T, dim>, tile_keys, tile_threads> {
  static constexpr auto kernel = backward_pipeline<T, dim, true>;
  static constexpr bool by_lane = true;
};
template <class T, int dim>
struct Keys32 : Block<Keys32Smem<T, dim>, wide_keys, tile_threads> {
  static constexpr auto kernel = backward_keys_32<T, dim, true>;
  static constexpr bool by_lane = true;
};

}  // namespace

Rung fragment_order() { return rung_of<FragmentOrder, 32, 64, 96, 128>(); }
Rung transposed() { return rung_of<Transposed, 32, 64, 96, 128>(); }
Rung pipeline() { return rung_of<Pipeline, 32, 64, 96, 128>(); }
Rung keys_32() { return rung_of<Keys32, 32, 64>(); }

}  // namespace backward
