// mma.sync: D = A · B + C, with A [16, K] and B [K, 8] of 16-bit elements and C and D [16, 8] of fp32. The layouts are those of
// the PTX ISA; with lane l, g = l / 4, t = l % 4.
#include "common/simt/mma.h"

#include <algorithm>
#include <cstring>

#include "common/simt/access.h"
#include "common/simt/collectives.h"
#include "common/simt/cuda.h"

namespace simt {

QueuedMultiply& MultiplyQueue::add(float* d) {
  const auto place = static_cast<std::uint32_t>(first_place + products.size());
  QueuedMultiply& added = products.emplace_back();
  added.d = d;
  added.place = place;
  const std::uint32_t places[4] = {place, place, place, place};
  std::memcpy(d, places, sizeof(places));
  const auto at = reinterpret_cast<std::uintptr_t>(d);
  low_ = std::min(low_, at);
  high_ = std::max(high_, at + sizeof(places));
  return added;
}

bool MultiplyQueue::finds_place_in(std::uintptr_t address, std::size_t bytes) const {
  const std::uintptr_t end = std::min(address + bytes, high_);
  for (std::uintptr_t at = std::max(address, low_) / 4 * 4; at < end; at += 4) {
    std::uint32_t word;
    std::memcpy(&word, reinterpret_cast<const void*>(at), sizeof(word));
    if (is_place(word)) return true;
  }
  return false;
}

namespace {

using Bits [[gnu::vector_size(16)]] = std::int32_t;
using Floats [[gnu::vector_size(16)]] = float;

// Of four 16-bit numbers, each in the low half of a word. Without a branch: an mma converts hundreds.
template <bool bfloat>
[[gnu::always_inline]] inline Floats widened(Bits numbers) {
  if constexpr (bfloat) return reinterpret_cast<Floats>(numbers << 16);
  const Bits magnitude = numbers & 0x7fff;
  constexpr std::int32_t other_bias = (127 - 15) << 23;                                       // of the exponent
  const Bits normal = (magnitude << 13) + other_bias + ((magnitude >= 0x7c00) & other_bias);  // infinity stays infinity
  const Floats small = __builtin_convertvector(magnitude, Floats) * 0x1p-24f;
  const Bits is_small = magnitude < 0x400;  // subnormal, or zero
  const Bits finite = ((reinterpret_cast<Bits>(small) & is_small) | (normal & ~is_small)) | (numbers & 0x8000) << 16;
  const Bits is_nan = magnitude > 0x7c00;
  return reinterpret_cast<Floats>((finite & ~is_nan) | (is_nan & 0x7fffffff));  // the NaN that __half2float makes of any
}

// `pairs` as they lie in registers, the low half first.
template <bool bfloat, std::size_t rows, std::size_t columns>
void widen(const std::uint32_t (&pairs)[rows][columns], float (&first)[rows][columns], float (&second)[rows][columns]) {
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; column += 4) {
      Bits four;
      std::memcpy(&four, &pairs[row][column], sizeof(four));
      const Floats low = widened<bfloat>(four & 0xffff), high = widened<bfloat>(four >> 16 & 0xffff);
      std::memcpy(&first[row][column], &low, sizeof(low));
      std::memcpy(&second[row][column], &high, sizeof(high));
    }
  }
}

using Operands = QueuedMultiply* [warp_size];  // of one product, by lane

template <int depth, bool bfloat>
void multiply(const Operands& of_lane) {
  constexpr int pairs = depth / 2;  // of elements: two neighbours of a row of A, or of a column of B
  alignas(16) std::uint32_t a[16][pairs], b[pairs][8];
  alignas(16) float d[16][8];
  for (int lane = 0; lane < warp_size; ++lane) {
    const int g = lane / 4, t = lane % 4;
    const QueuedMultiply& mine = *of_lane[lane];
    for (int r = 0; r < depth / 4; ++r) a[g + 8 * (r % 2)][t + 4 * (r / 2)] = mine.a[r];
    for (int r = 0; r < depth / 8; ++r) b[t + 4 * r][g] = mine.b[r];
    const float* const c = (&mine - mine.back)->sums;
    for (int i = 0; i < 4; ++i) d[g + 8 * (i / 2)][2 * t + i % 2] = c[i];
  }
  alignas(16) float a_even[16][pairs], a_odd[16][pairs], b_even[pairs][8], b_odd[pairs][8];  // k
  widen<bfloat>(a, a_even, a_odd);
  widen<bfloat>(b, b_even, b_odd);
  for (int row = 0; row < 16; ++row) {
    for (int half = 0; half < 8; half += 4) {
      const auto four = [half](const float(&of_row)[8]) {
        Floats values;
        std::memcpy(&values, &of_row[half], sizeof(values));
        return values;
      };
      Floats sum = four(d[row]);
      for (int pair = 0; pair < pairs; ++pair) {  // in the order of k
        sum += a_even[row][pair] * four(b_even[pair]);
        sum += a_odd[row][pair] * four(b_odd[pair]);
      }
      std::memcpy(&d[row][half], &sum, sizeof(sum));
    }
  }
  for (int lane = 0; lane < warp_size; ++lane) {
    const int g = lane / 4, t = lane % 4;
    QueuedMultiply& mine = *of_lane[lane];
    for (int i = 0; i < 4; ++i) {
      mine.sums[i] = d[g + 8 * (i / 2)][2 * t + i % 2];
      std::uint32_t word;
      std::memcpy(&word, &mine.d[i], sizeof(word));
      if (word == mine.place) mine.d[i] = mine.sums[i];
    }
  }
}

