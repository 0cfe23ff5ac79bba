// Step 06, host side: what the kernels of each variant must do, counted by hand, in the order of their launches.
#pragma once

#include <string>
#include <vector>

#include "common/problem/cost.h"
#include "common/run/family/packed.h"
#include "steps/06_backward/parts.h"

namespace backward {

using problem::Backward;
using problem::BackwardResult;
using Costs = std::vector<problem::KernelCost>;

// Where rows lie at multiples of 16 bytes.
inline problem::KernelCost prepare_chunks_cost(const Backward& a, bool with_sums) {
  return problem::prepare_cost(a, with_sums, "prepare_chunks");
}
inline const problem::KernelCost repair_cost = {"repair_rows"};  // it looks at the flags, and ends

inline Costs standard_costs(const Backward& a) {
  return {problem::prepare_cost(a, false),
          problem::pairs_cost(a, "probabilities", true),
          problem::pairs_cost(a, "row_products", false),
          problem::softmax_gradient_cost(a),
          problem::over_queries_cost(a),
          problem::over_keys_cost(a),
          problem::over_queries_cost(a)};
}
inline Costs recompute_costs(const Backward& a) {
  return run::with_options(
      a, Costs{problem::prepare_cost(a, true), problem::backward_cost(a, "backward_recompute", 5, BackwardResult::all),
               problem::convert_cost(a, "convert_dq")});
}
inline Costs two_kernels_costs(const Backward& a) {
  return {prepare_chunks_cost(a, false), problem::backward_cost(a, "gradient_of_keys", 4, BackwardResult::dk_dv),
          problem::backward_cost(a, "gradient_of_queries", 3, BackwardResult::dq), repair_cost};
}
// Of a variant that splits query heads over blocks: its second kernel writes the parts of dK and dV instead of their sums, and
// add_parts, at that place of the list, adds them.
inline Costs with_add_parts(const Backward& a, Costs costs, std::ptrdiff_t place) {
  const int parts = parts_of(a);
  if (parts == 1) return costs;
  const double elements = 2.0 * a.batch * a.kv_heads * a.seq_k * a.dim;
  const double bytes = static_cast<double>(problem::bytes(a.dtype)) * elements;
  costs[1].bytes_written += (parts - 1) * bytes;
  costs.insert(costs.begin() + place, {"add_parts", parts * elements, parts * bytes, bytes});
  return costs;
}
inline Costs deterministic_costs(const Backward& a) {
  const char* kernel = a.dim <= 64 ? "backward_tuned_64" : "backward_tuned_128";
  return with_add_parts(a,
                        {prepare_chunks_cost(a, false), problem::backward_cost(a, kernel, 4, BackwardResult::dk_dv),
                         problem::backward_cost(a, "gradient_of_queries_32", 3, BackwardResult::dq), repair_cost},
                        3);
}
inline Costs any_dim_costs(const Backward& a) {
  const double sums = sizeof(float) * static_cast<double>(a.batch) * a.heads * a.seq_q * a.dim;
  return run::with_options(a, Costs{problem::prepare_cost(a, false),
                                    {"zero_sums", 0, 0, sums},
                                    problem::backward_cost(a, "backward_any_dim", a.dim > 128 ? 7 : 5, BackwardResult::all),
                                    problem::convert_cost(a, "convert_padded"),
                                    repair_cost});
}
inline Costs tiled_costs(const Backward& a, const std::string& kernel, const std::string& convert = "convert_blocks") {
  return run::with_options(a, Costs{prepare_chunks_cost(a, true), problem::backward_cost(a, kernel, 5, BackwardResult::all),
                                    problem::convert_cost(a, convert), repair_cost});
}

}  // namespace backward
