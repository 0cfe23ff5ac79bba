// Dropout: which pairs of a query and a key count. Written from the paper and from the contract of docs/checking.md, and apart
// from what kernels use.
#pragma once

#include <array>
#include <cstdint>

#include "common/reference/attention.h"

namespace reference {

// Philox 4×32 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
std::array<std::uint32_t, 4> philox_4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key, int rounds);

// What P of a pair is multiplied by behind the softmax: 0, or 256 / (256 − n); 1 without dropout.
//
// Seven rounds of Philox, with the seed as key (its low half first) and the counter { query, key, head, batch }, of query and
// key without bits 3 and 4. Bits 3 and 4 of the query choose the word, those of the key the byte, from the lowest on. The pair
// counts if that byte is n or more.
double kept_weight(const AttentionSpec& spec, int batch, int head, int query, int key);

}  // namespace reference
