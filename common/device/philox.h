// Philox 4×32 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3): random bits as a
// function of a counter. There is no state that a thread must carry on: whoever needs the bits of a place computes them there,
// in any order, as often as it likes.
//
// A round multiplies two words of the counter by constants, and mixes the high halves of the products with the other two words
// and the key. The key grows by two constants from round to round; the host makes the keys of all rounds, which kernels read as
// constants. Seven rounds pass the batteries of tests that the paper names; it recommends ten for safety.
#pragma once

#include <cstdint>

#include "common/device/dialect.h"

namespace device {

struct PhiloxWords {
  std::uint32_t x[4];
};
template <int rounds>
struct PhiloxKeys {
  std::uint32_t x[rounds][2];
};

// [doc: philox]
template <int rounds>
__host__ __device__ inline PhiloxKeys<rounds> philox_keys(std::uint64_t seed) {
  constexpr std::uint32_t step[2] = {0x9E3779B9u, 0xBB67AE85u};  // the golden ratio, and √3 − 1
  PhiloxKeys<rounds> keys;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    keys.x[round][0] = static_cast<std::uint32_t>(seed) + round * step[0];
    keys.x[round][1] = static_cast<std::uint32_t>(seed >> 32) + round * step[1];
  }
  return keys;
}

template <int rounds>
__host__ __device__ inline PhiloxWords philox_4x32(PhiloxWords counter, const PhiloxKeys<rounds>& keys) {
  constexpr std::uint32_t multiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
  for (const auto& key : keys.x) {
    const std::uint64_t a = std::uint64_t{multiplier[0]} * counter.x[0], b = std::uint64_t{multiplier[1]} * counter.x[2];
    counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.x[1] ^ key[0], static_cast<std::uint32_t>(b),
                static_cast<std::uint32_t>(a >> 32) ^ counter.x[3] ^ key[1], static_cast<std::uint32_t>(a)}};
  }
  return counter;
}
// [/doc: philox]

}  // namespace device
