// An attention step, of the forward or of the backward pass, as a shared library with a C interface, for programs that have the
// GPU's memory already: lib/libattention_NAME.so runs the step's variants on it, beside other people's kernels in one process
// (benchmarks/attention_peers.py, backward_peers.py, packed_peers.py).
//
// The CUDA runtime inside is the library's own; it shares the process's primary context with whatever else runs there. All
// launches go to the legacy default stream of the current device. A function that fails returns null, or false, and
// attention_error() says why.
#pragma once

#include <cstdint>

extern "C" {

// A [batch, heads, rows, dim] tensor in device memory; strides in elements, dim is contiguous.
struct AttentionTensor {
  void* data;
  std::int64_t batch_stride, head_stride, row_stride;
};

struct AttentionProblem {
  int batch, heads, kv_heads, seq_q, seq_k, dim;
  int causal;         // 0 or 1
  int window;         // 0: none
  float scale;        // NaN: 1/√dim
  const char* dtype;  // "fp32", "fp16", "bf16"
  AttentionTensor q;  // [batch, heads, seq_q, dim]
  AttentionTensor k;  // [batch, kv_heads, seq_k, dim]
  AttentionTensor v;  // [batch, kv_heads, seq_k, dim]
  AttentionTensor o;  // [batch, heads, seq_q, dim]
  float* lse;         // [batch, heads, seq_q], natural logarithm
  // Packed sequences: sums of their lengths, from 0 to seq_q, in the host's memory; null and 0: none. Read by prepare alone.
  const int* cu_seqlens;
  int cu_seqlens_count;
};

// What the backward pass adds to a problem, whose O and LSE it then reads.
struct AttentionGradients {
  AttentionTensor d_o;  // [batch, heads, seq_q, dim]
  AttentionTensor dq;   // [batch, heads, seq_q, dim]
  AttentionTensor dk;   // [batch, kv_heads, seq_k, dim]
  AttentionTensor dv;   // [batch, kv_heads, seq_k, dim]
};

// Something that can be launched again and again. It holds the scratch memory that it needs, and not the tensors.
struct AttentionProgram;

// JSON: the step, its default variant, its variants with what they support, and the toolkit that built it. Needs no GPU.
const char* attention_describe();

// A library has one of the two passes, and refuses the other.
AttentionProgram* attention_prepare(const char* variant, const AttentionProblem* problem);
AttentionProgram* attention_prepare_backward(const char* variant, const AttentionProblem* problem,
                                             const AttentionGradients* gradients);

// The roof of mma.sync: a kernel that executes about as many operations, and nothing else. fp16 or bf16.
AttentionProgram* attention_prepare_roof(const char* dtype, double operations);

// Of one launch: 4 · dim · visible pairs, of the backward pass 10 · dim · visible pairs; or the roof's.
double attention_operations(const AttentionProgram* program);

bool attention_launch(const AttentionProgram* program);  // returns at once; a fault of the kernel shows at a later call

void attention_release(AttentionProgram* program);

const char* attention_error();  // of the last call that failed; until the next one does

}  // extern "C"
