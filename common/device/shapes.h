// What kernels know of an attention problem: where its tensors lie, its sizes and masks, packed sequences, and which tiles of
// keys a tile of queries needs. Used on both sides of a launch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/device/dialect.h"
#include "common/device/visibility.h"

namespace device {

// ---- views of tensors in device memory ----

// A [batch, heads, rows, dim] tensor. Only dim is contiguous: batch, head and row may lie anywhere, so the same kernel reads
// [batch, heads, rows, dim] and [batch, rows, heads, dim] arrays. Strides count elements.
template <class T>
struct Heads {
  T* data;
  std::int64_t batch_stride;
  std::int64_t head_stride;
  std::int64_t row_stride;

  __host__ __device__ T* row(int batch, int head, int row) const {  // [dim]
    return data + batch * batch_stride + head * head_stride + row * row_stride;
  }
};

// The same without its element type: what the runner hands to a step, which knows the dtype.
template <bool Const>
struct AnyHeads {
  std::conditional_t<Const, const void*, void*> data;
  std::int64_t batch_stride;
  std::int64_t head_stride;
  std::int64_t row_stride;

  template <class T>
  Heads<T> as() const {
    return {static_cast<T*>(data), batch_stride, head_stride, row_stride};
  }
};

// ---- sizes and masks ----

struct AttentionShape {
  int batch;
  int heads;     // query heads
  int kv_heads;  // each is shared by heads / kv_heads query heads
  int seq_q;
  int seq_k;
  int dim;
  bool causal;
  float scale;
  int window;  // N > 0: query i sees key j only if |i + seq_k − seq_q − j| < N; 0: no window

  // The key/value head that a query head reads.
  __host__ __device__ int kv_head(int head) const { return head / (heads / kv_heads); }

  // What sees what, as visibility.h says. Query i lies beside key own_key(i): the last query beside the last key.
  __host__ __device__ int own_key(int i) const { return visibility::own_key(*this, i); }

  // Query i sees the keys 0 … visible_keys(i) − 1. Where causal attention has seq_q > seq_k, the first seq_q − seq_k queries
  // see none.
  __host__ __device__ int visible_keys(int i) const { return visibility::visible_keys(*this, i); }

  // With windows, too: the keys first_key(i) … end_key(i) − 1, none where first_key(i) ≥ end_key(i). Both grow with i.
  __host__ __device__ int first_key(int i) const { return visibility::first_key(*this, i); }
  __host__ __device__ int end_key(int i) const { return visibility::end_key(*this, i); }

  // The other way round: key j is seen by the queries first_query(j) … end_query(j) − 1. Both grow with j.
  __host__ __device__ int first_query(int j) const { return visibility::first_query(*this, j); }
  __host__ __device__ int end_query(int j) const { return visibility::end_query(*this, j); }
};

// ---- packed sequences ----

// Several texts of different lengths stand behind each other in one batch entry, without padding, as models are trained.
// `cu_seqlens` holds the sums of their lengths: sequence s has the tokens cu_seqlens[s] … cu_seqlens[s + 1] − 1, which may be
// none. A token sees only its own sequence. That is one more mask, and as with the others both ends of what a token sees grow
// with the token: the walk over tiles and their edges stays as it is.

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

// ---- ALiBi (Press et al. 2022) ----

// Its slopes. Of n heads, a power of two, head h has 2^(−M · (h + 1) / n). Of another number the first p heads, with p the
// largest power of two below, have the slopes of p heads, and the others every second slope of 2 p heads.
struct AlibiSlopes {
  float largest;  // M, the exponent of the last head; 0: no ALiBi
  int first;      // p

  __host__ __device__ float of(int head) const {
    const int n = head < first ? head + 1 : 2 * (head - first) + 1;
    return exp2f(-largest * static_cast<float>(n) / static_cast<float>(head < first ? first : 2 * first));
  }
};

inline AlibiSlopes alibi_slopes(float largest, int heads) {
  int first = 1;
  while (first <= heads / 2) first *= 2;
  return {largest, first};
}

}  // namespace device

namespace flash_v2 {

// ---- tiles of keys: masks and their edges, counted in tiles ----

using device::AttentionShape;

// Which tiles of `keys` keys a tile of queries needs: begin … end − 1; none where begin = end. Every query sees every key of
// the tiles free_begin … free_end − 1, which need no mask. Tiles to the left of them are cut by a window or the begin of a
// packed sequence, tiles to the right by the causal diagonal, a window or an end: of the keys, or of a packed sequence.
struct KeyTiles {
  int begin, free_begin, free_end, end;
};
// [doc: key_tiles]
template <class Shape>
__host__ __device__ inline KeyTiles key_tiles(const Shape& shape, int first_query, int queries, int keys) {
  const int last_query = first_query + queries - 1;
  const int first = shape.first_key(first_query), last = shape.end_key(last_query);  // what some query sees
  if (first >= last) return {0, 0, 0, 0};
  const int begin = first / keys, end = (last + keys - 1) / keys;
  // What every query sees: both ends of a row's keys grow with the row.
  const int free_begin = (shape.first_key(last_query) + keys - 1) / keys;
  const int free_end = shape.end_key(first_query) / keys;
  if (free_begin >= free_end) return {begin, begin, begin, end};  // there is no such tile: all have a mask
  return {begin, free_begin, free_end, end};
}
// [/doc: key_tiles]

}  // namespace flash_v2
