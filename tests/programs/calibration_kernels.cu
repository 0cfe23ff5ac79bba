// Kernels that each make one kind of access, so that the simulator's counts can be held against Nsight Compute's, case by case.
#include <cstdint>

#include "common/device/dialect.h"
#include "common/runtime/launch.h"
#include "tests/programs/calibration_kernels.h"

namespace calibration {
namespace {

using runtime::Buffer;
using runtime::launch;

constexpr int elements = 4096;  // of each array

// Lane t loads element t · stride + offset; the first `active` lanes take part.
__global__ void global_load(const float* in, float* out, int stride, int offset, int active) {
  const int t = threadIdx.x;
  if (t < active) out[t] = in[t * stride + offset];
}

__global__ void global_load_16_bit(const __half* in, __half* out, int stride, int offset) {
  const int t = threadIdx.x;
  device::store(&out[t], device::load(&in[t * stride + offset]));
}

__global__ void global_load_64_bit(const float2* in, float2* out, int stride, int offset) {
  const int t = threadIdx.x;
  device::store(&out[t], device::load(&in[t * stride + offset]));
}

__global__ void global_load_128_bit(const float4* in, float4* out, int stride, int offset) {
  const int t = threadIdx.x;
  device::store(&out[t], device::load(&in[t * stride + offset]));
}

// Lane t stores to element t · stride + offset.
__global__ void global_store(float* out, int stride, int offset) {
  const int t = threadIdx.x;
  out[t * stride + offset] = t;
}

// Two causal rows a lane, of different lengths: lanes leave the inner loop at different times and meet again behind it.
__global__ void causal_rows(const float* in, float* out, int columns) {
  const int t = threadIdx.x;
#pragma unroll 1
  for (int i = t; i < 64; i += 32) {
    float sum = 0.0f;
#pragma unroll 1
    for (int j = 0; j <= i && j < columns; ++j) sum += in[i * columns + j];
    out[i] = sum;
  }
}

// Lanes take one of two branches, and then go on together.
__global__ void branches(const float* in, float* out, int period) {
  const int t = threadIdx.x;
  float value;
  if (t % period == 0) {
    value = in[t] + 1.0f;
  } else {
    value = in[t + 32] * 2.0f;
  }
  out[t] = value + in[t + 64];
}

struct Smem {
  alignas(16) float values[elements];
};

// Fills shared memory without conflicts: 128 wavefronts of stores by each of the (one) warps.
template <class T>
__device__ T* filled(Smem& smem) {
  for (int i = threadIdx.x; i < elements; i += 32) smem.values[i] = i;
  __syncthreads();  // filled before it is read
  return reinterpret_cast<T*>(smem.values);
}

// Lane t loads element (t / group) · stride + offset: lanes of a group share it.
__global__ void shared_load(float* out, int stride, int offset, int group) {
  const float* values = filled<float>(device::shared_storage<Smem>());
  const int t = threadIdx.x;
  out[t] = values[t / group * stride + offset];
}

__global__ void shared_load_16_bit(__half* out, int stride, int offset, int group) {
  const __half* values = filled<__half>(device::shared_storage<Smem>());
  const int t = threadIdx.x;
  device::store(&out[t], device::load(&values[t / group * stride + offset]));
}

// Wide loads: lane t loads element (t & mask) · stride, so that lanes which differ only in masked bits share it; lanes from
// `split` on have one each.
__global__ void shared_load_64_bit(float2* out, int stride, int mask, int split) {
  const float2* values = filled<float2>(device::shared_storage<Smem>());
  const int t = threadIdx.x;
  device::store(&out[t], device::load(&values[(t < split ? t & mask : t) * stride]));
}

__global__ void shared_load_128_bit(float4* out, int stride, int mask, int split) {
  const float4* values = filled<float4>(device::shared_storage<Smem>());
  const int t = threadIdx.x;
  device::store(&out[t], device::load(&values[(t < split ? t & mask : t) * stride]));
}

__global__ void shared_store(float* out, int stride, int offset) {
  auto& smem = device::shared_storage<Smem>();
  const int t = threadIdx.x;
  smem.values[t * stride + offset] = t;
  __syncthreads();  // stored before it is read
  out[t] = smem.values[t * stride + offset];
}

__global__ void shared_store_64_bit(float2* out, int stride, int offset) {
  auto* values = reinterpret_cast<float2*>(device::shared_storage<Smem>().values);
  const int t = threadIdx.x;
  device::store(&values[t * stride + offset], make_float2(t, -t));
  __syncthreads();  // stored before it is read
  device::store(&out[t], device::load(&values[t * stride + offset]));
}

__global__ void shared_store_128_bit(float4* out, int stride, int offset) {
  auto* values = reinterpret_cast<float4*>(device::shared_storage<Smem>().values);
  const int t = threadIdx.x;
  device::store(&values[t * stride + offset], make_float4(t, -t, t, -t));
  __syncthreads();  // stored before it is read
  device::store(&out[t], device::load(&values[t * stride + offset]));
}

// What __syncthreads() and shuffles count, by four warps.
__global__ void barriers_and_shuffles(float* out, int times) {
  float value = threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < times; ++i) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    __syncthreads();  // for the count
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

}  // namespace

void run_all() {
  const std::vector<float> values(elements, 1.0f);
  Buffer in("in", elements * sizeof(float)), out("out", elements * sizeof(float));
  in.upload(values.data(), in.bytes());
  out.upload(values.data(), out.bytes());
  const auto* floats = in.as<const float>();
  auto* to = out.as<float>();

  for (const int stride : {0, 1, 2, 3, 4, 8, 16, 32, 33}) launch(global_load, {1, 32}, floats, to, stride, 0, 32);
  for (const int offset : {1, 7, 8, 31}) launch(global_load, {1, 32}, floats, to, 1, offset, 32);
  for (const int active : {1, 5, 31}) launch(global_load, {1, 32}, floats, to, 1, 0, active);
  launch(global_load, {1, 48}, floats, to, 2, 3, 40);
  for (const int stride : {1, 2, 16, 17})
    launch(global_load_16_bit, {1, 32}, in.as<const __half>(), out.as<__half>(), stride, 3);
  for (const int stride : {0, 1, 2, 5}) launch(global_load_64_bit, {1, 32}, in.as<const float2>(), out.as<float2>(), stride, 1);
  for (const int stride : {0, 1, 2, 5})
    launch(global_load_128_bit, {1, 32}, in.as<const float4>(), out.as<float4>(), stride, 1);
  for (const int stride : {1, 2, 8, 9, 32}) launch(global_store, {1, 32}, to, stride, 5);
  for (const int columns : {40, 64}) launch(causal_rows, {1, 32}, floats, to, columns);
  for (const int period : {2, 5, 64}) launch(branches, {1, 32}, floats, to, period);

  for (const int stride : {0, 1, 2, 3, 4, 8, 16, 32, 33}) launch(shared_load, {1, 32, sizeof(Smem)}, to, stride, 0, 1);
  for (const int group : {2, 4, 32}) launch(shared_load, {1, 32, sizeof(Smem)}, to, 32, 1, group);
  for (const int stride : {0, 1, 2, 4, 64, 66}) {
    launch(shared_load_16_bit, {1, 32, sizeof(Smem)}, out.as<__half>(), stride, 1, 1);
  }
  const auto wide = [&](int stride, int mask, int split) {
    launch(shared_load_64_bit, {1, 32, sizeof(Smem)}, out.as<float2>(), stride, mask, split);
    launch(shared_load_128_bit, {1, 32, sizeof(Smem)}, out.as<float4>(), stride, mask, split);
  };
  for (const int stride : {0, 1, 2, 3, 4, 8, 9, 16, 17}) wide(stride, 31, 32);
  for (const int stride : {1, 2, 4, 8, 16}) {
    for (const int mask : {30, 29, 28, 27, 23, 15, 7, 16, 1}) wide(stride, mask, 32);
  }
  for (const int split : {2, 4, 8, 16, 24}) {
    for (const int mask : {30, 29, 0}) wide(1, mask, split);
  }
  for (const int stride : {1, 2, 3, 8, 32, 33}) launch(shared_store, {1, 32, sizeof(Smem)}, to, stride, 0);
  for (const int stride : {1, 2, 3, 8, 16, 17}) launch(shared_store_64_bit, {1, 32, sizeof(Smem)}, out.as<float2>(), stride, 0);
  for (const int stride : {1, 2, 3, 8, 9}) launch(shared_store_128_bit, {1, 32, sizeof(Smem)}, out.as<float4>(), stride, 0);
  launch(barriers_and_shuffles, {2, 128}, to, 7);
  runtime::synchronize();
}

}  // namespace calibration