// Makes what all lanes have come to, as far as it is the same instruction. The first is; resolve_calls() has seen to that.
void resolve_products(Block& block, Warp& warp, WarpCall* const*) {
  Operands of_lane;
  std::size_t most = MultiplyQueue::limit;
  for (int l = 0; l < warp_size; ++l) {
    MultiplyQueue& queue = warp.lanes[l].queue;
    of_lane[l] = &queue.products[queue.made];
    most = std::min(most, queue.products.size() - queue.made);
  }
  const auto same = [](const QueuedMultiply* x, const QueuedMultiply* y) {
    return x->pc == y->pc && x->k == y->k && x->bfloat == y->bfloat;
  };
  static constexpr void (*multiply_by[2][2])(const Operands&) = {{multiply<8, false>, multiply<16, false>},
                                                                 {multiply<8, true>, multiply<16, true>}};
  const auto multiply_all = multiply_by[of_lane[0]->bfloat][of_lane[0]->k / 16];
  std::size_t count = 0;
  do {
    multiply_all(of_lane);
    block.counters().tensor_instruction();
    for (QueuedMultiply*& product : of_lane) ++product;
  } while (++count < most &&
           std::all_of(of_lane, of_lane + warp_size, [&](const QueuedMultiply* mine) { return same(mine, of_lane[0]); }));
  for (int l = 0; l < warp_size; ++l) {
    Lane& lane = warp.lanes[l];
    lane.queue.made += count;
    WarpCall* const after = lane.after_products;
    if (lane.queue.made == lane.queue.products.size()) lane.queue.clear();
    lane.product_call.next = behind_products(lane, after);
  }
}

bool on_stack(const Lane& lane, const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) - lane.stack_low < StackPool::stack_bytes;
}

}  // namespace

WarpCall* behind_products(Lane& lane, WarpCall* call) {
  static constexpr const char* names[2][2] = {{"mma.m16n8k8.f16", "mma.m16n8k16.f16"},
                                              {"mma.m16n8k8.bf16", "mma.m16n8k16.bf16"}};
  if (lane.queue.products.empty()) return call;
  const QueuedMultiply& first = lane.queue.products[lane.queue.made];
  lane.product_call = {names[first.bfloat][first.k / 16], 0xffffffffu, first.where, first.pc, resolve_products, first.pc};
  lane.after_products = call;
  return &lane.product_call;
}

void await_products(Lane& lane) {
  if (lane.queue.products.empty()) return;
  lane.call = behind_products(lane, nullptr);
  lane.state = Lane::State::in_warp_call;
  lane.wait();
}

void mma(float* d, const std::uint32_t* a, const std::uint32_t* b, const float* c, int k, bool bfloat,
         const std::source_location& where) {
  const void* const pc = __builtin_return_address(0);
  Lane& lane = lane_or_die();
  const auto bytes = static_cast<std::uint32_t>(k);
  // Operands are registers, but a kernel may give arrays that lie in memory: nvcc then loads or stores them, and so they count.
  observe(lane, {reinterpret_cast<std::uintptr_t>(a), bytes, Kind::read, false, pc});
  observe(lane, {reinterpret_cast<std::uintptr_t>(b), bytes / 2, Kind::read, false, pc});
  if (!on_stack(lane, c)) observe(lane, {reinterpret_cast<std::uintptr_t>(c), 16, Kind::read, false, pc});

  // C may be a sum that is still to come: most often D's own.
  std::uint32_t words[4];
  std::memcpy(words, c, sizeof(words));
  std::size_t back = 0;
  MultiplyQueue& queue = lane.queue;
  if (std::any_of(words, words + 4, [&](std::uint32_t word) { return queue.is_place(word); })) {
    const std::size_t maker = words[0] - MultiplyQueue::first_place;
    if (std::all_of(words, words + 4, [&](std::uint32_t word) { return word == words[0]; }) && queue.products[maker].d == c) {
      back = queue.products.size() - maker;
    } else {  // of several products
      await_products(lane);
      std::memcpy(words, c, sizeof(words));
    }
  }
  QueuedMultiply& product = queue.add(d);
  std::memcpy(product.a, a, bytes);
  std::memcpy(product.b, b, bytes / 2);
  std::memcpy(product.sums, words, sizeof(words));
  product.pc = pc;
  product.where = where;
  product.back = static_cast<std::uint16_t>(back);
  product.k = static_cast<std::uint8_t>(k);
  product.bfloat = bfloat;

  // Who counts or traces wants the instruction where it stands, and others may see memory.
  const bool late = !lane.counting && on_stack(lane, d);
  if (!late || queue.products.size() == MultiplyQueue::limit) await_products(lane);
  if (!on_stack(lane, d)) observe(lane, {reinterpret_cast<std::uintptr_t>(d), 16, Kind::write, false, pc});
}

}  // namespace simt
