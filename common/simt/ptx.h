// The simulator's half of common/device/ptx/: functions named after the instructions, which say what they do. Every access
// knows the line of the kernel that makes it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "common/simt/cuda.h"

namespace simt::ptx {

using simt::bar_arrive;
using simt::bar_sync;
using simt::barrier_sync;
using simt::bulk_commit_group;
using simt::cluster_arrive;
using simt::cluster_arrive_relaxed;
using simt::cluster_rank;
using simt::cluster_size;
using simt::cluster_sync;
using simt::cluster_wait;
using simt::cp_async_commit_group;
using simt::cp_async_wait_all;
using simt::fence_mbarrier_init;
using simt::fence_proxy_async;
using simt::griddepcontrol_launch_dependents;
using simt::griddepcontrol_wait;

template <class T>
[[gnu::always_inline]] inline T* in_block(T* pointer, int rank,
                                          const std::source_location where = std::source_location::current()) {
  return static_cast<T*>(simt::mapa(pointer, rank, where));
}

template <class T>
inline constexpr bool is_mma_operand = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

[[gnu::always_inline]] inline void ldmatrix_x1(std::uint32_t (&r)[1], const void* row,
                                               const std::source_location where = std::source_location::current()) {
  simt::ldmatrix(r, row, 1, false, where);
}
[[gnu::always_inline]] inline void ldmatrix_x1_trans(std::uint32_t (&r)[1], const void* row,
                                                     const std::source_location where = std::source_location::current()) {
  simt::ldmatrix(r, row, 1, true, where);
}
[[gnu::always_inline]] inline void ldmatrix_x2(std::uint32_t (&r)[2], const void* row,
                                               const std::source_location where = std::source_location::current()) {
  simt::ldmatrix(r, row, 2, false, where);
}
[[gnu::always_inline]] inline void ldmatrix_x2_trans(std::uint32_t (&r)[2], const void* row,
                                                     const std::source_location where = std::source_location::current()) {
  simt::ldmatrix(r, row, 2, true, where);
}
[[gnu::always_inline]] inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row,
                                               const std::source_location where = std::source_location::current()) {
  simt::ldmatrix(r, row, 4, false, where);
}
[[gnu::always_inline]] inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row,
                                                     const std::source_location where = std::source_location::current()) {
  simt::ldmatrix(r, row, 4, true, where);
}

[[gnu::always_inline]] inline void stmatrix_x4(void* row, const std::uint32_t (&r)[4],
                                               const std::source_location where = std::source_location::current()) {
  simt::stmatrix(row, r, 4, false, where);
}
[[gnu::always_inline]] inline void stmatrix_x4_trans(void* row, const std::uint32_t (&r)[4],
                                                     const std::source_location where = std::source_location::current()) {
  simt::stmatrix(row, r, 4, true, where);
}

template <class T>
[[gnu::always_inline]] inline void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                                const std::source_location where = std::source_location::current()) {
  static_assert(is_mma_operand<T>, "__half or __nv_bfloat16");
  simt::mma(c, a, b, c, 16, std::is_same_v<T, __nv_bfloat16>, where);
}
template <class T>
[[gnu::always_inline]] inline void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                                const float (&c)[4],
                                                const std::source_location where = std::source_location::current()) {
  static_assert(is_mma_operand<T>, "__half or __nv_bfloat16");
  simt::mma(d, a, b, c, 16, std::is_same_v<T, __nv_bfloat16>, where);
}
template <class T>
[[gnu::always_inline]] inline void mma_m16n8k8(float (&c)[4], const std::uint32_t (&a)[2], const std::uint32_t (&b)[1],
                                               const std::source_location where = std::source_location::current()) {
  static_assert(is_mma_operand<T>, "__half or __nv_bfloat16");
  simt::mma(c, a, b, c, 8, std::is_same_v<T, __nv_bfloat16>, where);
}

inline std::uint32_t prmt(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  const std::uint64_t both = std::uint64_t{high} << 32 | low;
  std::uint32_t word = 0;
  for (int n = 0; n < 4; ++n) {
    const std::uint32_t digit = selector >> (4 * n) & 15, byte = static_cast<std::uint32_t>(both >> (8 * (digit & 7))) & 255;
    word |= ((digit & 8) == 0 ? byte : byte >> 7 != 0 ? 255u : 0u) << (8 * n);
  }
  return word;
}

[[gnu::always_inline]] inline void cp_async_4(void* to, const void* from, int source_bytes = 4) {
  simt::cp_async(to, from, 4, static_cast<std::uint32_t>(source_bytes), false);
}
[[gnu::always_inline]] inline void cp_async_8(void* to, const void* from, int source_bytes = 8) {
  simt::cp_async(to, from, 8, static_cast<std::uint32_t>(source_bytes), false);
}
[[gnu::always_inline]] inline void cp_async_16(void* to, const void* from, int source_bytes = 16) {
  simt::cp_async(to, from, 16, static_cast<std::uint32_t>(source_bytes), true);
}
[[gnu::always_inline]] inline void cp_async_16_ca(void* to, const void* from, int source_bytes = 16) {
  simt::cp_async(to, from, 16, static_cast<std::uint32_t>(source_bytes), false);
}
template <int pending>
inline void cp_async_wait_group() {
  simt::cp_async_wait_group(pending);
}

