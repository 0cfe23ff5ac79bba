// Random numbers that are the same everywhere.
#pragma once

#include <cstdint>

namespace problem {

// The n-th number of SplitMix64 (Steele, Lea, Flood 2014): a hash of seed and n, so any number can be made alone.
inline std::uint64_t splitmix(std::uint64_t seed, std::uint64_t n) {
  std::uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

}  // namespace problem
