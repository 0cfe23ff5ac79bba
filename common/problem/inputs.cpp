// Random inputs that are the same everywhere: no state, no library function whose last bit differs between machines.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "common/problem/attention.h"
#include "common/problem/backward.h"
#include "common/problem/gemm.h"
#include "common/problem/linear.h"
#include "common/problem/softmax.h"
#include "common/problem/splitmix.h"

namespace problem {
namespace {

// Element n of a stream of numbers close to N(0, 1): how many of 64 random bits are set (mean 32, variance 16), plus the
// difference of two uniform numbers (variance 1/6), which closes the gaps between whole numbers. Whole-number arithmetic but
// for one product. Against a true normal distribution the excess kurtosis is −0.03, and no value lies beyond ±8.2.
float normal(std::uint64_t stream, std::uint64_t n) {
  constexpr double to_unit_variance = 0x1p-32 / 4.020779360604940;  // √(16 + 1/6)
  const std::int64_t set_bits = std::popcount(splitmix(stream, 2 * n));
  const std::uint64_t uniform = splitmix(stream, 2 * n + 1);
  const auto high = static_cast<std::int64_t>(uniform >> 32);
  const auto low = static_cast<std::int64_t>(uniform & 0xffffffff);
  const std::int64_t fixed_point = (set_bits - 32) * (std::int64_t{1} << 32) + high - low;
  return static_cast<float>(static_cast<double>(fixed_point) * to_unit_variance);
}

template <class Change>
void fill(Tensor& tensor, std::uint64_t stream, Dtype dtype, const Change& change) {
  for (std::size_t n = 0; n < tensor.values.size(); ++n) tensor.values[n] = round_to(dtype, change(normal(stream, n)));
}

// The stream of one tensor of a problem with that seed.
std::uint64_t stream_of(std::uint64_t seed, std::uint64_t tensor) { return splitmix(splitmix(seed, 0), tensor); }

float unchanged(float x) { return x; }

// What to multiply normal q by, so that scale · q · k has this standard deviation; 1 where the scale is so small that no fp32
// number does it.
float factor_for(double deviation, const Attention& shape) {
  const double as_it_is = std::abs(static_cast<double>(*shape.scale)) * std::sqrt(static_cast<double>(shape.dim));
  return as_it_is < 1e-30 ? 1.0f : static_cast<float>(deviation / as_it_is);
}

// Every row of a head becomes a copy of its first.
void repeat_first_row(Tensor& k, const Attention& shape) {
  const std::int64_t head_size = std::int64_t{shape.seq_k} * shape.dim;
  for (std::size_t n = 0; n < k.values.size(); ++n) {
    k.values[n] = k.values[n / head_size * head_size + n % static_cast<std::size_t>(shape.dim)];
  }
}

// Each query becomes a multiple of one key that it sees: with that key its score is about 16 · √dim, with the others within
// a few times 16.
void point_at_keys(Tensor& q, const Tensor& k, const Attention& shape, std::uint64_t stream) {
  const float factor = factor_for(16, shape) * (*shape.scale < 0 ? -1.0f : 1.0f);
  const std::int64_t rows = std::int64_t{shape.batch} * shape.heads * shape.seq_q;
  for (std::int64_t row = 0; row < rows; ++row) {
    const int i = static_cast<int>(row % shape.seq_q);
    const std::int64_t head = row / shape.seq_q;  // of all batch entries
    const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
    const int seen = shape.last_key(i) - shape.first_key(i);
    if (seen == 0) continue;
    const std::int64_t key = shape.first_key(i) + static_cast<std::int64_t>(splitmix(stream, row) % seen);
    const float* from = &k.values[(kv_head * shape.seq_k + key) * shape.dim];
    for (int d = 0; d < shape.dim; ++d) q.values[row * shape.dim + d] = round_to(shape.dtype, factor * from[d]);
  }
}

// Raises the first quarter of every row [k] by an offset, and makes the last quarter its mirror image, times a sign: what the
// first quarter adds to a product, the last one takes away.
void lift_and_drop(Tensor& tensor, Dtype dtype, float offset, float sign) {
  const auto k = static_cast<std::size_t>(tensor.shape.back());
  for (std::size_t row = 0; row < tensor.values.size(); row += k) {
    for (std::size_t j = 0; j < k / 4; ++j) {
      tensor.values[row + j] = round_to(dtype, tensor.values[row + j] + offset);
      tensor.values[row + k - 1 - j] = sign * tensor.values[row + j];
    }
  }
}

// The two operands of a product. A · Bᵀ has a mean of 1 and a variance of 1¼ + 4/k.
void fill_operands(Tensor& a, Dtype a_dtype, Tensor& b, Dtype b_dtype, std::uint64_t seed, bool cancelling) {
  const auto k = static_cast<float>(a.shape.back());
  const float root = std::sqrt(k);
  fill(a, stream_of(seed, 0), a_dtype, [](float x) { return x + 0.5f; });
  // An addition before a division: no compiler can fuse the two.
  fill(b, stream_of(seed, 1), b_dtype, [&](float x) { return (x + 2 / root) / root; });
  if (cancelling) {
    lift_and_drop(a, a_dtype, 8.0f, -1.0f);
    lift_and_drop(b, b_dtype, 50.0f / k, 1.0f);
  }
}

// Every token gives each expert a uniform score, names the best, and weighs each by its share of their scores.
void route(LinearInputs& in, const Linear& shape, std::uint64_t stream) {
  in.experts = Integers({shape.m, shape.top});
  in.routing = Tensor({shape.m, shape.top});
  std::vector<std::uint64_t> scores(shape.experts);
  std::vector<std::int32_t> order(shape.experts);
  for (std::int64_t t = 0; t < shape.m; ++t) {
    for (std::int64_t e = 0; e < shape.experts; ++e) scores[e] = (splitmix(stream, t * shape.experts + e) >> 32) + 1;
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + shape.top, order.end(),
                      [&](std::int32_t x, std::int32_t y) { return scores[x] != scores[y] ? scores[x] > scores[y] : x < y; });
    double sum = 0;
    for (int s = 0; s < shape.top; ++s) sum += static_cast<double>(scores[order[s]]);
    for (int s = 0; s < shape.top; ++s) {
      in.experts.values[t * shape.top + s] = order[s];
      in.routing.values[t * shape.top + s] = static_cast<float>(static_cast<double>(scores[order[s]]) / sum);
    }
  }
}

}  // namespace

