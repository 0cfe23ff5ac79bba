// The ceilings, host side: what a launch must leave behind if it did so many operations, or moved so many bytes, on a known
// input. None of these asks how often the kernel went round its loop.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "benchmarks/ceilings/arithmetic.cuh"

namespace ceilings {

// Word i of the buffer that `copy` and `read` read: no two are alike.
inline std::uint32_t word(std::size_t i) { return static_cast<std::uint32_t>(i) * 2654435761u; }

inline std::vector<std::uint32_t> words(std::size_t count) {
  std::vector<std::uint32_t> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = word(i);
  return all;
}

inline bool copied(const std::vector<std::uint32_t>& to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i] != word(i)) return false;
  }
  return true;
}

// Whether the checksums are those of the first `bytes`, each read once. Which thread reads what does not matter.
inline bool read_once(double bytes, const std::vector<std::uint32_t>& sums) {
  const auto count = static_cast<std::size_t>(bytes / 4);
  std::uint32_t left = 0;
  for (const std::uint32_t sum : sums) left += sum;
  for (std::size_t i = 0; i < count; i += 4) left -= word(i) ^ word(i + 1) ^ word(i + 2) ^ word(i + 3);
  return left == 0;
}

// Threads 4096 apart have the same input.
inline bool repeats(const std::vector<float>& sums) {
  return sums.size() <= 4096 || std::equal(sums.begin() + 4096, sums.end(), sums.begin());
}

// fma_chain: bit for bit, for all threads, or for some of them where all would take the host more than 10^8 operations.
inline bool fma_chain_did(double operations, const std::vector<float>& values, const std::vector<float>& sums) {
  const double steps = operations / 2 / fma_chains / static_cast<double>(sums.size());  // of each chain
  const std::size_t different = std::min<std::size_t>(sums.size(), 4096);
  const auto stride = 1 + static_cast<std::size_t>(steps * fma_chains * static_cast<double>(different) / 1e8);
  for (std::size_t t = 0; t < different; t += stride) {
    const float c = std::fma(0.09f, values[t], -1.89f);
    float total = 0.0f;
    for (int i = 0; i < fma_chains; ++i) {
      float s = values[t + 1 + i];
      for (std::int64_t step = 0; step < steps; ++step) s = std::fma(s, s, c);
      total += s;
    }
    if (sums[t] != total) return false;
  }
  return repeats(sums);
}

// mma_chain: within what fp32 sums may err, in any order. A and B by the definition of the fragments
// (common/device/ptx/arithmetic.cuh).
template <class T>
bool mma_chain_did(double operations, const std::vector<T>& elements, const std::vector<float>& sums) {
  const double warps = static_cast<double>(sums.size()) / 32;
  const double additions = operations / mma_flops / (mma_a * mma_b) / warps;  // to each fragment of C
  const auto element = [&](std::size_t thread, std::size_t i) {               // i of its 32 for A, then of its 32 for B
    return static_cast<double>(static_cast<float>(elements[2 * (thread % 4096 + 4096 * (i / 2)) + i % 2]));
  };
  for (std::size_t warp = 0; warp < std::min(warps, 128.0); ++warp) {
    double a[16 * mma_a][16], b[16][8 * mma_b];  // the fragments of A below each other, those of B side by side
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 8 * mma_a; ++i) {
        a[16 * (i / 8) + g + 8 * (i / 2 % 2)][2 * t + i % 2 + 8 * (i / 4 % 2)] = element(32 * warp + lane, i);
      }
      for (int i = 0; i < 4 * mma_b; ++i) {
        b[2 * t + i % 2 + 8 * (i / 2 % 2)][8 * (i / 4) + g] = element(32 * warp + lane, 8 * mma_a + i);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      double total = 0, size = 0;  // of the lane's elements of C: rows g, g + 8, …, columns 2t and 2t + 1 of each eight
      for (int row = lane / 4; row < 16 * mma_a; row += 8) {
        for (int i = 0; i < 2 * mma_b; ++i) {
          for (int k = 0; k < 16; ++k) {
            const double product = a[row][k] * b[k][8 * (i / 2) + 2 * (lane % 4) + i % 2];
            total += product;
            size += std::abs(product);
          }
        }
      }
      const double tolerance = std::ldexp(additions + 128, -23) * additions * size;
      if (!(std::abs(sums[32 * warp + lane] - additions * total) <= tolerance)) return false;
    }
  }
  return repeats(sums);
}

}  // namespace ceilings
