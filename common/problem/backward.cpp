#include "common/problem/backward.h"

#include <utility>

namespace problem {

double Backward::flops() const { return 2.5 * Attention::flops(); }

double Backward::compulsory_bytes() const {
  const double rows_q = static_cast<double>(batch) * heads * seq_q, rows_k = static_cast<double>(batch) * kv_heads * seq_k;
  const double elements = 4 * dim * (rows_q + rows_k);  // Q, O, dO, dQ; K, V, dK, dV
  return elements * static_cast<double>(bytes(dtype)) + sizeof(float) * rows_q;
}

Backward resolve(Backward shape) {
  Attention& attention = shape;
  attention = resolve(std::move(attention));
  return shape;
}

}  // namespace problem
