// A paged cache: keys and values lie in pages of a pool, and a table says which page has which keys, as inference engines keep
// them, so that a sequence grows without being moved, and sequences that begin alike share pages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/problem/tensor.h"

namespace problem {

struct Attention;

struct Pages {
  int size = 0;   // keys of a page: a power of two up to 256
  int count = 0;  // pages of the pool
  // [batch, columns]: column c of an entry is the page with its keys c · size … (c + 1) · size − 1. Where all of these lie
  // behind the entry's length, it may be any number: the page is not there.
  std::vector<std::int32_t> table;
};

int columns_of(const Pages& pages, const Attention& shape);  // ⌈seq_k / size⌉

// Throws std::invalid_argument, naming the field, for sizes that are none, a table of another length, and pages that the pool
// does not have.
void require_pages(const Pages& pages, const Attention& shape);

// A pool with `spare` pages more than the entries need, in an order that the seed says.
std::shared_ptr<const Pages> make_pages(const Attention& shape, int size, std::uint64_t seed, int spare = 1);

// K or V of a problem, [batch, kv_heads, seq_k, dim], from a pool [count, kv_heads, size, dim], and the other way round. What
// lies behind lengths is zero here, and what no entry has is NaN in the pool.
Tensor of_pool(const Tensor& pool, const Attention& shape);
Tensor to_pool(const Tensor& keys, const Attention& shape);

}  // namespace problem
