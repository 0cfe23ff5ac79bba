// The ceilings, host side: sizes and launches.
#include <cmath>
#include <random>

#include "benchmarks/ceilings/arithmetic.cuh"
#include "benchmarks/ceilings/ceilings.h"
#include "benchmarks/ceilings/expected.h"
#include "benchmarks/ceilings/memory.cuh"
#include "common/runtime/launch.h"

namespace ceilings {
namespace {

using runtime::Buffer;
using runtime::launch;

constexpr int copy_threads = 512;
constexpr int threads = 256;

template <class T>
Buffer uploaded(const char* name, const std::vector<T>& values) {
  Buffer buffer(name, values.size() * sizeof(T));
  buffer.upload(values.data(), values.size() * sizeof(T));
  return buffer;
}

template <class T>
std::vector<T> download(const Buffer& buffer, std::size_t count) {
  std::vector<T> values(count);
  buffer.download(values.data(), count * sizeof(T));
  return values;
}

}  // namespace

struct Ceilings::Memory {
  std::vector<float> values;
  std::vector<__half> halves;
  std::vector<__nv_bfloat16> bfloats;
  Buffer from, to, sums, device_values, device_halves, device_bfloats;
};

Ceilings::Ceilings(double scale, int multiprocessors) : memory_(std::make_unique<Memory>()) {
  const auto count = static_cast<std::int64_t>(scale * (std::int64_t{4} << 30) / 16);  // of 16 bytes
  const std::size_t bytes = static_cast<std::size_t>(count) * 16;
  const int copy_blocks = static_cast<int>(device::ceil_div(count, std::int64_t{copy_threads}));
  const int read_blocks = 64 * multiprocessors;
  const int fma_blocks = 8 * multiprocessors;
  const int mma_blocks = multiprocessors;
  const int rounds = std::max(1, static_cast<int>(scale * 20000));

  Memory& m = *memory_;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 4096 + fma_chains; ++i) m.values.push_back(std::tanh(normal(random)));
  for (int i = 0; i < 2 * 4096 * (4 * mma_a + 2 * mma_b); ++i) {
    const float value = normal(random);
    m.halves.push_back(__float2half(value));
    m.bfloats.push_back(__float2bfloat16(value));
  }
  m.from = uploaded("from", words(bytes / 4));
  m.to = Buffer("to", bytes);
  m.sums = Buffer("sums", static_cast<std::size_t>(read_blocks) * threads * 4);
  m.to.poison();
  m.sums.poison();
  m.device_values = uploaded("values", m.values);
  m.device_halves = uploaded("halves", m.halves);
  m.device_bfloats = uploaded("bfloats", m.bfloats);
  const auto sums = [&m](int blocks) { return download<float>(m.sums, static_cast<std::size_t>(blocks) * threads); };

  all_.push_back(
      {"copy_bytes_per_second", "copy in device memory, bytes read plus bytes written", 2.0 * static_cast<double>(bytes),
       [=, &m] {
         launch(copy, {.grid = copy_blocks, .block = copy_threads}, count, m.from.as<const uint4>(), m.to.as<uint4>());
       },
       [=, &m](double moved) {
         return moved == 2.0 * static_cast<double>(bytes) && copied(download<std::uint32_t>(m.to, bytes / 4));
       }});
  all_.push_back({"read_bytes_per_second", "reading device memory", static_cast<double>(bytes),
                  [=, &m] {
                    launch(read, {.grid = read_blocks, .block = threads}, count, m.from.as<const uint4>(),
                           m.sums.as<unsigned>());
                  },
                  [=, &m](double moved) {
                    return read_once(moved, download<std::uint32_t>(m.sums, static_cast<std::size_t>(read_blocks) * threads));
                  }});
  all_.push_back({"fma_flops_per_second", "fp32 multiply-adds from registers",
                  2.0 * fma_blocks * threads * rounds * fma_unroll * fma_chains,
                  [=, &m] {
                    launch(fma_chain, {.grid = fma_blocks, .block = threads}, rounds, m.device_values.as<const float>(),
                           m.sums.as<float>());
                  },
                  [=, &m](double operations) { return fma_chain_did(operations, m.values, sums(fma_blocks)); }});
  const double mma_amount = mma_flops * mma_blocks * (threads / 32) * rounds * mma_unroll * mma_a * mma_b;
  all_.push_back({"mma_sync_flops_per_second", "mma.sync.m16n8k16 from registers, fp16 in, fp32 sums", mma_amount,
                  [=, &m] {
                    launch(mma_chain<__half>, {.grid = mma_blocks, .block = threads}, rounds,
                           m.device_halves.as<const std::uint32_t>(), m.sums.as<float>());
                  },
                  [=, &m](double operations) { return mma_chain_did(operations, m.halves, sums(mma_blocks)); }});
  all_.push_back({"mma_sync_bf16_flops_per_second", "the same, bf16 in", mma_amount,
                  [=, &m] {
                    launch(mma_chain<__nv_bfloat16>, {.grid = mma_blocks, .block = threads}, rounds,
                           m.device_bfloats.as<const std::uint32_t>(), m.sums.as<float>());
                  },
                  [=, &m](double operations) { return mma_chain_did(operations, m.bfloats, sums(mma_blocks)); }});
}

Ceilings::~Ceilings() = default;

}  // namespace ceilings
