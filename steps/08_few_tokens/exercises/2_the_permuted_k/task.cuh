// Exercise 2 of step 08: load the tokens as the weights are loaded.
//
// A lane loads 16 bytes of two rows of weights at once, and passes the words x and z to one mma, y and w to the next. That is
// not the lesson's pairing, but it is as good. words_of() loads a token as the mma's table in the PTX manual says, and C is
// wrong. Mend words_of(). The grader wants the right C with one load of a token for each two of weights.
#pragma once

#include "steps/08_few_tokens/fragments.cuh"

namespace exercise {

using namespace few_tokens;

using T = __half;

// What a lane gives to the two mma of 32 k: B's two words of each.
struct TokenWords {
  std::uint32_t of[2][2];  // [mma][word]
};

// Lane (g, t), of 32 k from k on. token: its token g. Nothing may be read unless it is there, and nothing from k_end on.
__device__ inline TokenWords words_of(const T* token, bool is_there, int k, int k_end) {
  const int t = threadIdx.x % 4;
  TokenWords words;
  for (int mma = 0; mma < 2; ++mma) {
    for (int word = 0; word < 2; ++word) {
      const int at = k + 16 * mma + 8 * word + 2 * t;
      words.of[mma][word] = load_if(is_there && at < k_end, reinterpret_cast<const std::uint32_t*>(token + at));
    }
  }
  return words;
}

// Grid: x over groups of 16 rows of B, y and z over the batch. One warp. m is at most 8, k a multiple of 8, and all rows begin
// at multiples of 16 bytes.
__global__ void __launch_bounds__(32) product(Shape shape,
                                              Matrices<const T> tokens,   // [samples, channels, m, k]
                                              Matrices<const T> weights,  // [weight samples, weight channels, n, k]
                                              Epilogue<T> epilogue) {
  if (!has_entry(shape)) return;
  const Entry entry = entry_of(shape, entry_number());
  const int g = threadIdx.x / 4, t = threadIdx.x % 4, first_row = blockIdx.x * group;
  const LaneWeights<T, 1> lane_weights(shape, entry, weights, first_row, shape.k);
  const T* token = tokens.row(entry.sample, entry.channel, g);
  float sums[4] = {};
  for (int k = 0; k < shape.k; k += slot) {
    uint4 rows[1][2];  // 8 neighbouring elements of row g, and of row g + 8
    lane_weights.request(rows, k);
    const TokenWords words = words_of(token, g < shape.m, k, shape.k);
    const uint4 low = rows[0][0], high = rows[0][1];
    ptx::mma_m16n8k16<T>(sums, {low.x, high.x, low.z, high.z}, {words.of[0][0], words.of[0][1]});
    ptx::mma_m16n8k16<T>(sums, {low.y, high.y, low.w, high.w}, {words.of[1][0], words.of[1][1]});
  }
  for (int i = 0; i < 4; ++i) {  // element i of C's fragment: row g + 8 (i / 2), token 2t + i % 2
    const int row = first_row + g + i / 2 * 8, of_token = 2 * t + i % 2;
    if (row < shape.n && of_token < shape.m) epilogue.put(entry, of_token, row, sums[i]);
  }
}

}  // namespace exercise
