// Step 06, host side: what the variants take.
#pragma once

#include "common/run/family/backward.h"

namespace backward {

using problem::Dtype;
using run::AttentionSupport;

inline const AttentionSupport tiles_16_bit = {
    .dtypes = {Dtype::fp16, Dtype::bf16}, .dims = {32, 64, 96, 128}, .window = true, .row_alignment = 16};
// dK and dV of 32 longer rows do not fit into the registers of a warp.
inline const AttentionSupport short_rows = {
    .dtypes = {Dtype::fp16, Dtype::bf16}, .dims = {32, 64}, .window = true, .row_alignment = 16};
inline const AttentionSupport long_rows = {
    .dtypes = {Dtype::fp16, Dtype::bf16}, .dims = {96, 128}, .window = true, .row_alignment = 16};
inline const AttentionSupport any_16_bit = {.dtypes = {Dtype::fp16, Dtype::bf16}, .window = true};
inline const AttentionSupport any_type = {.dtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16}, .window = true};

inline AttentionSupport with_options(AttentionSupport supports, bool both = false) {
  supports.packed = supports.dropout = true;
  supports.packed_dropout = both;
  return supports;
}

}  // namespace backward
