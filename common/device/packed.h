// Packed sequences: several texts of different lengths stand behind each other in one batch entry, without padding, as models
// are trained. `cu_seqlens` holds the sums of their lengths: sequence s has the tokens cu_seqlens[s] … cu_seqlens[s + 1] − 1,
// which may be none. A token sees only its own sequence. That is one more mask, and as with the others both ends of what a
// token sees grow with the token: the walk over tiles and their edges stays as it is.
#pragma once

#include "common/device/mask.h"

namespace device {

using visibility::larger;
using visibility::smaller;

// A shape whose queries and keys are the same packed tokens: seq_q = seq_k. Kernels take it in place of an AttentionShape, as a
// template parameter, so that their machine code without packed sequences stays as it is.
struct PackedShape : AttentionShape {
  const int* first_token;  // [seq_q] the first token of each token's sequence
  const int* end_token;    // [seq_q] the first one behind it

  // As in AttentionShape. Tokens beyond the last count as the last.
  __host__ __device__ int first_key(int i) const { return larger(AttentionShape::first_key(i), first_token[inside(i)]); }
  __host__ __device__ int end_key(int i) const { return smaller(AttentionShape::end_key(i), end_token[inside(i)]); }
  __host__ __device__ int first_query(int j) const { return larger(AttentionShape::first_query(j), first_token[inside(j)]); }
  __host__ __device__ int end_query(int j) const { return smaller(AttentionShape::end_query(j), end_token[inside(j)]); }
  int visible_keys(int i) const = delete;  // no token's keys begin at 0, but those of the first sequence

 private:
  __host__ __device__ int inside(int token) const { return smaller(token, seq_q - 1); }
};

}  // namespace device
