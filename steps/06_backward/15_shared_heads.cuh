// 06_backward, shared_heads: the query heads that share keys go to several blocks.
// Predecessor: 09_tuned_64.cuh (option: few key/value heads)
//
// A block of the tuned rungs has a tile of keys, and a loop over all query heads that share it. 32 query heads on one key/value
// head of 4096 keys are 32 blocks, for 132 multiprocessors. Here the heads of such a group are split into parts. The same
// kernels take each part as a key/value head of its own, whose keys lie where those of the other parts lie: strides can say
// that, so nothing of their code changes. A part's dK and dV go to scratch memory, rounded as results are, and this kernel adds
// them up, in the order of the parts, so that two runs give the same bits.
//
// What to expect: as many blocks as there are places for, and so the speed of separate heads, but for one more launch, and for
// dK and dV of each part, which are written and read once: 8 · dim bytes for each key of a part.
#pragma once

#include "common/device/backward/rows.cuh"

namespace backward {

constexpr int add_threads = 256;

// The sum of 8 elements of all parts. Returns a number that is not finite where one of them is not: a part may overflow whose
// sum with the others does not, and then the row is repaired.
template <class T>
__device__ float add_chunk(const T* of_parts, int parts, std::int64_t part_size, T* to) {
  float sums[8] = {};
#pragma unroll 1
  for (int part = 0; part < parts; ++part) {
    const uint4 loaded = load(reinterpret_cast<const uint4*>(of_parts + part * part_size));
    const std::uint32_t words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float2 pair = unpacked<T>(words[w]);
      sums[2 * w] += pair.x;
      sums[2 * w + 1] += pair.y;
    }
  }
  uint4 rounded;
  rounded.x = packed<T>(sums[0], sums[1]);
  rounded.y = packed<T>(sums[2], sums[3]);
  rounded.z = packed<T>(sums[4], sums[5]);
  rounded.w = packed<T>(sums[6], sums[7]);
  store(reinterpret_cast<uint4*>(to), rounded);
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

// dK and dV as the sums of their parts: a thread has 8 columns of a key. dim: a multiple of 8.
// Grid: x over chunks of 8 elements of a head, y over key/value heads, z over the batch. Blocks of add_threads.
template <class T>
__global__ void __launch_bounds__(add_threads) add_parts(AttentionShape shape, int parts,
                                                         const T* dk_parts,  // [batch, kv_heads, parts, seq_k, dim]
                                                         const T* dv_parts,  // [batch, kv_heads, parts, seq_k, dim]
                                                         RowStatistics rows,
                                                         Heads<T> dk,                 // [batch, kv_heads, seq_k, dim]
                                                         Heads<T> dv) {               // [batch, kv_heads, seq_k, dim]
  const std::int64_t e = (std::int64_t{blockIdx.x} * add_threads + threadIdx.x) * 8;  // of a part
  const std::int64_t part_size = std::int64_t{shape.seq_k} * shape.dim;
  if (e >= part_size) return;
  const int kv_head = blockIdx.y, batch = blockIdx.z, key = static_cast<int>(e / shape.dim),
            t = static_cast<int>(e % shape.dim);
  const std::int64_t first = (std::int64_t{batch} * shape.kv_heads + kv_head) * parts * part_size + e;
  const float sum = add_chunk(dk_parts + first, parts, part_size, &dk.row(batch, kv_head, key)[t]) +
                    add_chunk(dv_parts + first, parts, part_size, &dv.row(batch, kv_head, key)[t]);
  flag_non_finite(sum, rows.flag(shape, batch, kv_head));
}

}  // namespace backward
