// A step of linear layers with few tokens, as a shared library with a C interface, for programs that have their own memory:
// lib/liblinear_NAME.so runs the step's variants on it. examples/flashsteps_torch.py calls it from PyTorch.
//
//     C = activation(A · Bᵀ + bias)            A: tokens, B: weights
//     C[t] = Σ_slot routing[t, slot] · activation(A[t] · B[e]ᵀ + bias[e])  with e = expert_ids[t, slot]; of a routed product
//
//     program = linear_prepare(NULL, &problem);    null: linear_error() says why
//     scratch = … linear_scratch_bytes(program) …  of the device's memory, where that is not 0
//     linear_launch(program, scratch, stream);     as often as you like
//     linear_launch_on(program, &addresses, scratch, stream);    the same for tensors that lie elsewhere
//     linear_release(program);
//
// What attention_library.h says of memory, streams, graphs, the simulator, errors and threads holds here, too.
#pragma once

#ifdef __cplusplus
#include <cstddef>
#include <cstdint>
extern "C" {
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

// A [samples, channels, rows, columns] tensor. Strides in elements, not below 0; columns are contiguous. Rows of an output lie
// apart.
struct LinearTensor {
  void* data;
  int64_t sample_stride, channel_stride, row_stride;
};

// The whole numbers are the flags of the command line (08_few_tokens --help).
struct LinearProblem {
  int device;  // its number; the calling thread's current one stays as it is. The simulator has number 0 alone
  int samples, channels;
  int weight_samples, weight_channels;  // they divide samples and channels; 0: as many (of a routed product: experts)
  int m, n, k;
  int experts, top;        // 0: the product is not routed
  const char* dtype;       // of B and of the bias: "fp16", "bf16"
  const char* dtype_a;     // that type, or "fp32"; null: dtype
  const char* dtype_c;     // "fp32", "fp16", "bf16"; null: dtype
  const char* activation;  // "none", "relu", "gelu", "silu"; null: none
  // 1: no launch that may still run writes B. Then the default may read B before the launch before has ended, which hides a
  // part of its start. 0: it may not. (Variants that do it are `tuned` and those whose names begin with `dependent`: who names
  // one promises the same.)
  int constant_weights;
  struct LinearTensor a;  // [samples, channels, m, k]
  struct LinearTensor b;  // [weight_samples, weight_channels, n, k]
  struct LinearTensor c;  // [samples, channels, m, n]
  const void* bias;       // [weight_samples, weight_channels, n], without gaps; null: none
  // Of a routed product; else null. Nobody checks the ids: a slot that names no expert of B adds nothing.
  const int* expert_ids;  // [m, top]
  const float* routing;   // [m, top]
};

// What a launch may change of a program. All else stays as it was prepared. An array that was null stays null.
struct LinearAddresses {
  const void *a, *b, *bias;
  void* c;
  const int* expert_ids;
  const float* routing;
};

// Something that can be launched again and again. It holds addresses, and no memory of a device; the structure that it was made
// from is not needed any more.
struct LinearProgram;

// JSON: the step, its variants with what they support and the compute capability that they need (at least, or alone), and the
// toolkit that built it. Needs no GPU.
const char* linear_describe(void);

// The variant of that name. Null: the default for this problem or, where that does not take it or does not run on the device,
// the next best one that does.
struct LinearProgram* linear_prepare(const char* variant, const struct LinearProblem* problem);

const char* linear_variant(const struct LinearProgram* program);  // its name, as long as the program lives

// Device memory that a launch needs for itself, at a multiple of 256 bytes; 0: none. Two launches that may run at once need two
// of it.
size_t linear_scratch_bytes(const struct LinearProgram* program);

double linear_operations(
    const struct LinearProgram* program);  // of one launch: 2 · m · n · k of each batch entry, of each slot

// `stream` is a cudaStream_t; null is the legacy default stream.
bool linear_launch(const struct LinearProgram* program, void* scratch, void* stream);

// The launch refuses addresses that `prepare` would refuse: a null, or rows that do not begin where the variant needs them.
bool linear_launch_on(const struct LinearProgram* program, const struct LinearAddresses* addresses, void* scratch,
                      void* stream);

void linear_release(struct LinearProgram* program);

const char* linear_error(void);  // of this thread's last call that failed

#ifdef __cplusplus
}  // extern "C"
#endif
