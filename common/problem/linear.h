// What a linear layer computes at inference: C = activation(A · Bᵀ + bias). A holds a few tokens [m, k], B the weights [n, k],
// C [m, n]; all rows lie with their columns contiguous. A batch has two levels, samples and channels. Several entries of tokens
// may share a matrix of weights, as query heads share a key/value head.
//
// With experts, B holds a matrix for each of them, and each token names `top` of them, its slots:
//     C[t] = Σ_slot routing[t, slot] · activation(A[t] · B[experts[t, slot]]ᵀ + bias[experts[t, slot]])
// Slots are added in their order. One that names no expert of B adds nothing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/problem/dtype.h"
#include "common/problem/tensor.h"

namespace problem {

// gelu is exact, x · ½(1 + erf(x / √2)), as PyTorch's is by default; silu is x / (1 + e⁻ˣ).
enum class Activation { none, relu, gelu, silu };
inline constexpr std::array<std::string_view, 4> activation_names = {"none", "relu", "gelu", "silu"};
std::string_view activation_name(Activation activation);
std::optional<Activation> activation_from_name(std::string_view name);

struct Linear {
  int samples = 1;
  int channels = 1;
  int weight_samples = 0;   // sample s meets the weights of sample s / (samples / weight_samples); 0: as many as samples
  int weight_channels = 0;  // the same for channels
  int m = 1;
  int n = 1;
  int k = 1;
  int lda = 0;                               // elements from one row of A to the next, k or more; 0: k
  int ldb = 0;                               // of B, the same
  int ldc = 0;                               // of C, n or more; 0: n
  Dtype dtype = Dtype::fp16;                 // of B and of the bias: fp16 or bf16; sums are fp32
  std::optional<Dtype> dtype_a = {};         // of A: dtype, or fp32, whose values are rounded to dtype; none: dtype
  std::optional<Dtype> dtype_c = {};         // none: dtype
  Activation activation = Activation::none;  // of each element of C, before it is rounded
  bool bias = false;                         // n numbers for each matrix of weights
  int experts = 0;                           // they are the channels of the weights; 0: no expert is asked
  int top = 0;                               // experts that each token names

  bool is_routed() const { return experts > 0; }
  std::int64_t pairs() const { return std::int64_t{m} * top; }  // of a token and an expert

  std::int64_t entries() const { return std::int64_t{samples} * channels; }
  std::int64_t weight_entries() const { return std::int64_t{weight_samples} * weight_channels; }
  // The matrix of weights, of weight_entries(), that an entry of tokens meets.
  std::int64_t weights_of(std::int64_t entry) const;

  double flops() const;             // 2 · m · n · k of each entry, of each slot
  double compulsory_bytes() const;  // A, B and the bias read once, C written once; without what lies between rows. Of experts
                                    // as many as the tokens can name
  bool operator==(const Linear&) const = default;
};

// Fills in what is 0 or nothing. Throws std::invalid_argument, naming the field, where one is out of range; then no product of
// extents overflows a std::int64_t, not even in bytes.
Linear resolve(Linear shape);

// "samples 1, channels 8, weight_samples 1, …, ldc 64, tokens fp32, weights fp16, C bf16, bias, gelu"
std::string to_string(const Linear& shape);

struct LinearInputs {
  Tensor a;                    // [samples, channels, m, k]
  Tensor b;                    // [weight_samples, weight_channels, n, k]
  std::optional<Tensor> bias;  // [weight_samples, weight_channels, n]
  Integers experts = {};       // [m, top]; empty without experts
  Tensor routing = {};         // [m, top], fp32
};

enum class LinearInputKind {
  normal,      // A · Bᵀ has a mean of 1 and a variance of 1¼ + 4/k, as a matrix product's inputs; the bias is N(0, 1)
  cancelling,  // the first quarter of k adds about 100, the last one takes it away: a 16-bit accumulator shows, even in bf16
};

// The same values on every machine and compiler (counter-based generator); A rounded to dtype_a, the others to dtype. A token
// names different experts, the one of the largest weight first; its weights add up to 1.
LinearInputs make_inputs(const Linear& shape, std::uint64_t seed, LinearInputKind kind = LinearInputKind::normal);

}  // namespace problem
