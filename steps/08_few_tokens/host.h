// Step 08, host side: from a launch to what kernels take. Shared by step.cu, the exercises and the tests.
#pragma once

#include "common/device/dispatch.h"
#include "common/run/family/linear.h"
#include "common/runtime/launch.h"
#include "steps/08_few_tokens/epilogue.cuh"

namespace few_tokens {

constexpr int most_tokens = 16;

inline Shape shape_of(const problem::Linear& g) {
  return {g.m, g.n, g.k, g.samples, g.channels, g.samples / g.weight_samples, g.channels / g.weight_channels};
}

template <class T>
Matrices<T> matrices(T* data, const run::LinearStrides& strides) {
  return {data, strides.sample, strides.channel, strides.row};
}

inline OutputType output_type(problem::Dtype dtype) {
  switch (dtype) {
    case problem::Dtype::fp16:
      return OutputType::fp16;
    case problem::Dtype::bf16:
      return OutputType::bf16;
    case problem::Dtype::fp32:
      break;
  }
  return OutputType::fp32;
}

inline Activation activation_of(problem::Activation activation) {
  switch (activation) {
    case problem::Activation::relu:
      return Activation::relu;
    case problem::Activation::gelu:
      return Activation::gelu;
    case problem::Activation::silu:
      return Activation::silu;
    case problem::Activation::none:
      break;
  }
  return Activation::none;
}

// The parameters of kernels for weights of type W and tokens of type A, in their order.
template <class W, class A>
struct Operands {
  Shape shape;
  Matrices<const A> tokens;
  Matrices<const W> weights;
  Epilogue<W> epilogue;
};

template <class W, class A>
Operands<W, A> operands(const run::LinearLaunch& l) {
  const problem::Linear& g = l.shape;
  return {shape_of(g),
          matrices(static_cast<const A*>(l.a), l.a_strides),
          matrices(static_cast<const W*>(l.b), l.b_strides),
          {static_cast<const W*>(l.bias), std::int64_t{g.weight_channels} * g.n, g.n, activation_of(g.activation),
           output_type(*g.dtype_c), matrices(l.c, l.c_strides)}};
}

// Blocks for all rows of B on x; the batch on y, and on z what is beyond y's limit.
inline dim3 grid_of(const problem::Linear& g, int rows_of_block) {
  const std::int64_t z = ceil_div(g.entries(), run::most_grid_y), y = ceil_div(g.entries(), z);
  return {static_cast<unsigned>(ceil_div(g.n, rows_of_block)), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

template <class W, class A>
void launch_kernel(const run::LinearLaunch& l, void (*kernel)(Shape, Matrices<const A>, Matrices<const W>, Epilogue<W>),
                   dim3 grid, int threads, std::size_t shared_bytes = 0, unsigned cluster = 1) {
  const Operands<W, A> o = operands<W, A>(l);
  runtime::launch(kernel,
                  {.grid = grid, .block = static_cast<unsigned>(threads), .shared_bytes = shared_bytes, .cluster = cluster},
                  o.shape, o.tokens, o.weights, o.epilogue);
}

// Calls f(W{}, A{}) with the types of the weights and of the tokens.
template <class F>
void with_types(const problem::Linear& g, F f) {
  device::with_16_bit_type(g.dtype, [&]<class W>(W weight) {
    if (g.dtype_a == g.dtype) return f(weight, weight);
    f(weight, float{});
  });
}

// [doc: with_tokens]
// Calls f with the first of 1, 2, 4, 8 and 16 tokens that is m or more, as a constant: sums stay in registers.
template <class F>
void with_tokens(int m, F f) {
  device::with_at_least<1, 2, 4, 8, most_tokens>(m, f);
}
// [/doc: with_tokens]

// A launch of kernel(W{}, A{}, tokens), the kernel for these types and so many tokens.
template <class Kernel>
void launch_for_types(const run::LinearLaunch& l, dim3 grid, int threads, Kernel kernel) {
  with_types(l.shape, [&]<class W, class A>(W weight, A token) {
    with_tokens(l.shape.m, [&](auto tokens) { launch_kernel<W, A>(l, kernel(weight, token, tokens), grid, threads); });
  });
}

}  // namespace few_tokens
