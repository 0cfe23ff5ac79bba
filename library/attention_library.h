// An attention step, of the forward or of the backward pass, as a shared library with a C interface, for programs that have
// their own memory: lib/libattention_NAME.so runs the step's variants on it. examples/flashsteps_torch.py calls it from
// PyTorch; benchmarks/ runs it beside other people's kernels in one process.
//
//     program = attention_prepare("tuned", &problem);    null: attention_error() says why
//     scratch = … attention_scratch_bytes(program) …     of the device's memory, where that is not 0
//     attention_launch(program, scratch, stream);        as often as you like
//     attention_launch_on(program, &addresses, scratch, stream);    the same for tensors that lie elsewhere
//     attention_release(program);
//
// A step whose launches make a plan of the mask first (07) may keep it: attention_plan makes it, attention_launch_planned uses
// it.
//
// On a GPU all pointers but those named so are of the device's memory. attention_launch puts kernels into the stream, and
// nothing else: it does not wait, allocates nothing, and may be recorded into a CUDA graph. The CUDA runtime inside is the
// library's own; it shares the device's primary context with whatever else runs there. The simulator's library (build/sim/lib)
// takes the host's memory in place of the device's, has no streams, and waits.
//
// A function that fails returns null, or false; attention_error() then says why, to the thread that called. Different threads
// may call at once, on the simulator one at a time.
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

// A [batch, heads, rows, dim] tensor. Strides in elements, not below 0; dim is contiguous. Rows of an output lie apart.
struct AttentionTensor {
  void* data;
  int64_t batch_stride, head_stride, row_stride;
};

// Which blocks of keys a block of queries sees, for steps that take sparse masks: a type for each head. Head types and
// streaming are needed in both memories, with the same values. block_mask may be anything: its bits are read at each launch.
struct AttentionSparse {
  int block_q, block_k;       // queries and keys of a block
  int batches;                // of block_mask: 1, for all batch entries, or one for each
  const int* head_type;       // [heads]: 0 dense, 1 block-sparse, 2 streaming by block, 3 streaming by token
  const int* head_type_host;  // in the host's memory
  const int* streaming;       // [heads, 2]: sink and local, in blocks or tokens; null where no head streams
  const int* streaming_host;  // in the host's memory
  // Bits [batches, heads, query blocks, words]: bit c of word w for block 32 w + c of keys; words of 32 bits cover all blocks
  // of keys. Null where no head is block-sparse. block_mask_host is the same in the host's memory: operations and scratch
  // memory are counted by it, so no launch may find a block in block_mask that it does not have. Null: every block may be live.
  const uint32_t* block_mask;
  const uint32_t* block_mask_host;
};

struct AttentionProblem {
  int device;  // its number; the calling thread's current one stays as it is. The simulator has number 0 alone
  int batch, heads, kv_heads, seq_q, seq_k, dim;
  const char* dtype;         // "fp32", "fp16", "bf16"
  struct AttentionTensor q;  // [batch, heads, seq_q, dim]
  struct AttentionTensor k;  // [batch, kv_heads, seq_k, dim]
  struct AttentionTensor v;  // [batch, kv_heads, seq_k, dim]
  struct AttentionTensor o;  // [batch, heads, seq_q, dim]
  float* lse;                // [batch, heads, seq_q], natural logarithm
  // Packed sequences: sums of their lengths, from 0 to seq_q [cu_seqlens_count]; null and 0: none. `prepare` checks them in the
  // host's memory; where that is null nobody does. Then they may begin behind 0 and end before seq_q: a token of no sequence
  // sees nothing, has zeros in O, dQ, dK and dV, and LSE −∞, and nobody sees it. Sums that fall give wrong results, but touch
  // no other memory.
  const int* cu_seqlens;
  const int* cu_seqlens_host;
  int cu_seqlens_count;
  const struct AttentionSparse* sparse;  // null: every head is dense
  // What changes scores (common/device/score_options.h has the formulas), and where a padded cache ends. Null: none.
  struct AttentionTensor bias;  // [batch, heads, seq_q, seq_k], of the problem's dtype. A stride of 0: the same for all
  const float* sinks;           // [heads]: a logit more in each row's softmax, without a value
  // [batch]: the batch entry has the keys 0 … length − 1, and its last query lies beside the last of them. Each launch reads
  // them. lengths_host is the same in the host's memory, where it is checked; null: nobody checks. Then a length below 0 counts
  // as 0, and one beyond seq_k as seq_k.
  const int* lengths;
  const int* lengths_host;
  // Options (attention_describe() lists them).
  int causal;  // 0 or 1: query i sees the keys j ≤ i + seq_k − seq_q
  int window;  // query i sees the keys j with |i + seq_k − seq_q − j| < window; 0: none
  // A pair of a query and a key is left out with probability dropout / 256, from 0 (none) to 255; the seed says which.
  int dropout;
  uint64_t dropout_seed;
  float scale;    // NaN: 1/√dim
  float softcap;  // C: a scaled score s becomes C · tanh(s / C); 0: none
  float alibi;    // M: head h of n adds −2^(−M · (h + 1) / n) · |i + seq_k − seq_q − j| to scores; 0: none
};

