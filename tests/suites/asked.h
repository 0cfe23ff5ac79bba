// The inputs of a case and what their outputs must be: made once, for all variants that are tried with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

namespace suite {

template <class Truth, class Shape, class Kind>
struct Asked {
  Asked(const Shape& shape_, Kind kind_, std::uint64_t seed_)
      : shape(shape_), kind(kind_), seed(seed_), inputs(make_inputs(shape, seed, kind)), truth(shape, inputs) {}

  Shape shape;
  Kind kind;
  std::uint64_t seed;
  decltype(make_inputs(Shape{}, 0, Kind{})) inputs;
  Truth truth;
};

// asked_of<run::GemmTruth>(shape, kind, seed); valid until the next call. Kept are as many as the longest list has in three
// types.
template <class Truth, class Shape, class Kind>
const Asked<Truth, Shape, Kind>& asked_of(const Shape& shape, Kind kind, std::uint64_t seed) {
  constexpr std::size_t most = 150;
  static std::deque<Asked<Truth, Shape, Kind>> kept;
  const auto known = std::find_if(kept.begin(), kept.end(),
                                  [&](const auto& a) { return a.shape == shape && a.kind == kind && a.seed == seed; });
  if (known != kept.end()) return *known;
  if (kept.size() == most) kept.pop_front();
  return kept.emplace_back(shape, kind, seed);
}

}  // namespace suite
