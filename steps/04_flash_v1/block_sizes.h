// 04_flash_v1: the sizes of Algorithm 1's blocks, the paper's and those that fit.
#pragma once

namespace flash_v1 {

struct BlockSizes {
  int rows;  // Br: queries
  int keys;  // Bc
};

// As the paper has them (line 1). M counts elements of 4 bytes, of the shared memory of one SM.
constexpr BlockSizes papers_sizes(int m_words, int dim) {
  const int keys = (m_words + 4 * dim - 1) / (4 * dim);
  return {keys < dim ? keys : dim, keys};
}

// The words that Algorithm 1 then keeps in shared memory: K_j, V_j, Q_i, O_i, and what the paper's count leaves out, S_ij.
constexpr int qkvo_words(BlockSizes b, int dim) { return 2 * (b.keys + b.rows) * dim; }
constexpr int s_words(BlockSizes b) { return b.keys * b.rows; }

// All that ScalarSmem holds: one word of padding in each row of K, and m and l of the rows, too.
constexpr int all_words(BlockSizes b, int dim) { return qkvo_words(b, dim) + s_words(b) + b.keys + 2 * b.rows; }

// The most keys for which everything fits, with Br = min(Bc, d) as the paper chooses. In steps of 8: then the m and l of a row
// block fill whole sectors.
constexpr BlockSizes sizes_that_fit(int m_words, int dim) {
  BlockSizes best{0, 0};
  for (int keys = 8;; keys += 8) {
    const BlockSizes larger{keys < dim ? keys : dim, keys};
    if (all_words(larger, dim) > m_words) return best;
    best = larger;
  }
}

}  // namespace flash_v1
