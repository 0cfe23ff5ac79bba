// Step 09: what a warp does with 16 keys, for the 16 rows of an item: S = Q Kᵀ, softmax, O += P V.
#pragma once

#include "common/device/dialect.h"
#include "common/device/flash_v2/warp_tile.cuh"
#include "common/device/ptx/arithmetic.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "steps/09_decoding/stream.cuh"

namespace decoding {

using device::Heads;
using device::load;
using device::load_if;
using device::SoftmaxState;
using device::store;
using device::store_if;
using flash_v2::all_lanes;
using flash_v2::chunk;
using flash_v2::RowKeys;
using flash_v2::swizzled;

// 16 keys of K or V. Chunks of a row are swizzled, so that ldmatrix meets no bank conflicts.
template <class T, int dim>
using KeyRows = T[warp_keys][dim];

template <class T, int dim>
using KeysAndValues = KeyRows<T, dim>[2];

// The pages of the 16 keys that a warp copies next; nothing where K and V are not paged.
template <class Shape>
struct NextPages {
  __device__ explicit NextPages(const Shape&) {}
  __device__ void look_up(const Item&, int) {}
};

// Of K and V that may be paged. A lane keeps the page of one of the keys, and looks it up a tile ahead: else each copy would
// wait for the table.
template <class T>
struct NextPages<ScoredShape<T>> {
  device::PageTable table;
  int page = 0;  // of key lane % 16

  __device__ explicit NextPages(const ScoredShape<T>& shape) : table(shape.pages) {}
  __device__ void look_up(const Item& item, int first) {
    const int key = first + threadIdx.x % warp_keys;
    if (table.table != nullptr && item.keys.seen.has(key)) page = table.place_of(item.batch, key).batch;
  }
  // Of key number `n` of the 16. All lanes of the warp make the call.
  __device__ device::KeyPlace place_of(int batch, int key, int n) const {
    const int found = __shfl_sync(all_lanes, page, n);
    return table.table == nullptr ? device::KeyPlace{batch, key} : device::KeyPlace{found, table.row_of(key)};
  }
};

// A warp starts to copy 16 keys and their values, from `first` on; what no query sees becomes zeros. A lane copies 16 bytes of
// every (256 / dim)th row.
template <class T, int dim>
__device__ void copy_keys(KeysAndValues<T, dim>& to, const Heads<const T>& k, const Heads<const T>& v, const Item& item,
                          const NextPages<AttentionShape>&, int first) {
  constexpr int chunks = dim / chunk, lane_rows = 32 / chunks;  // of a row; and that the warp copies at a time
  const int row = threadIdx.x % 32 / chunks, column = threadIdx.x % chunks * chunk;
  const T* k_head = k.row(item.batch, item.kv_head, 0) + column;
  const T* v_head = v.row(item.batch, item.kv_head, 0) + column;
#pragma unroll
  for (int i = 0; i < warp_keys; i += lane_rows) {
    const int key = first + row + i, place = swizzled<dim>(row + i, column);
    const bool inside = item.keys.seen.has(key);
    ptx::cp_async_16(&to[0][row + i][place], k_head + (inside ? key : 0) * k.row_stride, inside ? 16 : 0);
    ptx::cp_async_16(&to[1][row + i][place], v_head + (inside ? key : 0) * v.row_stride, inside ? 16 : 0);
  }
}

// The same from pages.
// [doc: copy_from_pages]
template <class T, int dim>
__device__ void copy_keys(KeysAndValues<T, dim>& to, const Heads<const T>& k, const Heads<const T>& v, const Item& item,
                          const NextPages<ScoredShape<T>>& pages, int first) {
  constexpr int chunks = dim / chunk, lane_rows = 32 / chunks;
  const int row = threadIdx.x % 32 / chunks, column = threadIdx.x % chunks * chunk;
#pragma unroll
  for (int i = 0; i < warp_keys; i += lane_rows) {
    const int key = first + row + i, place = swizzled<dim>(row + i, column);
    const bool inside = item.keys.seen.has(key);
    const auto [page, page_row] = pages.place_of(item.batch, inside ? key : item.keys.seen.first, row + i);
    ptx::cp_async_16(&to[0][row + i][place], &k.row(page, item.kv_head, page_row)[column], inside ? 16 : 0);
    ptx::cp_async_16(&to[1][row + i][place], &v.row(page, item.kv_head, page_row)[column], inside ? 16 : 0);
  }
}
// [/doc: copy_from_pages]

template <class T>
__device__ void mma_two(float (&first)[4], float (&second)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[4]) {
  const std::uint32_t b_first[2] = {b[0], b[1]}, b_second[2] = {b[2], b[3]};
  ptx::mma_m16n8k16<T>(first, a, b_first);
  ptx::mma_m16n8k16<T>(second, a, b_second);
}

// A warp's rows: of a lane rows g and g + 8, with g = lane / 4, and columns 2t and 2t + 1 of each 8, with t = lane % 4.
template <class T, int dim, class Shape = AttentionShape>
struct WarpRows {
  std::uint32_t q[dim / 16][4];        // fragments
  RowKeys keys[2];                     // that the lane's two rows see
  device::RowScores<Shape> scored[2];  // what becomes of their scores
  float acc[dim / 8][4];               // O, not yet divided
  SoftmaxState states[2];              // l is the lane's share

