// Exercise 2 of step 06: a block reads sums to which other blocks add. Run it, read the report, mend task.cuh.
#include "../exercise.h"

namespace exercise {

using namespace backward;

// dQ = scale · its sums, of a head: by all threads of a block.
template <int threads>
__device__ void convert(const AttentionShape& shape, const float* dq_sums, const RowStatistics& rows, int batch, int head,
                        const Heads<__half>& dq) {
  for (int e = threadIdx.x; e < shape.seq_q * shape.dim; e += threads) {
    const int i = e / shape.dim, t = e % shape.dim;
    const float sum = dq_sums[rows.at(shape, batch, head, i) * shape.dim + t];
    store(&dq.row(batch, head, i)[t], from_float<__half>(shape.scale * sum));
  }
}

}  // namespace exercise

#include EXERCISE_KERNEL

namespace {

using namespace backward;

// Grid: over count.
__global__ void clear_arrivals(int count, int* arrived) {  // [count]
  const int n = blockIdx.x * 32 + threadIdx.x;
  if (n < count) arrived[n] = 0;
}

run::Arrays arrays(const Backward& a) {
  return sums_arrays(a) + run::Arrays{run::scratch("arrived", run::Element::int32(), {a.batch, a.kv_heads})};
}

void launch(const run::BackwardLaunch& l) {
  const auto& a = l.shape;
  float* dq_sums = l.arrays.get<float>("dq_sums");
  int* arrived = l.arrays.get<int>("arrived");
  launch_prepare<__half>(l, dq_sums);
  const int count = a.batch * a.kv_heads;
  runtime::launch(clear_arrivals, {.grid = dim3(static_cast<unsigned>(ceil_div(count, 32))), .block = 32}, count, arrived);
  runtime::launch(exercise::gradients,
                  {.grid = grid_of(ceil_div(a.seq_k, exercise::warps), a.kv_heads, a.batch),
                   .block = 32 * exercise::warps,
                   .shared_bytes = sizeof(exercise::Smem)},
                  l.device_shape(), l.q.as<const __half>(), l.k.as<const __half>(), l.v.as<const __half>(),
                  l.d_o.as<const __half>(), statistics_of(l), dq_sums, arrived, l.dq.as<__half>(), l.dk.as<__half>(),
                  l.dv.as<__half>());
}
Costs costs(const Backward& a) {
  return {problem::prepare_cost(a, true),
          {"clear_arrivals", 0, 0, sizeof(int) * static_cast<double>(a.batch) * a.kv_heads},
          problem::backward_cost(a, "gradients", 5, BackwardResult::all)};
}

}  // namespace

run::AnyStep run::this_step() {
  static const BackwardStep step = exercise_step("exercise_06_2", "Who may read the sums, and when?", problem::Dtype::fp16,
                                                 {.name = "yours",
                                                  .idea = "the last block converts",
                                                  .shared_bytes = [](const Backward&) { return sizeof(exercise::Smem); },
                                                  .scratch = arrays,
                                                  .cost = costs,
                                                  .launch = launch,
                                                  .deterministic = false});
  return &step;
}
