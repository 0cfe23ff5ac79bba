// Step 09: several have taken different keys for the same rows. Their parts (m, l, O) become one by ⊕ of step 03
// (common/device/online_softmax.cuh).
#pragma once

#include "steps/09_decoding/rows.cuh"

namespace decoding {

// ---- the parts of a block's warps ----

// Where a warp hands over its part: O in fp32 takes as much memory as 16 keys and values, so it goes where the warp has just
// read some, and where no copy is under way.
template <class T, int dim>
__device__ float* part_of_o(KeysAndValues<T, dim>& read) {
  return reinterpret_cast<float*>(&read);
}
// What warps with a ring of such stages each have.
template <class T, class Tile>
struct RingSmem {
  alignas(16) KeysAndValues<T, Tile::dim> ring[Tile::warps][Tile::stages];
  SoftmaxState states[Tile::warps][item_rows];
};

// The place of a column in a row of such a part: four rows begin in different banks. `column` is even.
__device__ inline int spread(int row, int column) { return column ^ row % 4 * 8; }

__device__ inline void add_scaled(float4& sum, float factor, const float4& part) {
  sum.x += factor * part.x;
  sum.y += factor * part.y;
  sum.z += factor * part.z;
  sum.w += factor * part.w;
}

// A row's state, and four columns of its O, not yet divided.
struct Merged {
  SoftmaxState state;
  float4 o;
};

// The merge of `count` parts, in their order: state_at(i) and o_at(i) are where part i lies.
// [doc: merged]
template <class StateAt, class OAt>
__device__ Merged merged(int count, const StateAt& state_at, const OAt& o_at) {
  float m = -INFINITY;
#pragma unroll 4
  for (int i = 0; i < count; ++i) m = fmaxf(m, load(&state_at(i)->m));
  Merged sum = {{m, 0.0f}, {}};
#pragma unroll 4
  for (int i = 0; i < count; ++i) {
    const SoftmaxState part = load(state_at(i));
    const float factor = device::rescale_factor(part.m, m);
    sum.state.l += factor * part.l;
    add_scaled(sum.o, factor, load(o_at(i)));
  }
  return sum;
}
// [/doc: merged]

// [doc: merge_warps]

// Merges what the warps have. place(w) is where warp w hands over O. Calls emit(row, column, state, o) for every row of the
// item and every fourth column, with the row's state and four columns of O, not yet divided. All threads of the block call;
// when the call returns, nobody reads the places any more.
template <class Tile, class T, class Shape, class Place, class Emit>
__device__ void merge_warps(SoftmaxState (&states)[Tile::warps][item_rows], const WarpRows<T, Tile::dim, Shape>& rows,
                            int count, const Place& place, const Emit& emit) {
  constexpr int dim = Tile::dim;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float* mine = part_of_o<T, dim>(place(warp));
  __syncwarp();  // all lanes have read the keys and values that lay there
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = g + 8 * r;
    const SoftmaxState state{rows.states[r].m, flash_v2::quad_sum(rows.states[r].l)};
    if (row >= count) continue;
    if (t == 0) store(&states[warp][row], state);
#pragma unroll
    for (int p = 0; p < dim / 8; ++p) {
      store(reinterpret_cast<float2*>(&mine[row * dim + spread(row, 8 * p + 2 * t)]),
            make_float2(rows.acc[p][2 * r], rows.acc[p][2 * r + 1]));
    }
  }
  __syncthreads();  // all warps have handed over their parts
  for (int i = threadIdx.x; i < count * dim / 4; i += Tile::threads) {
    const int row = i / (dim / 4), column = i % (dim / 4) * 4;
    SoftmaxState parts[Tile::warps];
    SoftmaxState state;
#pragma unroll
    for (int w = 0; w < Tile::warps; ++w) {
      parts[w] = load(&states[w][row]);
      state.m = fmaxf(state.m, parts[w].m);
    }
    float4 o = {};
#pragma unroll
    for (int w = 0; w < Tile::warps; ++w) {
      const float factor = device::rescale_factor(parts[w].m, state.m);
      const float* part = part_of_o<T, dim>(place(w));
      state.l += factor * parts[w].l;
      add_scaled(o, factor, load(reinterpret_cast<const float4*>(&part[row * dim + spread(row, column)])));
    }
    emit(row, column, state, o);
  }
  __syncthreads();  // all have read the parts before the places get other values
}
// [/doc: merge_warps]

// ---- where results go ----

template <class T>
struct Outputs {
  Heads<T> o;  // [batch, heads, seq_q, dim]
  float* lse;  // [batch, heads, seq_q]

  // Four columns of a row whose parts are all merged.

  // [doc: store_row]
  template <class Shape>
  __device__ void store_row(const Shape& shape, const Work& work, const Item& item, int row, int column, SoftmaxState state,
                            const float4& sum) const {
    const Query query = query_of(work, item, row);
    const float of_keys = device::add_sink(shape, query.head, state), inverse = of_keys * device::inverse_sum(state.l);
    store(reinterpret_cast<uint2*>(&o.row(item.batch, query.head, query.i)[column]),
          make_uint2(device::packed<T>(sum.x * inverse, sum.y * inverse), device::packed<T>(sum.z * inverse, sum.w * inverse)));
    float* to = &lse[(std::int64_t{item.batch} * shape.heads + query.head) * shape.seq_q + query.i];
    store_if(column == 0, to, device::log_sum_exp(state));
  }
  // [/doc: store_row]
};

// ---- the parts of blocks, in global memory ----

// What a block has found for an item whose other keys other blocks take. Place n has 16 rows.
template <int dim>
struct Parts {
  float4* o;             // [places, 16, dim / 4]
  SoftmaxState* states;  // [places, 16]

  __device__ void put(int place, int row, int column, const SoftmaxState& state, const float4& part) const {
    const std::int64_t n = std::int64_t{place} * item_rows + row;
    store(&o[(n * dim + column) / 4], part);
    store_if(column == 0, &states[n], state);
  }

  //

  // [doc: merge_parts]

  // Merges `count` parts in the order of their keys, whoever came first: the result is the same in every run. place_of(i) is
  // the place of part i. The threads of a block share the work.
  template <class T, class Shape, class PlaceOf>
  __device__ void merge(int count, const PlaceOf& place_of, const Shape& shape, const Work& work, const Item& item,
                        const Outputs<T>& outputs) const {
    for (int i = threadIdx.x; i < item.rows * dim / 4; i += blockDim.x) {
      const int row = i / (dim / 4), column = i % (dim / 4) * 4;
      const auto row_of = [&](int part) { return std::int64_t{place_of(part)} * item_rows + row; };
      const Merged all = merged(
          count, [&](int part) { return &states[row_of(part)]; },
          [&](int part) { return &o[(row_of(part) * dim + column) / 4]; });
      outputs.store_row(shape, work, item, row, column, all.state, all.o);
    }
  }
  // [/doc: merge_parts]
};

}  // namespace decoding
