// Step 09, host side: from a launch to what kernels take. Shared by the files of launches, the exercises and the tests.
#pragma once

#include "steps/09_decoding/launches.h"
#include "steps/09_decoding/merge.cuh"

namespace decoding {

// The parameters that all tensor-core kernels begin with.
template <class T>
struct Operands {
  Heads<const T> q, k, v;
  Outputs<T> outputs;

  explicit Operands(const AttentionLaunch& l)
      : q(l.q.as<const T>()), k(l.k.as<const T>()), v(l.v.as<const T>()), outputs{l.o.as<T>(), l.lse} {}
};

// Calls f(T{}, Constant<dim>) for the type and the head dim of a problem, of these dims.
template <int... dims, class F>
void with_rows(const Attention& a, F f) {
  device::with_16_bit_type(a.dtype,
                           [&]<class T>(T type) { device::with_at_least<dims...>(a.dim, [&](auto dim) { f(type, dim); }); });
}

// The arrays of Parts, with so many places.
inline run::Arrays parts_arrays(const Attention& a, std::int64_t places) {
  return {run::scratch("parts of O", problem::Dtype::fp32, {places, item_rows, a.dim}),
          run::scratch("states of parts", problem::Dtype::fp32, {places, item_rows, 2})};
}
template <int dim>
Parts<dim> parts_of(const AttentionLaunch& l) {
  return {l.arrays.get<float4>("parts of O"), l.arrays.get<SoftmaxState>("states of parts")};
}

// Of `tuned`: one block fills an SM. Where two have room, a dependent launch begins too early, and unevenly.
template <int dim>
using LargeTile = Tile<dim, dim <= 128 ? 8 : 4,
                       dim <= 32   ? 8
                       : dim <= 64 ? 6
                                   : 3>;

inline unsigned blocks(std::int64_t count) { return static_cast<unsigned>(count); }

}  // namespace decoding