AttentionInputs make_inputs(const Attention& unresolved, std::uint64_t seed, InputKind kind) {
  const Attention shape = resolve(unresolved);
  const auto stream = [&](std::uint64_t tensor) { return stream_of(seed, tensor); };
  AttentionInputs in{Tensor({shape.batch, shape.heads, shape.seq_q, shape.dim}),
                     Tensor({shape.batch, shape.kv_heads, shape.seq_k, shape.dim}),
                     Tensor({shape.batch, shape.kv_heads, shape.seq_k, shape.dim})};

  const float enlarge = kind == InputKind::large ? factor_for(100, shape) : 1.0f;
  fill(in.q, stream(0), shape.dtype, [&](float x) { return enlarge * x; });
  fill(in.k, stream(1), shape.dtype, unchanged);
  fill(in.v, stream(2), shape.dtype, [](float x) { return x + 0.5f; });
  if (kind == InputKind::one_hot) point_at_keys(in.q, in.k, shape, stream(3));
  if (kind == InputKind::uniform) repeat_first_row(in.k, shape);
  return in;
}

BackwardInputs make_inputs(const Backward& unresolved, std::uint64_t seed, InputKind kind) {
  const Backward shape = resolve(unresolved);
  AttentionInputs in = make_inputs(static_cast<const Attention&>(shape), seed, kind);
  Tensor d_o(in.q.shape);
  fill(d_o, stream_of(seed, 4), shape.dtype, unchanged);  // 0 to 3 are those of the forward pass
  return {std::move(in.q), std::move(in.k), std::move(in.v), std::move(d_o)};
}

GemmInputs make_inputs(const Gemm& unresolved, std::uint64_t seed, GemmInputKind kind) {
  const Gemm shape = resolve(unresolved);
  GemmInputs in{Tensor({shape.batch_a, shape.m, shape.k}), Tensor({shape.batch, shape.n, shape.k})};
  fill_operands(in.a, shape.dtype, in.b, shape.dtype, seed, kind == GemmInputKind::cancelling);
  return in;
}

LinearInputs make_inputs(const Linear& unresolved, std::uint64_t seed, LinearInputKind kind) {
  const Linear shape = resolve(unresolved);
  LinearInputs in{Tensor({shape.samples, shape.channels, shape.m, shape.k}),
                  Tensor({shape.weight_samples, shape.weight_channels, shape.n, shape.k}), std::nullopt};
  fill_operands(in.a, *shape.dtype_a, in.b, shape.dtype, seed, kind == LinearInputKind::cancelling);
  if (shape.bias) {
    fill(in.bias.emplace(Tensor({shape.weight_samples, shape.weight_channels, shape.n})), stream_of(seed, 2), shape.dtype,
         unchanged);
  }
  if (shape.is_routed()) route(in, shape, stream_of(seed, 3));
  return in;
}

Tensor make_inputs(const Softmax& unresolved, std::uint64_t seed, SoftmaxInputKind kind) {
  const Softmax shape = resolve(unresolved);
  Tensor x({shape.rows, shape.cols});
  const float enlarge = kind == SoftmaxInputKind::large ? 100.0f : 1.0f;
  fill(x, stream_of(seed, 0), shape.dtype, [&](float value) { return enlarge * value; });
  const std::uint64_t places = stream_of(seed, 1);
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    float* x_row = &x.values[row * shape.cols];
    if (kind == SoftmaxInputKind::one_hot) {
      float& chosen = x_row[splitmix(places, row) % static_cast<std::uint64_t>(shape.cols)];
      chosen = round_to(shape.dtype, chosen + 16.0f);
    }
    for (int j = 1; j < shape.cols && kind == SoftmaxInputKind::uniform; ++j) x_row[j] = x_row[0];
    for (int j = 0; j < shape.cols && kind == SoftmaxInputKind::descending; ++j) {
      // A division before an addition: no compiler can fuse the two.
      x_row[j] = round_to(shape.dtype, x_row[j] - 120.0f * static_cast<float>(j) / static_cast<float>(shape.cols));
    }
  }
  return x;
}

}  // namespace problem
