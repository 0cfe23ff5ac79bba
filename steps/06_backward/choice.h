// Step 06, host side: which rung `tuned` and `tuned_80` take for a shape.
#pragma once

#include <algorithm>
#include <string>

#include "steps/06_backward/any_dim.h"
#include "steps/06_backward/costs.h"
#include "steps/06_backward/launches.h"
#include "steps/06_backward/shared_heads.h"

namespace backward {

// A rung, and its main kernel: by the head dim, and by whether all rows begin at multiples of 16 bytes.
struct Choice {
  const char* kernel;
  Rung rung;
};
inline Choice tuned(const Backward& a, bool aligned) {
  if (!aligned || !is_tuned_dim(a.dim)) return {"backward_any_dim", any_dim()};
  if (a.dim <= 64) return {"backward_tuned_64", shared_64()};
  return {"backward_tuned_128", shared_128()};
}
inline Choice tuned_80(const Backward& a, bool aligned) {
  if (a.dim > 192) return {"backward_recompute", recompute()};  // any_dim does not fit 99 KB there
  if (!aligned || !is_tuned_dim(a.dim)) return {"backward_any_dim", any_dim_80()};
  if (a.dim <= 96) return {"backward_pipeline", pipeline_80()};
  return {"backward_transposed", transposed_80()};
}

template <Choice (*choice)(const Backward&, bool)>
void launch_best(const run::BackwardLaunch& l) {
  choice(l.shape, has_aligned_rows(l)).rung.launch(l);
}
inline run::Arrays best_arrays(const Backward& a) { return with_parts(any_dim_arrays(a), a); }
template <Choice (*choice)(const Backward&, bool)>
std::size_t best_bytes(const Backward& a) {  // at most
  return std::max(choice(a, true).rung.shared_bytes(a), choice(a, false).rung.shared_bytes(a));
}
template <Choice (*choice)(const Backward&, bool)>
Costs best_costs(const Backward& a) {
  const std::string kernel = choice(a, true).kernel;
  if (kernel == "backward_recompute") return recompute_costs(a);
  if (kernel == "backward_any_dim") return any_dim_costs(a);
  return with_add_parts(a, tiled_costs(a, kernel), 2);
}

}  // namespace backward
