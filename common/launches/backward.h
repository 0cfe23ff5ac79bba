// The backward pass, host side: the scratch memory of the row statistics and of dQ's sums, and the kernels around the main one.
#pragma once

#include <climits>
#include <string>

#include "common/device/backward/rows.cuh"
#include "common/device/dispatch.h"
#include "common/run/family/backward.h"
#include "common/run/family/heads.h"
#include "common/runtime/launch.h"

namespace backward {

inline int padded_rows(const problem::Attention& a) { return ceil_div(a.seq_q, row_padding) * row_padding; }

// What of a problem the kernels around the main one cannot count in 32 bits, in words; empty: nothing. They number key/value
// heads (RowStatistics::flag), the queries of heads that share one (repair_rows), and the chunks of a head's rows
// (prepare_chunks).
inline std::string too_large(const problem::Attention& a) {
  if (std::int64_t{a.batch} * a.kv_heads > INT_MAX) return "2^31 or more key/value heads in all batch entries";
  if (std::int64_t{a.heads / a.kv_heads} * a.seq_q > 1 << 30)
    return "more than 2^30 queries of the heads that share a key/value head";
  if (padded_rows(a) >= 1 << 28) return "2^28 or more queries, counted in whole tiles";
  return "";
}

inline dim3 grid_of(std::int64_t x, int heads, int batch) {
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(heads), static_cast<unsigned>(batch));
}

// Scratch memory of every variant: LSE and D of each row, and the flags.
inline run::Arrays statistics_arrays(const problem::Backward& a) {
  const std::vector<std::int64_t> rows = {a.batch, a.heads, padded_rows(a)};
  return {run::scratch("lse2", problem::Dtype::fp32, rows), run::scratch("minus_delta", problem::Dtype::fp32, rows),
          run::scratch("not_finite", problem::Dtype::fp32, {a.batch, a.kv_heads})};
}
// And of those that add up dQ in global memory.
inline run::Arrays sums_arrays(const problem::Backward& a) {
  return statistics_arrays(a) +
         run::Arrays{run::scratch("dq_sums", problem::Dtype::fp32, {a.batch, a.heads, padded_rows(a), a.dim})};
}

inline RowStatistics statistics_of(const run::BackwardLaunch& l) {
  return {l.arrays.get<float>("lse2"), l.arrays.get<float>("minus_delta"), padded_rows(l.shape),
          l.arrays.get<float>("not_finite")};
}

// The launches are static: a file that is compiled for newer devices alone has its own, and the linker must not give them to
// the others, which run everywhere.

// A warp for each padded row.
template <class T>
static void launch_prepare(const run::BackwardLaunch& l, float* dq_sums) {
  runtime::launch(
      prepare_rows<T>,
      {.grid = grid_of(padded_rows(l.shape) / prepare_warps, l.shape.heads, l.shape.batch), .block = 32 * prepare_warps},
      l.device_shape(), l.o.as<const T>(), l.d_o.as<const T>(), l.lse, statistics_of(l), dq_sums);
}
// A thread for 8 columns of a padded row: elements of 16 bits, rows at multiples of 16 bytes.
template <class T>
static void launch_prepare_chunks(const run::BackwardLaunch& l, float* dq_sums) {
  const auto launch = [&](const auto& kernel, int lanes) {
    runtime::launch(kernel,
                    {.grid = grid_of(padded_rows(l.shape) / (32 * prepare_warps / lanes), l.shape.heads, l.shape.batch),
                     .block = 32 * prepare_warps},
                    l.device_shape(), l.o.as<const T>(), l.d_o.as<const T>(), l.lse, statistics_of(l), dq_sums);
  };
  if (l.shape.dim <= 32) return launch(prepare_chunks<T, 4>, 4);
  if (l.shape.dim <= 64) return launch(prepare_chunks<T, 8>, 8);
  launch(prepare_chunks<T, 16>, 16);
}
template <class T>
static void launch_convert(const run::BackwardLaunch& l) {
  runtime::launch(convert_dq<T>,
                  {.grid = grid_of(ceil_div<std::int64_t>(std::int64_t{l.shape.seq_q} * l.shape.dim, convert_threads),
                                   l.shape.heads, l.shape.batch),
                   .block = convert_threads},
                  l.device_shape(), l.arrays.get<float>("dq_sums"), statistics_of(l), l.dq.as<T>());
}
// A thread for 16 columns of a row.
template <class T>
static void launch_convert_blocks(const run::BackwardLaunch& l) {
  runtime::launch(convert_blocks<T>,
                  {.grid = grid_of(ceil_div<std::int64_t>(std::int64_t{l.shape.seq_q} * (l.shape.dim / 16), convert_threads),
                                   l.shape.heads, l.shape.batch),
                   .block = convert_threads},
                  l.device_shape(), l.arrays.get<float>("dq_sums"), statistics_of(l), l.dq.as<T>());
}

}  // namespace backward