  // Takes the rows of an item: Q from global memory, zeros for rows that are not there. Nothing is summed yet.
  __device__ void begin(const Shape& shape, const Work& work, const Item& item, const Heads<const T>& from) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool there = g + 8 * r < item.rows;
      const Query query = query_of(work, item, there ? g + 8 * r : 0);
      keys[r] = flash_v2::keys_of(device::entry_of(shape, item.batch), query.i);
      scored[r].begin(shape, item.batch, query.head, query.i);
      const auto* pairs = reinterpret_cast<const std::uint32_t*>(from.row(item.batch, query.head, query.i));
#pragma unroll
      for (int step = 0; step < dim / 16; ++step) {
        q[step][r] = load_if(there, &pairs[8 * step + t]);
        q[step][r + 2] = load_if(there, &pairs[8 * step + 4 + t]);
      }
      states[r] = {};
    }
#pragma unroll
    for (int p = 0; p < dim / 8; ++p) {
#pragma unroll
      for (float& x : acc[p]) x = 0.0f;
    }
  }

  // Takes in 16 keys, from `key` on.
  // [doc: attend]
  __device__ void attend(const ItemKeys& all, const KeyRows<T, dim>& k, KeyRows<T, dim>& v, int key) {
    // S = Q K^T
    float s[2][4] = {};
    scores(s, k);
    const bool hidden = to_base_2(s, key);
    const bool masked = key < all.seen_by_all.first || key + warp_keys > all.seen_by_all.end;
    if (masked) flash_v2::mask_scores(s, keys, key);
    if ((masked && all.rows_differ()) || hidden) take_out_non_finite(v, key);
    // row maximum, P = exp2(S - m), rescale
    flash_v2::softmax_tile(s, states, acc);
    // O += P V
    accumulate(s, v);
  }
  // [/doc: attend]

 private:
  __device__ void scores(float (&s)[2][4], const KeyRows<T, dim>& k) const {
    const int lane = threadIdx.x % 32, row = lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int step = 0; step < dim / 16; ++step) {
      std::uint32_t k_frag[4];  // words 0 and 1 are of the first 8 keys
      ptx::ldmatrix_x4(k_frag, &k[row][swizzled<dim>(row, 16 * step + lane / 8 % 2 * chunk)]);
      mma_two<T>(s[0], s[1], q[step], k_frag);
    }
  }

  // Products become scores. Whether an option may hide one of these keys from one of the warp's rows.
  __device__ bool to_base_2(float (&s)[2][4], int key) const {
    bool hidden = false;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[n][e] = scored[e / 2].score(s[n][e], key + 8 * n + threadIdx.x % 4 * 2 + e % 2);
        hidden |= s[n][e] == -INFINITY;
      }
    }
    if constexpr (!device::RowScores<Shape>::may_hide) return false;
    return __any_sync(all_lanes, hidden);
  }

  __device__ void accumulate(const float (&s)[2][4], const KeyRows<T, dim>& v) {
    const int lane = threadIdx.x % 32, row = lane % 16;
    std::uint32_t p_frag[4];
    flash_v2::as_operand<T>(p_frag, s, 0);
#pragma unroll
    for (int p = 0; p < dim / 8; p += 2) {
      std::uint32_t v_frag[4];  // words 0 and 1 are of the first 8 columns
      ptx::ldmatrix_x4_trans(v_frag, &v[row][swizzled<dim>(row, 8 * p + lane / 16 * chunk)]);
      mma_two<T>(acc[p], acc[p + 1], p_frag, v_frag);
    }
  }

  __device__ bool sees(int r, int key) const { return keys[r].has(key) && !scored[r].hides(key); }

  // 0 · NaN is NaN: through P · V an infinity or a NaN of V would reach rows that do not see its key. If there is one, which is
  // rare, it is added to the rows that see it, and becomes 0 in shared memory.
  __device__ void take_out_non_finite(KeyRows<T, dim>& v, int key) {
    uint4* chunks = reinterpret_cast<uint4*>(&v[0][0]);
    bool found = false;
    for (int i = threadIdx.x % 32; i < warp_keys * dim / chunk; i += 32) found |= flash_v2::any_non_finite<T>(load(&chunks[i]));
    if (!__any_sync(all_lanes, found)) return;
#pragma unroll 1
    for (int j = 0; j < warp_keys; ++j) {
      const bool seen[2] = {sees(0, key + j), sees(1, key + j)};
      if (!__any_sync(all_lanes, seen[0] || seen[1])) continue;  // a key that is not there, or hidden from all rows
#pragma unroll
      for (int p = 0; p < dim / 8; ++p) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float x = device::to_float(load(&v[j][swizzled<dim>(j, 8 * p) + threadIdx.x % 4 * 2 + e]));
          const bool finite = fabsf(x) < INFINITY;
#pragma unroll
          for (int r = 0; r < 2; ++r) acc[p][2 * r + e] += !finite && seen[r] ? x : 0.0f;
        }
      }
    }
    __syncwarp();  // all lanes have read the tile before anyone clears it
    const auto cleared = [](std::uint32_t word) { return word & ~((flash_v2::non_finite<T>(word) >> 15) * 0xffffu); };
    for (int i = threadIdx.x % 32; i < warp_keys * dim / chunk; i += 32) {
      const uint4 old = load(&chunks[i]);
      store(&chunks[i], make_uint4(cleared(old.x), cleared(old.y), cleared(old.z), cleared(old.w)));
    }
    __syncwarp();  // all have cleared their chunks before anyone reads the tile again
  }
};

}  // namespace decoding
