// The truth of a linear layer, C = activation(A · Bᵀ + bias), in double precision, and the baseline: the same in fp32. Shapes
// as for a matrix product (gemm.h): its rows, its entries of B.
#pragma once

#include "common/reference/gemm.h"

namespace reference {

enum class Activation { none, relu, gelu, silu };

struct LinearSpec : GemmSpec {
  Activation activation = Activation::none;
};

// What every compared element of C must be, and what rounding may do to it. All [rows, n].
struct LinearReference {
  std::vector<double> truth;
  std::vector<float> baseline;  // summed in fp32 in the order of k, then bias and activation in fp32, then rounded
  ProductRounding rounding;     // of the product, carried through bias and activation
};

// From a [batch, m, k], b [entries of B, n, k] and a bias [entries of B, n], or none.
LinearReference linear(const LinearSpec& spec, const GemmRows& rows, std::span<const float> a, std::span<const float> b,
                       std::span<const float> bias, Round round = keep_fp32);

// C[t] = Σ_slot routing[t, slot] · pairs[t, slot], of which `named` says that the slot names an expert; others add nothing.
// `pairs` is the reference of each pair's product, [tokens · top, n], named and routing are [tokens, top].
LinearReference routed(const LinearReference& pairs, std::span<const float> routing, const std::vector<bool>& named, int top,
                       int n, Round round = keep_fp32);

// x · ½(1 + erf(x / √2)) and x / (1 + e⁻ˣ) as they stand: at −∞ both are NaN, because 0 · ∞ is.
double activate(Activation activation, double x);
float activate(Activation activation, float x);

}  // namespace reference
