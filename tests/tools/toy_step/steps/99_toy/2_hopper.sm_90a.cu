// 99_toy, hopper: a block a row, compiled for sm_90a alone.
// Predecessor: 1_row_per_thread.cuh
//
// The file's name says for which architecture it is compiled (cmake/architectures.cmake), and its variant that it needs that
// one.
#include "common/device/dialect.h"
#include "common/runtime/launch.h"
#include "steps/99_toy/launches.h"

namespace toy {
namespace {

// A block a row. Grid: x over rows. One thread.
__global__ void row_per_block(int cols, const float* x, int ldx,  // [rows, cols]
                              float* y, int ldy) {                // [rows, cols]
  const float* from = x + std::int64_t{blockIdx.x} * ldx;
  float* to = y + std::int64_t{blockIdx.x} * ldy;
  float maximum = -INFINITY, sum = 0.0f;
  for (int j = 0; j < cols; ++j) maximum = from[j] != from[j] || maximum != maximum ? NAN : fmaxf(maximum, from[j]);
  const float subtracted = maximum == -INFINITY ? 0.0f : maximum;
  for (int j = 0; j < cols; ++j) sum += expf(from[j] - subtracted);
  const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
  for (int j = 0; j < cols; ++j) to[j] = expf(from[j] - subtracted) * factor;
}

}  // namespace

void launch_on_hopper(const run::SoftmaxLaunch& l) {
  runtime::launch(row_per_block, {.grid = static_cast<unsigned>(l.shape.rows), .block = 1}, l.shape.cols,
                  static_cast<const float*>(l.x), l.shape.ldx, static_cast<float*>(l.y), l.shape.ldy);
}

}  // namespace toy