struct alignas(8) Mbarrier {
  std::uint64_t opaque;
};

// Whether a phase is over. Who does not look at it has not waited: that is why it is no bool.
class PhaseIsOver {
 public:
  [[gnu::always_inline]] PhaseIsOver(Mbarrier& barrier, bool over) : barrier_(barrier), over_(over) {}
  [[gnu::always_inline]] operator bool() const {
    if (over_) simt::mbarrier_acquire(&barrier_);
    return over_;
  }

 private:
  Mbarrier& barrier_;
  bool over_;
};

[[gnu::always_inline]] inline void mbarrier_init(Mbarrier& barrier, int arrivals,
                                                 const std::source_location where = std::source_location::current()) {
  simt::mbarrier_init(&barrier, arrivals, where);
}
[[gnu::always_inline]] inline void mbarrier_inval(Mbarrier& barrier,
                                                  const std::source_location where = std::source_location::current()) {
  simt::mbarrier_inval(&barrier, where);
}
[[gnu::always_inline]] inline void mbarrier_arrive(Mbarrier& barrier,
                                                   const std::source_location where = std::source_location::current()) {
  simt::mbarrier_arrive(&barrier, where);
}
[[gnu::always_inline]] inline void mbarrier_arrive_expect_tx(
    Mbarrier& barrier, int bytes, const std::source_location where = std::source_location::current()) {
  simt::mbarrier_arrive_expect_tx(&barrier, bytes, where);
}
[[gnu::always_inline]] inline void mbarrier_expect_tx(Mbarrier& barrier, int bytes,
                                                      const std::source_location where = std::source_location::current()) {
  simt::mbarrier_expect_tx(&barrier, bytes, where);
}
[[gnu::always_inline]] inline PhaseIsOver mbarrier_test_wait(
    Mbarrier& barrier, int parity, const std::source_location where = std::source_location::current()) {
  return {barrier, simt::mbarrier_test_wait(&barrier, parity, where)};
}
[[gnu::always_inline]] inline PhaseIsOver mbarrier_try_wait(
    Mbarrier& barrier, int parity, const std::source_location where = std::source_location::current()) {
  return {barrier, simt::mbarrier_try_wait(&barrier, parity, where)};
}
[[gnu::always_inline]] inline void mbarrier_wait(Mbarrier& barrier, int parity,
                                                 const std::source_location where = std::source_location::current()) {
  simt::mbarrier_wait(&barrier, parity, where);
}
[[gnu::always_inline]] inline void cp_async_mbarrier_arrive(
    Mbarrier& barrier, const std::source_location where = std::source_location::current()) {
  simt::cp_async_mbarrier_arrive(&barrier, where);
}

[[gnu::always_inline]] inline void bulk_load(void* to, const void* from, int bytes, Mbarrier& barrier,
                                             const std::source_location where = std::source_location::current()) {
  simt::bulk_load(to, from, bytes, &barrier, where);
}
[[gnu::always_inline]] inline void bulk_store(void* to, const void* from, int bytes) { simt::bulk_store(to, from, bytes); }
template <int pending>
inline void bulk_wait_group() {
  simt::bulk_wait_group(pending, false);
}
template <int pending>
inline void bulk_wait_group_read() {
  simt::bulk_wait_group(pending, true);
}

[[gnu::always_inline]] inline void red_add_f32(float* to, float x) { simt::red_add(to, 1, x, 0.0f, 0.0f, 0.0f); }
[[gnu::always_inline]] inline void red_add_v2_f32(float* to, float a, float b) { simt::red_add(to, 2, a, b, 0.0f, 0.0f); }
[[gnu::always_inline]] inline void red_add_v4_f32(float* to, float a, float b, float c, float d) {
  simt::red_add(to, 4, a, b, c, d);
}

template <class T>
inline std::uint32_t max_nan_x2(std::uint32_t a, std::uint32_t b) {
  static_assert(is_mma_operand<T>, "__half or __nv_bfloat16");
  std::uint32_t larger = 0;
  for (const int shift : {0, 16}) {
    const auto first = static_cast<std::uint16_t>(a >> shift), second = static_cast<std::uint16_t>(b >> shift);
    const auto value = [](std::uint16_t bits) {
      if constexpr (std::is_same_v<T, __half>) return __half2float(std::bit_cast<T>(bits));
      return __bfloat162float(std::bit_cast<__nv_bfloat16>(bits));
    };
    const float x = value(first), y = value(second);
    const bool first_is_larger = x > y || (x == y && !std::signbit(x));  // +0 is larger than −0
    const std::uint32_t chosen = std::isnan(x) || std::isnan(y) ? 0x7fffu : first_is_larger ? first : second;
    larger |= chosen << shift;
  }
  return larger;
}

inline float ex2_approx_ftz(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}

}  // namespace simt::ptx
