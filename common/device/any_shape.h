// A shape with every option, for kernels in which it costs nothing that matters to ask for each. They need to be compiled only
// once, not once for each kind of shape.
#pragma once

#include "common/device/dropout.h"
#include "common/device/packed.h"

namespace device {

struct AnyShape : PackedShape {
  Dropout dropout;
  bool drops;
  // first_token and end_token are null where no sequences are packed.

  // As in AttentionShape.
  __host__ __device__ int first_key(int i) const {
    return is_packed() ? PackedShape::first_key(i) : AttentionShape::first_key(i);
  }
  __host__ __device__ int end_key(int i) const { return is_packed() ? PackedShape::end_key(i) : AttentionShape::end_key(i); }
  __host__ __device__ int first_query(int j) const {
    return is_packed() ? PackedShape::first_query(j) : AttentionShape::first_query(j);
  }
  __host__ __device__ int end_query(int j) const {
    return is_packed() ? PackedShape::end_query(j) : AttentionShape::end_query(j);
  }

  // What P of a pair is multiplied by.
  __host__ __device__ float kept(int batch_entry, int head, int query, int key) const {
    if (!drops) return 1.0f;
    return dropout.keeps(batch_entry, head, query, key) ? dropout.factor() : 0.0f;
  }
  __host__ __device__ bool is_packed() const { return first_token != nullptr; }
};

// The first token of a token's sequence.
__host__ __device__ inline int first_of_sequence(const AnyShape& shape, int token) {
  return shape.is_packed() ? shape.first_token[token < shape.seq_q ? token : shape.seq_q - 1] : 0;
}

inline AnyShape any_shape(const AttentionShape& shape) { return {{shape, nullptr, nullptr}, {}, false}; }
inline AnyShape any_shape(const PackedShape& shape) { return {shape, {}, false}; }
template <class Shape>
AnyShape any_shape(const Dropped<Shape>& shape) {
  AnyShape any = any_shape(static_cast<const Shape&>(shape));
  any.dropout = shape.dropout;
  any.drops = true;
  return any;
}

}  // namespace device
