// Which blocks of keys a block of queries may see: a mask as data, one for each head.
//
// Such a mask comes on top of causal masks, windows and packed sequences: a query sees a key where all of them let it. Heads
// may be of different types, mixed in one launch:
//
//     dense              every key
//     block_sparse       the blocks of keys that are marked as live for the query's block
//     streaming_blocks   the first `sink` blocks of keys, and the blocks less than `local` blocks away from the query's own
//     streaming_tokens   the first `sink` keys, and the keys j with |own key − j| < local
//
// The own key of query i is i + seq_k − seq_q, the key beside it. The own blocks of a block of queries are those that hold the
// own keys of its queries: one, where both kinds of blocks are equal and begin side by side. In packed sequences the first keys
// are those of the query's sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace problem {

struct Attention;

enum class HeadType : std::int32_t { dense = 0, block_sparse = 1, streaming_blocks = 2, streaming_tokens = 3 };
std::string_view to_string(HeadType type);  // "block-sparse"

struct Streaming {
  std::int32_t sink = 0;   // blocks or tokens
  std::int32_t local = 0;  // the same
  bool operator==(const Streaming&) const = default;
};

struct SparseMask {
  int block_q = 128;                      // queries of a block
  int block_k = 128;                      // keys of a block
  int batches = 1;                        // 1: the same mask for all batch entries; else one for each
  std::vector<std::int32_t> types = {};   // [heads], a HeadType each
  std::vector<Streaming> streaming = {};  // [heads]; empty where no head streams
  // Bits: [batches, heads, query blocks, words_of_row()], bit c of word w for block 32 w + c of keys. Empty where no head is
  // block_sparse.
  std::vector<std::int32_t> live = {};
  bool operator==(const SparseMask&) const = default;

  HeadType type(int head) const { return static_cast<HeadType>(types[head]); }
  bool has(HeadType type) const;  // among its heads
};

// Blocks that cover the queries, and the keys; words of 32 bits for a row of blocks of keys.
int query_blocks(const SparseMask& mask, const Attention& shape);
int key_blocks(const SparseMask& mask, const Attention& shape);
int words_of_row(const SparseMask& mask, const Attention& shape);

// The own blocks of a block of queries, first and last. They may be no blocks of the problem: then some query has no own key.
struct OwnBlocks {
  int first, last;
};
OwnBlocks own_blocks(const SparseMask& mask, const Attention& shape, int query_block);

// May a query of this block see the block's keys, as far as causal masks, windows and sequences let it? For heads of all types
// but streaming_tokens.
bool is_live(const SparseMask& mask, const Attention& shape, int batch, int head, int query_block, int key_block);

// The same for one pair of a query and a key, of every type of head: by the definition, for the reference. It shares nothing
// with common/device/visibility.h, which kernels and the others here ask.
bool sees(const SparseMask& mask, const Attention& shape, int batch, int head, int query, int key);

// (query, key) pairs of all heads and batch entries that are visible under all masks.
double live_pairs(const SparseMask& mask, const Attention& shape);

// What is wrong with the mask for the problem: std::invalid_argument that names the field.
void require_mask(const SparseMask& mask, const Attention& shape);

// A mask from a line of text. The pattern is one of
//
//     dense                  every key
//     band:N                 blocks less than N blocks away from the query's own
//     sink:S+local:L         streaming by block
//     sink:St+local:Lt       streaming by token: a t behind each number
//     random:P               of every row of blocks the share P, the own block among them; of none where P is 0
//     uneven:P               the same, where rows differ: from a quarter of P to more than twice as much, P on average
//     full-row:P             random:P, but one row of each head has all its blocks
//     vertical-slash:V+S     own blocks, V columns (the first one, others at random) and S diagonals at random
//     empty                  none
//
// or several of these with commas between them: the heads take them by turns. Random choices are those of the seed, and count
// only blocks that hold a visible pair. Throws std::invalid_argument for text that is none of these.
std::shared_ptr<const SparseMask> make_pattern(const std::string& pattern, const Attention& shape, int block_q, int block_k,
                                               std::uint64_t seed);

}  // namespace problem
