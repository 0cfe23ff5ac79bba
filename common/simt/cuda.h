// CUDA's dialect for a host compiler: what kernels see instead of nvcc's built-in names. Each intrinsic here does what the
// CUDA C++ Programming Guide says of it, and refuses what the guide calls undefined.
//
// __activemask() is missing on purpose: which lanes happen to run together is a property of one machine on one day.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <source_location>
#include <tuple>
#include <type_traits>

#include "common/simt/simt.h"

#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif

// As nvcc does by default: device functions become part of the kernel. Each use of a helper is then a place of its own in the
// code, and places follow the order of the source, by which lanes that took different branches meet again (engine.h).
#undef __device__
#define __device__ __attribute__((always_inline))

#pragma GCC visibility push(default)

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = simt::warp_size;

namespace simt {

void barrier(const std::source_location& where);
bool barrier_or(bool predicate, const std::source_location& where);
void warp_barrier(std::uint32_t mask, const std::source_location& where);
void bar_sync(int id, int threads, const std::source_location& where = std::source_location::current());
void barrier_sync(int id, int threads, const std::source_location& where = std::source_location::current());
void bar_arrive(int id, int threads, const std::source_location& where = std::source_location::current());
void fence(Scope scope);
int cluster_rank();
int cluster_size();
void cluster_arrive(const std::source_location& where = std::source_location::current());
void cluster_arrive_relaxed(const std::source_location& where = std::source_location::current());
void cluster_wait(const std::source_location& where = std::source_location::current());
void cluster_sync(const std::source_location& where = std::source_location::current());
void* mapa(const void* pointer, int rank, const std::source_location& where);

// One lane's part in the instructions of ptx.h.
void ldmatrix(std::uint32_t* registers, const void* row, int matrices, bool transposed, const std::source_location& where);
void stmatrix(void* row, const std::uint32_t* registers, int matrices, bool transposed, const std::source_location& where);
void mma(float* d, const std::uint32_t* a, const std::uint32_t* b, const float* c, int k, bool bfloat,
         const std::source_location& where);
void red_add(float* to, int elements, float a, float b, float c, float d);  // 1, 2 or 4 elements, the others are ignored
void cp_async(void* to, const void* from, std::uint32_t bytes, std::uint32_t source_bytes, bool past_l1);
void cp_async_commit_group();
void cp_async_wait_group(int pending);
void cp_async_wait_all();
void cp_async_mbarrier_arrive(void* barrier, const std::source_location& where);
void mbarrier_init(void* barrier, int arrivals, const std::source_location& where);
void mbarrier_inval(void* barrier, const std::source_location& where);
void mbarrier_arrive(void* barrier, const std::source_location& where);
void mbarrier_arrive_expect_tx(void* barrier, int bytes, const std::source_location& where);
void mbarrier_expect_tx(void* barrier, int bytes, const std::source_location& where);
bool mbarrier_test_wait(void* barrier, int parity, const std::source_location& where);  // what others did is seen after acquire
bool mbarrier_try_wait(void* barrier, int parity, const std::source_location& where);
void mbarrier_acquire(void* barrier);
void mbarrier_wait(void* barrier, int parity, const std::source_location& where);
void bulk_load(void* to, const void* from, int bytes, void* barrier, const std::source_location& where);
void bulk_store(void* to, const void* from, int bytes);
void bulk_commit_group();
void bulk_wait_group(int pending, bool until_read);
void fence_proxy_async();
void fence_mbarrier_init();
void griddepcontrol_wait();
void griddepcontrol_launch_dependents();

enum class Shuffle { index, up, down, butterfly };
std::uint64_t shuffle(const char* name, Shuffle mode, std::uint32_t mask, std::uint64_t value, int bytes, int operand,
                      int width, const std::source_location& where);
std::uint32_t ballot(const char* name, std::uint32_t mask, bool predicate, const std::source_location& where);

// The block's shared memory; `anchor` leads to the struct's members in the debug information.
void* shared_memory(std::size_t bytes, std::size_t alignment, const void* anchor, const std::source_location& where);
template <class T>
inline T* type_anchor = nullptr;

// For code that the compiler's hooks would miss or split: one access of `bytes`, made by the code that returns to `pc`.
void report_access(const void* address, std::size_t bytes, bool is_write, const void* pc);
void report_no_access(const void* pc);  // of a lane whose predicate is false, where others of its warp make an access
// Before an atomic: lets other threads run, then reports the access. No other thread of the block runs until the calling lane
// waits again. True if other blocks run at the same time, in no order that the seed would know. `stores`: whatever it finds;
// else it is a store only if it says so afterwards, before it changes the value.
bool report_atomic(const void* address, std::size_t bytes, Scope scope, bool stores, const void* pc);
void report_atomic_store(const void* address, std::size_t bytes, Scope scope, bool stores, const void* pc);
void use_unordered_result();  // the launch runs again, in order

// Not inlined, not instrumented: the access is reported once, with its whole width.
template <class T>
[[gnu::noinline, gnu::no_sanitize_thread]] T load(const T* address) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "one access moves 2, 4, 8 or 16 bytes");
  report_access(address, sizeof(T), false, __builtin_return_address(0));
  T value;
  __builtin_memcpy(&value, address, sizeof(T));  // not a copy constructor, which may be instrumented
  return value;
}

