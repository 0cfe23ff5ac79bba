// Predicted cost of kernels: counted by hand from the algorithm, before anything is measured.
#pragma once

#include <string>
#include <vector>

#include "common/problem/attention.h"
#include "common/problem/backward.h"
#include "common/problem/gemm.h"
#include "common/problem/linear.h"
#include "common/problem/softmax.h"

namespace problem {

// What one kernel must do. Bytes are compulsory device-memory traffic: every array it touches moved once. (Of flash v1's kernel
// they are all that its loops request: to touch O again and again is its algorithm.)
struct KernelCost {
  std::string kernel;
  double flops = 0;
  double bytes_read = 0;
  double bytes_written = 0;
};

// The kernels of standard (unfused) attention: S = scale · Q Kᵀ, P = softmax(S), O = P V, each through device memory.
// S and P hold batch · heads · seq_q · seq_k elements, masked ones included.
KernelCost scores_cost(const Attention& shape);   // 2 · dim per live pair; reads Q, K; writes S
KernelCost softmax_cost(const Attention& shape);  // 5 per live pair (max, subtract, exp, add, multiply); reads S; writes P, LSE
KernelCost pv_cost(const Attention& shape);       // 2 · dim per live pair; reads P, V; writes O
KernelCost transpose_cost(const Attention& shape);                            // K to [batch, kv_heads, dim, seq_k]
KernelCost flash_cost(const Attention& shape, std::string kernel = "flash");  // all three in one: S and P stay on the chip
KernelCost find_sequences_cost(const Attention& shape);  // of packed sequences: reads cu_seqlens, writes two numbers a token
KernelCost mask_cost(const Attention& shape);            // of dropout: writes two bytes a pair
KernelCost linear_cost(std::string kernel, double rows, double in, double out);  // y = x Wᵀ + b in fp32

// The kernels of the backward pass, named as step 06 names them. P, dP, dS and the sums of dQ are fp32.
// D and LSE in base 2: reads O, dO, LSE; with_sums: sets the sums to 0
KernelCost prepare_cost(const Backward& shape, bool with_sums, std::string kernel = "prepare_rows");
KernelCost pairs_cost(const Backward& shape, std::string kernel,
                      bool of_p);                         // 2 · dim per live pair: P from Q, K; dP from dO, V
KernelCost softmax_gradient_cost(const Backward& shape);  // 2 per live pair; reads P, dP; writes dS
KernelCost over_queries_cost(const Backward& shape);      // 2 · dim per live pair; dV from P and dO, dK from dS and Q
KernelCost over_keys_cost(const Backward& shape);         // 2 · dim per live pair; dQ from dS and K
enum class BackwardResult { dk_dv, dq, all };             // `all`: dK, dV, and dQ's sums
// So many products of 2 · dim per live pair, in one kernel: reads Q, K, V, dO, LSE and D.
KernelCost backward_cost(const Backward& shape, std::string kernel, int products, BackwardResult result);
KernelCost convert_cost(const Backward& shape, std::string kernel);  // reads dQ's sums, writes dQ

KernelCost gemm_cost(const Gemm& shape, std::string kernel = "gemm");  // of one kernel that reads A and B and writes C
KernelCost linear_cost(const Linear& shape, std::string kernel);       // the same, with the bias

// Of one kernel that reads x `reads` times and writes y `writes` times; 5 FLOPs an element.
KernelCost row_softmax_cost(const Softmax& shape, std::string kernel, int reads = 1, int writes = 1);

// The least time that an H200 could take, in seconds: the longer of the bytes at 4.25 TB/s (a copy's rate) and the FLOPs at
// 51 TFLOP/s in fp32, at 645 TFLOP/s in fp16 and bf16 (mma.sync alone). The rates were measured; launches cost nothing here.
double h200_floor_seconds(const KernelCost& cost, Dtype dtype);

}  // namespace problem
