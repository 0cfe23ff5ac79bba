#include "common/problem/pages.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "common/problem/attention.h"
#include "common/problem/require.h"

namespace problem {
namespace {

int length_of(const Attention& shape, int batch) { return shape.lengths.empty() ? shape.seq_k : shape.lengths[batch]; }

// visit(key_row, pool_row) for each key of each entry and head: where its row begins in K, and in the pool.
template <class Visit>
void for_each_key(const Attention& shape, const Visit& visit) {
  const Pages& pages = *shape.pages;
  const int columns = columns_of(pages, shape);
  for (int b = 0; b < shape.batch; ++b) {
    for (int h = 0; h < shape.kv_heads; ++h) {
      for (int key = 0; key < length_of(shape, b); ++key) {
        const std::int64_t page = pages.table[static_cast<std::size_t>(b) * columns + key / pages.size];
        visit(((std::int64_t{b} * shape.kv_heads + h) * shape.seq_k + key) * shape.dim,
              ((page * shape.kv_heads + h) * pages.size + key % pages.size) * shape.dim);
      }
    }
  }
}

}  // namespace

int columns_of(const Pages& pages, const Attention& shape) {
  return static_cast<int>((std::int64_t{shape.seq_k} + pages.size - 1) / pages.size);
}

void require_pages(const Pages& pages, const Attention& shape) {
  require(pages.size >= 1 && pages.size <= 256 && (pages.size & (pages.size - 1)) == 0,
          "page-size is " + std::to_string(pages.size) + "; it must be a power of two up to 256");
  require_extent("the number of pages", pages.count);
  const std::int64_t columns = columns_of(pages, shape), entries = columns * shape.batch;
  require(std::ssize(pages.table) == entries, "pages holds " + std::to_string(pages.table.size()) + " numbers; " +
                                                  std::to_string(shape.batch) + " batch entries with " +
                                                  std::to_string(columns) + " pages each ask for " + std::to_string(entries));
  for (int b = 0; b < shape.batch; ++b) {
    for (int c = 0; c * pages.size < length_of(shape, b); ++c) {
      const std::int32_t page = pages.table[b * columns + c];
      require(page >= 0 && page < pages.count, "pages holds " + std::to_string(page) + " for page " + std::to_string(c) +
                                                   " of batch entry " + std::to_string(b) + "; the pool has " +
                                                   std::to_string(pages.count));
    }
  }
  require(!shape.is_packed(), "a paged cache contradicts packed sequences (cu-seqlens), which lie one behind the other");
  require(!shape.sparse, "a paged cache contradicts a sparse mask");
}

std::shared_ptr<const Pages> make_pages(const Attention& shape, int size, std::uint64_t seed, int spare) {
  auto pages = std::make_shared<Pages>();
  pages->size = size;
  require(size >= 1, "page-size is " + std::to_string(size) + "; it must be a power of two up to 256");
  const std::int64_t needed = std::int64_t{shape.batch} * columns_of(*pages, shape);
  require(needed + spare <= max_extent, "the pool would have " + std::to_string(needed + spare) + " pages");
  pages->count = static_cast<int>(needed) + spare;
  std::vector<std::int32_t> all(static_cast<std::size_t>(pages->count));
  std::iota(all.begin(), all.end(), 0);
  std::mt19937_64 random(seed);  // the same on every machine; std::shuffle is not
  for (std::size_t n = all.size(); n > 1; --n) std::swap(all[n - 1], all[random() % n]);
  all.resize(static_cast<std::size_t>(needed));
  pages->table = std::move(all);
  return pages;
}

Tensor of_pool(const Tensor& pool, const Attention& shape) {
  Tensor keys({shape.batch, shape.kv_heads, shape.seq_k, shape.dim});
  for_each_key(shape, [&](std::int64_t key, std::int64_t at) { std::copy_n(&pool.values[at], shape.dim, &keys.values[key]); });
  return keys;
}

Tensor to_pool(const Tensor& keys, const Attention& shape) {
  Tensor pool({shape.pages->count, shape.kv_heads, shape.pages->size, shape.dim}, std::numeric_limits<float>::quiet_NaN());
  for_each_key(shape, [&](std::int64_t key, std::int64_t at) { std::copy_n(&keys.values[key], shape.dim, &pool.values[at]); });
  return pool;
}

}  // namespace problem