template <class T>
[[gnu::noinline, gnu::no_sanitize_thread]] void store(T* address, T value) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "one access moves 2, 4, 8 or 16 bytes");
  report_access(address, sizeof(T), true, __builtin_return_address(0));
  __builtin_memcpy(address, &value, sizeof(T));
}

// A store that the lane makes only if `condition` holds. The others wait with it: the warp executes it once, as a GPU does an
// instruction under a predicate, however the compiler here arranges the loop around it.
template <class T>
[[gnu::noinline, gnu::no_sanitize_thread]] void store_if(bool condition, T* address, T value) {
  if (condition) {
    report_access(address, sizeof(T), true, __builtin_return_address(0));
    __builtin_memcpy(address, &value, sizeof(T));
  } else {
    report_no_access(__builtin_return_address(0));
  }
}

// The same for a load; zero for the lanes that do not make it.
template <class T>
[[gnu::noinline, gnu::no_sanitize_thread]] T load_if(bool condition, const T* address) {
  T value{};
  if (condition) {
    report_access(address, sizeof(T), false, __builtin_return_address(0));
    __builtin_memcpy(&value, address, sizeof(T));
  } else {
    report_no_access(__builtin_return_address(0));
  }
  return value;
}

// What an atomic found. Who only stores (a sum, a count that somebody reads later) never asks for it, and that is an
// instruction of its own on a GPU: `red` instead of `atom`. Blocks may make these in any order, several at a time; but who
// looks at the result may go another way for it, so then the seed must decide the order.
template <class T>
class Found {
 public:
  [[gnu::always_inline]] Found(T value, bool unordered) : value_(value), unordered_(unordered) {}
  [[gnu::always_inline]] operator T() const {
    if (unordered_) use_unordered_result();
    return value_;
  }

 private:
  T value_;
  bool unordered_;
};

// Replaces *address by update(*address) and returns the old value. `stores`: also where that is the old value.
template <bool stores, class T, class Update>
[[gnu::noinline, gnu::no_sanitize_thread]] Found<T> atomic(Scope scope, T* address, Update update) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics are of 4 or 8 bytes");
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const bool unordered = report_atomic(address, sizeof(T), scope, stores, __builtin_return_address(0));
  auto* const bits = reinterpret_cast<Bits*>(address);
  Bits old = __atomic_load_n(bits, __ATOMIC_RELAXED);
  for (;;) {
    const auto updated = __builtin_bit_cast(Bits, update(__builtin_bit_cast(T, old)));  // std::bit_cast may be a call
    if (updated == old) break;
    report_atomic_store(address, sizeof(T), scope, stores, __builtin_return_address(0));
    // False where another worker has changed the value in between; old is then what it is now.
    if (__atomic_compare_exchange_n(bits, &old, updated, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) break;
  }
  return {__builtin_bit_cast(T, old), unordered};
}

template <class T>
T shuffled(const char* name, Shuffle mode, unsigned mask, T value, int operand, int width, const std::source_location& where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "shuffles move 32 or 64 bits");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(name, mode, mask, bits, sizeof(T) <= 4 ? 4 : 8, operand, width, where);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace simt

#pragma GCC visibility pop

// ---- arithmetic ----

// A product that is rounded by itself: nvcc never makes an FMA of it and an addition. g++ makes none on this target.
inline float __fmul_rn(float a, float b) { return a * b; }

