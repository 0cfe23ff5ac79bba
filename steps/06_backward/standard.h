// Step 06, host side: the scratch memory and the launches of `standard`.
#pragma once

#include "steps/06_backward/01_standard.cuh"
#include "steps/06_backward/launches.h"

namespace backward {

inline run::Arrays standard_arrays(const problem::Backward& a) {
  const auto pairs = [&](const char* name) {
    return run::scratch(name, problem::Dtype::fp32, {a.batch, a.heads, a.seq_q, a.seq_k});
  };
  return statistics_arrays(a) + run::Arrays{pairs("p"), pairs("dp"), pairs("ds")};
}

inline void launch_standard(const run::BackwardLaunch& l) {
  with_type(l.shape.dtype, [&]<class T>(T) {
    const auto& a = l.shape;
    const auto shape = l.device_shape();
    const auto q = l.q.as<const T>(), k = l.k.as<const T>(), v = l.v.as<const T>(), d_o = l.d_o.as<const T>();
    float *p = l.arrays.get<float>("p"), *dp = l.arrays.get<float>("dp"), *ds = l.arrays.get<float>("ds");
    const RowStatistics rows = statistics_of(l);
    const int tiles = ceil_div(a.seq_k, standard_keys) * ceil_div(a.seq_q, standard_rows);
    const runtime::LaunchConfig pairs = {.grid = grid_of(tiles, a.heads, a.batch), .block = dim3(standard_keys, standard_rows)};
    const auto elements = [&](std::int64_t rows_of_head, int heads) {
      return runtime::LaunchConfig{
          .grid = grid_of(ceil_div<std::int64_t>(rows_of_head * a.dim, standard_threads), heads, a.batch),
          .block = standard_threads};
    };
    launch_prepare<T>(l, nullptr);
    runtime::launch(probabilities<T>, pairs, shape, q, k, rows, p);
    runtime::launch(row_products<T>, pairs, shape, d_o, v, dp);
    runtime::launch(row_softmax_gradient, pairs, shape, p, dp, rows, ds);
    runtime::launch(over_queries<T>, elements(a.seq_k, a.kv_heads), shape, p, d_o, 1.0f, l.dv.as<T>());
    runtime::launch(over_keys<T>, elements(a.seq_q, a.heads), shape, ds, k, l.dq.as<T>());
    runtime::launch(over_queries<T>, elements(a.seq_k, a.kv_heads), shape, ds, q, shape.scale, l.dk.as<T>());
  });
}

}  // namespace backward
