// Step 06, host side: the scratch memory and the launch of parts, where query heads that share keys are split over blocks.
#pragma once

#include <optional>

#include "steps/06_backward/15_shared_heads.cuh"
#include "steps/06_backward/launches.h"
#include "steps/06_backward/parts.h"

namespace backward {

// Scratch memory of the tuned rungs, which may be split: that of any rung, and what the parts make. A part has a flag of its
// own.
inline run::Arrays with_parts(run::Arrays arrays, const problem::Backward& a) {
  const int parts = parts_of(a);
  if (parts == 1) return arrays;
  for (run::Array& array : arrays) {
    if (array.name == "not_finite") array.shape = {a.batch, a.kv_heads * parts};
  }
  const std::vector<std::int64_t> shape = {a.batch, a.kv_heads, parts, a.seq_k, a.dim};
  return arrays + run::Arrays{run::scratch("dk_parts", a.dtype, shape), run::scratch("dv_parts", a.dtype, shape)};
}

// The heads [batch, groups · size, …] as [batch · groups, size, …]: nothing where one stride cannot reach all of them.
template <bool Const>
std::optional<device::AnyHeads<Const>> by_group(device::AnyHeads<Const> x, int batch, int groups, int size) {
  if (groups == 1) return x;
  if (batch > 1 && x.batch_stride != groups * size * x.head_stride) return {};
  x.batch_stride = size * x.head_stride;
  return x;
}

// The launch whose key/value heads are the parts; nothing where the rows lie so that no strides can say it. Its batch entries
// are the key/value heads of all batch entries, its heads those of a group. So row statistics and the sums of dQ lie where they
// lie for the whole. Flags do not: a part raises that of some head, where repair_rows then finds nothing. add_parts raises the
// right one.
inline std::optional<run::BackwardLaunch> in_parts(const run::BackwardLaunch& l) {
  run::BackwardLaunch of_parts = l;  // behind the test below g++ 13 warns of its empty vector
  const problem::Backward& a = l.shape;
  const int parts = parts_of(a), group = a.heads / a.kv_heads;
  if (parts == 1) return {};
  const auto q = by_group(l.q, a.batch, a.kv_heads, group), o = by_group(l.o, a.batch, a.kv_heads, group),
             d_o = by_group(l.d_o, a.batch, a.kv_heads, group);
  auto k = by_group(l.k, a.batch, a.kv_heads, 1), v = by_group(l.v, a.batch, a.kv_heads, 1);
  if (!q || !o || !d_o || !k || !v) return {};
  k->head_stride = v->head_stride = 0;
  const std::int64_t size = std::int64_t{a.seq_k} * a.dim;
  of_parts.shape.batch = a.batch * a.kv_heads;
  of_parts.shape.heads = group;
  of_parts.shape.kv_heads = parts;
  of_parts.q = *q;
  of_parts.o = *o;
  of_parts.d_o = *d_o;
  of_parts.k = *k;
  of_parts.v = *v;
  of_parts.dk = {l.arrays.get<void>("dk_parts"), parts * size, size, a.dim};
  of_parts.dv = {l.arrays.get<void>("dv_parts"), parts * size, size, a.dim};
  return of_parts;
}

template <class T>
static void launch_add_parts(const run::BackwardLaunch& l) {
  const problem::Backward& a = l.shape;
  runtime::launch(
      add_parts<T>,
      {.grid = grid_of(ceil_div<std::int64_t>(std::int64_t{a.seq_k} * (a.dim / 8), add_threads), a.kv_heads, a.batch),
       .block = add_threads},
      l.device_shape(), parts_of(a), l.arrays.get<const T>("dk_parts"), l.arrays.get<const T>("dv_parts"), statistics_of(l),
      l.dk.as<T>(), l.dv.as<T>());
}

// As launch_rung, in parts where that is possible.
template <template <class, int> class Rung, int... dims>
void launch_shared(const run::BackwardLaunch& l) {
  const std::optional<run::BackwardLaunch> of_parts = in_parts(l);
  if (!of_parts) return launch_rung<Rung, dims...>(l);
  with_16_bit_type(l.shape.dtype, [&]<class T>(T) {
    float* dq_sums = l.arrays.get<float>("dq_sums");
    launch_prepare_chunks<T>(*of_parts, dq_sums);
    with_at_least<dims...>(l.shape.dim, [&](auto dim) {
      static_assert(Rung<T, dim>::by_lane);  // as launch_convert_blocks reads dQ's sums
      launch_keys<T, Rung<T, dim>>(*of_parts, Rung<T, dim>::kernel, of_parts->device_shape(), dq_sums);
    });
    launch_add_parts<T>(l);
    launch_convert_blocks<T>(l);
  });
  repair(l, device::any_shape(l.device_shape()));
}
template <template <class, int> class R, int... dims>
Rung shared_rung_of() {
  Rung rung = rung_of<R, dims...>();
  rung.launch = launch_shared<R, dims...>;
  return rung;
}

}  // namespace backward