// What the backward pass adds to a problem, whose O and LSE, of a forward pass of the same problem, it then reads.
struct AttentionGradients {
  struct AttentionTensor d_o;  // [batch, heads, seq_q, dim]
  struct AttentionTensor dq;   // [batch, heads, seq_q, dim]
  struct AttentionTensor dk;   // [batch, kv_heads, seq_k, dim]
  struct AttentionTensor dv;   // [batch, kv_heads, seq_k, dim]
};

// What a launch may change of a program. All else stays as it was prepared: sizes, strides, options, the arrays of a sparse
// mask.
struct AttentionAddresses {
  void *q, *k, *v, *o;
  float* lse;
  void *d_o, *dq, *dk, *dv;    // of the backward pass; a program of the forward pass does not look at them
  const int* cu_seqlens;       // null without packed sequences
  const int* cu_seqlens_host;  // the same sums as at `prepare`, which is checked; if they were null there, nobody looks
  // Null where the program was prepared without them, and nowhere else. Lengths may be others than at `prepare`.
  void* bias;
  const float* sinks;
  const int* lengths;
  const int* lengths_host;  // is checked; null: nobody checks
  uint64_t dropout_seed;
};

// Something that can be launched again and again. It holds the addresses of tensors and arrays, and no memory of a device; the
// structures that it was made from are not needed any more.
struct AttentionProgram;

// JSON: the step, its default variant, the best ones in the order in which to try them where the device does not run the
// default or it does not take a problem, its variants with what they support, the compute capability that they need (at least,
// or alone) and whether they give the same bits in every run, and the toolkit that built it; of a step with both passes that is
// its forward pass, and `backward` has the same of the other one. `options` are the last fields of AttentionProblem: name,
// type, place in bytes, what kind of value it is, the range where the type's is larger, and whether NaN stands for a default.
// Needs no GPU.
const char* attention_describe(void);

// A library has one of the two passes, and refuses the other; or it has both.
struct AttentionProgram* attention_prepare(const char* variant, const struct AttentionProblem* problem);
struct AttentionProgram* attention_prepare_backward(const char* variant, const struct AttentionProblem* problem,
                                                    const struct AttentionGradients* gradients);

// Device memory that a launch needs for itself, its plan among it, at a multiple of 256 bytes; 0: none. Two launches that may
// run at once need two of it.
size_t attention_scratch_bytes(const struct AttentionProgram* program);

// Of one launch: 4 · dim · visible pairs, of the backward pass 10 · dim · visible pairs. NaN where cu_seqlens_host,
// lengths_host or block_mask_host is missing.
double attention_operations(const struct AttentionProgram* program);

// `stream` is a cudaStream_t; null is the legacy default stream. A fault of a kernel shows at a later call; the simulator's
// findings, at this one.
bool attention_launch(const struct AttentionProgram* program, void* scratch, void* stream);

// Launches the program for tensors at other addresses. `prepare` costs more than a launch, so a program may be kept for the
// next tensors of the same sizes and strides. The launch does not change it: different threads may use it at once. The launch
// refuses addresses that `prepare` would refuse: a null, or rows that do not begin where the variant needs them.
bool attention_launch_on(const struct AttentionProgram* program, const struct AttentionAddresses* addresses, void* scratch,
                         void* stream);

// Device memory of a plan, at a multiple of 256 bytes; 0: the variant makes none.
size_t attention_plan_bytes(const struct AttentionProgram* program);

// Makes the plan, once, from what the mask holds then (and cu_seqlens of the addresses, which may be null). It serves launches
// of this program as long as these values stay as they are. `scratch` is not touched.
bool attention_plan(const struct AttentionProgram* program, const struct AttentionAddresses* addresses, void* plan,
                    void* stream);

// attention_launch_on with a plan, which the launch only reads: several may use it at once. Its addresses may be null, too. It
// needs less scratch memory, since the plan lies elsewhere.
size_t attention_planned_scratch_bytes(const struct AttentionProgram* program);
bool attention_launch_planned(const struct AttentionProgram* program, const struct AttentionAddresses* addresses,
                              const void* plan, void* scratch, void* stream);

void attention_release(struct AttentionProgram* program);

const char* attention_error(void);  // of this thread's last call that failed

#ifdef __cplusplus
}  // extern "C"
#endif
