// What a matrix product computes: C[m, n] = A[m, k] · B[n, k]ᵀ per batch entry. Both operands lie with k contiguous, as a
// linear layer's activations and weights do.
#pragma once

#include <cstdint>
#include <string>

#include "common/problem/dtype.h"
#include "common/problem/tensor.h"

namespace problem {

struct Gemm {
  int batch = 1;
  int batch_a = 0;  // batch, or 1: A is shared by all batch entries; resolve() turns 0 into batch
  int m = 1;
  int n = 1;
  int k = 1;
  int lda = 0;                // elements from one row of A to the next, k or more; resolve() turns 0 into k
  int ldb = 0;                // of B, the same
  int ldc = 0;                // of C, n or more; 0: n
  Dtype dtype = Dtype::fp16;  // of A, B and C; sums are fp32

  double flops() const;             // 2 · m · n · k · batch
  double compulsory_bytes() const;  // A and B read once, C written once; without what lies between rows
  bool operator==(const Gemm&) const = default;
};

// Fills in what is 0. Throws std::invalid_argument, naming the field, where one is out of range; then no product of extents
// overflows a std::int64_t, not even in bytes.
Gemm resolve(Gemm shape);

std::string to_string(const Gemm& shape);  // "batch 4, A shared, m 64, n 32, k 128, lda 128, ldb 128, ldc 32, fp16"

struct GemmInputs {
  Tensor a;  // [batch_a, m, k]
  Tensor b;  // [batch, n, k]
};

enum class GemmInputKind {
  normal,      // C has a mean of 1 and a variance of 1¼ + 4/k: A is close to N(½, 1), B to N(2/k, 1/k), by mean and variance
  cancelling,  // the first quarter of k adds about 100, the last one takes it away: a 16-bit accumulator shows, even in bf16
};

// The same values on every machine and compiler (counter-based generator); rounded to shape.dtype.
GemmInputs make_inputs(const Gemm& shape, std::uint64_t seed, GemmInputKind kind = GemmInputKind::normal);

}  // namespace problem
