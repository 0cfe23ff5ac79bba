#include <algorithm>

#include "common/device/dialect.h"
#include "common/device/online_softmax.cuh"
#include "common/runtime/launch.h"
#include "common/runtime/runtime.h"
#include "tests/unit/online_softmax_kernels.h"

namespace online_softmax_kernels {
namespace {

constexpr int threads = 64;

__device__ int thread_number() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

__global__ void test_singles(int count, Partial* partials, const Score* scores) {  // [count] both
  const int i = thread_number();
  if (i >= count) return;
  partials[i].m = scores[i].score * device::log2_e;
  partials[i].l = 1.0f;
  for (int d = 0; d < dim; ++d) partials[i].o[d] = scores[i].value[d];
}

__global__ void test_merge(int count, Partial* result, const Partial* a, const Partial* b) {  // [count] all
  const int i = thread_number();
  if (i >= count) return;
  const device::MergedSoftmax both = device::merge({a[i].m, a[i].l}, {b[i].m, b[i].l});
  result[i].m = both.state.m;
  result[i].l = both.state.l;
  for (int d = 0; d < dim; ++d) result[i].o[d] = both.first * a[i].o[d] + both.second * b[i].o[d];
}

__global__ void test_finish(int count, Finished* result, const Partial* partials) {  // [count] both
  const int i = thread_number();
  if (i >= count) return;
  const float factor = device::inverse_sum(partials[i].l);
  for (int d = 0; d < dim; ++d) result[i].o[d] = partials[i].o[d] * factor;
  result[i].lse = device::log_sum_exp({partials[i].m, partials[i].l});
}

__global__ void test_exp2(int count, float* y, const float* x) {  // [count] both
  const int i = thread_number();
  if (i < count) y[i] = device::exp2_fast(x[i]);
}

__global__ void test_factors(int count, float* y, const float* from, const float* to) {  // [count] all
  const int i = thread_number();
  if (i < count) y[i] = device::rescale_factor(from[i], to[i]);
}

template <class T>
runtime::Buffer uploaded(const char* name, const std::vector<T>& values) {
  runtime::Buffer buffer(name, values.size() * sizeof(T));
  buffer.upload(values.data(), buffer.bytes());
  return buffer;
}

// One thread for each element of the result.
template <class Result, class... Elements>
std::vector<Result> mapped(void (*kernel)(int, Result*, const Elements*...), const std::vector<Elements>&... arguments) {
  const std::size_t count = std::min({arguments.size()...});
  runtime::Buffer result("result", count * sizeof(Result));
  const auto launch = [&](const auto&... buffers) {
    runtime::launch(kernel, {static_cast<unsigned>(device::ceil_div<std::size_t>(count, threads)), threads},
                    static_cast<int>(count), result.as<Result>(), buffers.template as<const Elements>()...);
    runtime::synchronize();
  };
  launch(uploaded("argument", arguments)...);
  std::vector<Result> values(count);
  result.download(values.data(), result.bytes());
  return values;
}

}  // namespace

std::vector<Partial> singles(const std::vector<Score>& scores) { return mapped(test_singles, scores); }
std::vector<Partial> merged(const std::vector<Partial>& a, const std::vector<Partial>& b) { return mapped(test_merge, a, b); }
std::vector<Finished> finished(const std::vector<Partial>& partials) { return mapped(test_finish, partials); }
std::vector<float> powers_of_two(const std::vector<float>& exponents) { return mapped(test_exp2, exponents); }
std::vector<float> factors(const std::vector<float>& from, const std::vector<float>& to) {
  return mapped(test_factors, from, to);
}

}  // namespace online_softmax_kernels
