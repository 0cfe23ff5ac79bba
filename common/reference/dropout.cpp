#include "common/reference/dropout.h"

namespace reference {

std::array<std::uint32_t, 4> philox_4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t first = 0xD2511F53ull * counter[0], second = 0xCD9E8D57ull * counter[2];
    const auto high = [](std::uint64_t product) { return static_cast<std::uint32_t>(product >> 32); };
    const auto low = [](std::uint64_t product) { return static_cast<std::uint32_t>(product); };
    counter = {high(second) ^ counter[1] ^ key[0], low(second), high(first) ^ counter[3] ^ key[1], low(first)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

double kept_weight(const AttentionSpec& spec, int batch, int head, int query, int key) {
  if (spec.dropout == 0) return 1;
  const auto without_bits_3_and_4 = [](int x) { return static_cast<std::uint32_t>(x / 32 * 32 + x % 8); };
  const auto words =
      philox_4x32({without_bits_3_and_4(query), without_bits_3_and_4(key), static_cast<std::uint32_t>(head),
                   static_cast<std::uint32_t>(batch)},
                  {static_cast<std::uint32_t>(spec.dropout_seed), static_cast<std::uint32_t>(spec.dropout_seed >> 32)}, 7);
  const std::uint32_t byte = words[query / 8 % 4] >> (key / 8 % 4 * 8) & 255;
  return byte < static_cast<std::uint32_t>(spec.dropout) ? 0 : 256.0 / (256 - spec.dropout);
}

}  // namespace reference
