// Step 09: the rung without tensor cores.
#include "common/run/family/score_options.h"
#include "steps/09_decoding/08_any_dim.cuh"
#include "steps/09_decoding/launches.h"

namespace decoding {
namespace {

constexpr int blocks_per_sm = 4;

std::int64_t queries_of(const Attention& a) { return std::int64_t{a.batch} * a.heads * a.seq_q; }
// As many as give each SM its blocks, but not more than groups of keys that a block takes at a time.
int splits_of_query(const Attention& a) {
  const std::int64_t wanted = multiprocessors() * blocks_per_sm / queries_of(a);
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, ceil_div(a.seq_k, any_dim_warps * keys_at_a_time)));
}

void launch_any_dim(const AttentionLaunch& l) {
  const QueryParts parts{splits_of_query(l.shape), l.arrays.get<float>("parts of O"),
                         l.arrays.get<SoftmaxState>("states of parts")};
  const auto queries = static_cast<unsigned>(queries_of(l.shape));
  device::with_type(l.shape.dtype, [&]<class T>(T) {
    device::with_at_least<64, 128, most_dim>(l.shape.dim, [&]<int dim>(device::Constant<dim>) {
      run::with_score_options<T>(l, [&]<class Shape>(const Shape& shape) {
        runtime::launch(any_dim<T, dim / 32, Shape>,
                        {.grid = queries * static_cast<unsigned>(parts.splits),
                         .block = any_dim_threads,
                         .shared_bytes = sizeof(AnyDimSmem)},
                        shape, l.q.as<const T>(), l.k.as<const T>(), l.v.as<const T>(), parts);
      });
    });
    run::with_score_options<T>(l, [&]<class Shape>(const Shape& shape) {
      runtime::launch(combine_any_dim<T, Shape>, {.grid = queries, .block = any_dim_threads}, shape, parts, l.o.as<T>(), l.lse);
    });
  });
}

run::Arrays arrays_of(const Attention& a) {
  const std::int64_t places = queries_of(a) * splits_of_query(a);
  return {run::scratch("parts of O", problem::Dtype::fp32, {places, a.dim}),
          run::scratch("states of parts", problem::Dtype::fp32, {places, 2})};
}

}  // namespace

Rung any_dim_rung() {
  return {launch_any_dim, [](const Attention&) { return sizeof(AnyDimSmem); }, arrays_of};
}

}  // namespace decoding
