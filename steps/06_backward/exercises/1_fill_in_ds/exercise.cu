// Exercise 1 of step 06: two kernels that walk over all pairs, with the shares that you write in task.cuh.
#include "../exercise.h"
#include EXERCISE_KERNEL

namespace {

using namespace backward;

constexpr int threads = 64;

struct Inputs {
  Heads<const float> q;    // [batch, heads, seq_q, dim]
  Heads<const float> k;    // [batch, kv_heads, seq_k, dim]
  Heads<const float> v;    // [batch, kv_heads, seq_k, dim]
  Heads<const float> o;    // [batch, heads, seq_q, dim]
  Heads<const float> d_o;  // [batch, heads, seq_q, dim]
  const float* lse;        // [batch, heads, seq_q]
};

__device__ float dot(const float* a, const float* b, int dim) {
  float sum = 0.0f;
  for (int t = 0; t < dim; ++t) sum += a[t] * b[t];
  return sum;
}

__device__ exercise::Shares shares_of(const AttentionShape& shape, const Inputs& in, int batch, int head, int i, int j) {
  const float *k = in.k.row(batch, shape.kv_head(head), j), *v = in.v.row(batch, shape.kv_head(head), j);
  const float* d_o = in.d_o.row(batch, head, i);
  return exercise::shares(shape, i, j, dot(in.q.row(batch, head, i), k, shape.dim), dot(d_o, v, shape.dim),
                          dot(d_o, in.o.row(batch, head, i), shape.dim),
                          in.lse[(std::int64_t{batch} * shape.heads + head) * shape.seq_q + i]);
}

// A thread has a query: dQ. Grid: x over queries, y over heads, z over the batch.
__global__ void __launch_bounds__(threads) sum_over_keys(AttentionShape shape, Inputs in,
                                                         Heads<float> dq) {  // [batch, heads, seq_q, dim]
  const int i = blockIdx.x * threads + threadIdx.x, head = blockIdx.y, batch = blockIdx.z;
  if (i >= shape.seq_q) return;
  float acc_dq[exercise_dim] = {};
  for (int j = 0; j < shape.seq_k; ++j) {
    const float share = shares_of(shape, in, batch, head, i, j).dq;
    const float* k = in.k.row(batch, shape.kv_head(head), j);
    for (int t = 0; t < shape.dim; ++t) acc_dq[t] += share * k[t];
  }
  for (int t = 0; t < shape.dim; ++t) dq.row(batch, head, i)[t] = acc_dq[t];
}

// A thread has a key: dK and dV. Grid: x over keys, y over key/value heads, z over the batch.
__global__ void __launch_bounds__(threads) sum_over_queries(AttentionShape shape, Inputs in,
                                                            Heads<float> dk,    // [batch, kv_heads, seq_k, dim]
                                                            Heads<float> dv) {  // [batch, kv_heads, seq_k, dim]
  const int j = blockIdx.x * threads + threadIdx.x, kv_head = blockIdx.y, batch = blockIdx.z;
  if (j >= shape.seq_k) return;
  const int group = shape.heads / shape.kv_heads;
  float acc_dk[exercise_dim] = {}, acc_dv[exercise_dim] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int i = 0; i < shape.seq_q; ++i) {
      const exercise::Shares share = shares_of(shape, in, batch, head, i, j);
      const float *q = in.q.row(batch, head, i), *d_o = in.d_o.row(batch, head, i);
      for (int t = 0; t < shape.dim; ++t) {
        acc_dk[t] += share.dk * q[t];
        acc_dv[t] += share.dv * d_o[t];
      }
    }
  }
  for (int t = 0; t < shape.dim; ++t) {
    dk.row(batch, kv_head, j)[t] = acc_dk[t];
    dv.row(batch, kv_head, j)[t] = acc_dv[t];
  }
}

void launch(const run::BackwardLaunch& l) {
  const auto& a = l.shape;
  const Inputs in = {l.q.as<const float>(), l.k.as<const float>(),   l.v.as<const float>(),
                     l.o.as<const float>(), l.d_o.as<const float>(), l.lse};
  runtime::launch(sum_over_keys, {.grid = grid_of(ceil_div(a.seq_q, threads), a.heads, a.batch), .block = threads},
                  l.device_shape(), in, l.dq.as<float>());
  runtime::launch(sum_over_queries, {.grid = grid_of(ceil_div(a.seq_k, threads), a.kv_heads, a.batch), .block = threads},
                  l.device_shape(), in, l.dk.as<float>(), l.dv.as<float>());
}
Costs costs(const Backward& a) {
  return {problem::backward_cost(a, "sum_over_keys", 3, BackwardResult::dq),
          problem::backward_cost(a, "sum_over_queries", 4, BackwardResult::dk_dv)};
}

}  // namespace

run::AnyStep run::this_step() {
  static const BackwardStep step =
      exercise_step("exercise_06_1", "What does a pair add to dQ, dK and dV?", problem::Dtype::fp32,
                    {.name = "yours", .idea = "all pairs, with the shares that you write", .cost = costs, .launch = launch});
  return &step;
}