// ---- barriers ----

inline void __syncthreads(const std::source_location where = std::source_location::current()) { simt::barrier(where); }
inline int __syncthreads_or(int predicate, const std::source_location where = std::source_location::current()) {
  return simt::barrier_or(predicate != 0, where);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, const std::source_location where = std::source_location::current()) {
  simt::warp_barrier(mask, where);
}

// ---- shuffles and votes ----

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              const std::source_location where = std::source_location::current()) {
  return simt::shuffled("__shfl_sync", simt::Shuffle::index, mask, value, source, width, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 const std::source_location where = std::source_location::current()) {
  return simt::shuffled("__shfl_up_sync", simt::Shuffle::up, mask, value, static_cast<int>(delta), width, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   const std::source_location where = std::source_location::current()) {
  return simt::shuffled("__shfl_down_sync", simt::Shuffle::down, mask, value, static_cast<int>(delta), width, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  const std::source_location where = std::source_location::current()) {
  return simt::shuffled("__shfl_xor_sync", simt::Shuffle::butterfly, mask, value, lane_mask, width, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const std::source_location where = std::source_location::current()) {
  return simt::ballot("__ballot_sync", mask, predicate != 0, where);
}
inline int __any_sync(unsigned mask, int predicate, const std::source_location where = std::source_location::current()) {
  return simt::ballot("__any_sync", mask, predicate != 0, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, const std::source_location where = std::source_location::current()) {
  return simt::ballot("__all_sync", mask, predicate != 0, where) == mask;
}

// ---- atomics: on device and shared memory, relaxed, as CUDA's are ----

// Always inlined, so that reports name the kernel's line.

// NAME(address, value), NAME_block and NAME_system: *address becomes `updated`, an expression of `old` and `value`.
#define SIMT_ATOMIC_OF(scope, name, updated)                                                                    \
  template <class T>                                                                                            \
  [[gnu::always_inline]] inline simt::Found<T> name(T* address, std::type_identity_t<T> value) {                \
    return simt::atomic<true>(simt::Scope::scope, address, [value](T old) { return static_cast<T>(updated); }); \
  }
#define SIMT_ATOMIC(name, updated)             \
  SIMT_ATOMIC_OF(device, name, updated)        \
  SIMT_ATOMIC_OF(block, name##_block, updated) \
  SIMT_ATOMIC_OF(system, name##_system, updated)

namespace simt {
template <std::integral T>  // CUDA has no others
T smaller(T a, T b) {
  return b < a ? b : a;
}
template <std::integral T>
T larger(T a, T b) {
  return a < b ? b : a;
}
}  // namespace simt

SIMT_ATOMIC(atomicAdd, old + value)
SIMT_ATOMIC(atomicMax, simt::larger(old, value))
SIMT_ATOMIC(atomicMin, simt::smaller(old, value))
SIMT_ATOMIC(atomicOr, old | value)
SIMT_ATOMIC(atomicAnd, old& value)
SIMT_ATOMIC(atomicExch, ((void)old, value))
#undef SIMT_ATOMIC
#undef SIMT_ATOMIC_OF

#define SIMT_ATOMIC_CAS(scope, name)                                                                                           \
  template <class T>                                                                                                           \
  [[gnu::always_inline]] inline simt::Found<T> name(T* address, std::type_identity_t<T> compare,                               \
                                                    std::type_identity_t<T> value) {                                           \
    return simt::atomic<false>(simt::Scope::scope, address, [compare, value](T old) { return old == compare ? value : old; }); \
  }
SIMT_ATOMIC_CAS(device, atomicCAS)
SIMT_ATOMIC_CAS(block, atomicCAS_block)
SIMT_ATOMIC_CAS(system, atomicCAS_system)
#undef SIMT_ATOMIC_CAS

// All lanes see one memory: a fence moves no data. It orders accesses for the race rules.
inline void __threadfence_block() { simt::fence(simt::Scope::block); }
inline void __threadfence() { simt::fence(simt::Scope::device); }
inline void __threadfence_system() { simt::fence(simt::Scope::system); }

// ---- arithmetic that nvcc declares in the global namespace ----

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }

// In a host program this would silently give every thread an array of its own.
#undef __shared__
#define __shared__ static_assert(false, "shared memory is one struct: auto& smem = device::shared_storage<Smem>();");
