// Step 05: the fastest kernel, where it can be.
#include "common/launches/near_rows.h"
#include "common/run/family/heads.h"
#include "steps/05_flash_v2/12_tuned.cuh"
#include "steps/05_flash_v2/launches.h"

namespace flash_v2 {
namespace {

template <class T, int dim>
struct Tuned : Block<TunedSmem<T, TunedTile<dim>>, TunedTile<dim>::rows> {
  static constexpr auto kernel = flash_tuned<T, TunedTile<dim>>;
  static constexpr auto packed = flash_tuned<T, PackedTile<dim>>;
  static constexpr auto dropped = flash_tuned<T, DroppedTile<dim>>;
  static constexpr auto scored = flash_tuned<T, ScoredTile<T, dim>>;
};

template <bool Const>
bool has_tuned_rows(const device::AnyHeads<Const>& x, int rows) {  // of elements of 16 bits
  return run::has_rows_at(x, 16, 2) && run::row_distance(x, rows) <= most_row_stride;
}
// Elsewhere `any_dim`.
void launch_tuned(const AttentionLaunch& l) {
  const int seq_q = l.shape.seq_q, seq_k = l.shape.seq_k;
  if (!is_tuned_dim(l.shape.dim) || !has_tuned_rows(l.q, seq_q) || !has_tuned_rows(l.k, seq_k) || !has_tuned_rows(l.v, seq_k) ||
      !has_tuned_rows(l.o, seq_q)) {
    return any_dim_rung().launch(l);
  }
  launch_tiled<Tuned, 32, 64, 96, 128, 256>(l);
}

}  // namespace

// Its shared memory is never less than any_dim's.
Rung tuned_rung() { return {launch_tuned, tiled_bytes<Tuned, 32, 64, 96, 128, 256>}; }

}  // namespace flash_v2
