// What the backward pass of attention computes: dQ, dK and dV, given Q, K, V and dO = ∂L/∂O, and O and LSE of the forward pass.
#pragma once

#include <cstdint>

#include "common/problem/attention.h"

namespace problem {

// Shape and options of the forward pass; to_string() is that of Attention.
struct Backward : Attention {
  double flops() const;             // 10 · dim · live pairs · heads · batch: S, dP, dV, dK and dQ, one product each
  double compulsory_bytes() const;  // Q, K, V, O, dO and LSE read once, dQ, dK and dV written once
  bool operator==(const Backward&) const = default;
};

Backward resolve(Backward shape);  // as that of Attention

struct BackwardInputs {
  Tensor q;    // [batch, heads, seq_q, dim]
  Tensor k;    // [batch, kv_heads, seq_k, dim]
  Tensor v;    // [batch, kv_heads, seq_k, dim]
  Tensor d_o;  // [batch, heads, seq_q, dim]
  // What a forward pass made of Q, K and V; empty until then.
  Tensor o = {};    // [batch, heads, seq_q, dim]
  Tensor lse = {};  // [batch, heads, seq_q], natural logarithm
};

// Q, K and V are those of the forward pass with that seed and kind; dO is close to N(0, 1). The same values on every machine
// and compiler; rounded to shape.dtype.
BackwardInputs make_inputs(const Backward& shape, std::uint64_t seed, InputKind kind = InputKind::normal);

}  // namespace problem
