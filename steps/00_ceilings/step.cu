// Step 00, host side: sizes and launches.
#include <random>

#include "steps/00_ceilings/1_memory.cuh"
#include "steps/00_ceilings/2_arithmetic.cuh"
#include "steps/00_ceilings/ceilings.h"

namespace ceilings {
namespace {

using device::Buffer;
using device::launch;

constexpr int copy_threads = 512;
constexpr int threads = 256;

template <class T>
std::vector<T> download(const Buffer& buffer, std::size_t count) {
  std::vector<T> values(count);
  buffer.download(values.data(), count * sizeof(T));
  return values;
}

}  // namespace

struct Ceilings::Memory {
  Buffer from, to, sums, values, halves, bfloats;
};

Ceilings::Ceilings(double scale, int multiprocessors) : memory_(new Memory) {
  const auto count = static_cast<std::int64_t>(scale * (std::int64_t{4} << 30) / 16);  // of 16 bytes
  const int copy_blocks = static_cast<int>(device::ceil_div(count, std::int64_t{copy_threads}));
  const int read_blocks = 64 * multiprocessors;
  const int fma_blocks = 8 * multiprocessors;
  Memory& m = *memory_;
  const std::size_t bytes = static_cast<std::size_t>(count) * 16;
  m.from = Buffer("from", bytes);
  m.to = Buffer("to", bytes);
  m.sums = Buffer("sums", static_cast<std::size_t>(read_blocks) * threads * 4);

  std::mt19937 random(1);
  std::vector<std::uint32_t> words(bytes / 4);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i * 2654435761u);
  m.from.upload(words.data(), bytes);
  std::normal_distribution<float> normal;
  std::vector<float> values(4096 + fma_chains);
  for (float& value : values) value = std::tanh(normal(random));
  m.values = Buffer("values", values.size() * 4);
  m.values.upload(values.data(), values.size() * 4);
  std::vector<__half> halves(2 * 4096 * 32);
  std::vector<__nv_bfloat16> bfloats(halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float value = normal(random);
    halves[i] = __float2half(value);
    bfloats[i] = __float2bfloat16(value);
  }
  m.halves = Buffer("halves", halves.size() * 2);
  m.halves.upload(halves.data(), halves.size() * 2);
  m.bfloats = Buffer("bfloats", bfloats.size() * 2);
  m.bfloats.upload(bfloats.data(), bfloats.size() * 2);

  all_.push_back({"copy_bytes_per_second", "copy in device memory, bytes read plus bytes written", "B/s",
                  2.0 * static_cast<double>(bytes),
                  [=, &m] { launch(copy, copy_blocks, copy_threads, 0, count, m.from.as<const uint4>(), m.to.as<uint4>()); },
                  [=, &m] {
                    const std::size_t words_checked = 4096;
                    return download<std::uint32_t>(m.to, words_checked) == download<std::uint32_t>(m.from, words_checked);
                  }});
  all_.push_back({"read_bytes_per_second", "reading device memory", "B/s", static_cast<double>(bytes),
                  [=, &m] { launch(read, read_blocks, threads, 0, count, m.from.as<const uint4>(), m.sums.as<unsigned>()); },
                  [=, &m] {
                    const std::vector<unsigned> sums =
                        download<unsigned>(m.sums, static_cast<std::size_t>(read_blocks) * threads);
                    unsigned total = 0, expected = 0;
                    for (const unsigned sum : sums) total += sum;
                    const std::vector<std::uint32_t> words_read = download<std::uint32_t>(m.from, bytes / 4);
                    for (std::size_t i = 0; i < words_read.size(); i += 4) {
                      expected += words_read[i] ^ words_read[i + 1] ^ words_read[i + 2] ^ words_read[i + 3];
                    }
                    return total == expected;
                  }});
  const int fma_rounds = std::max(1, static_cast<int>(scale * 20000));
  all_.push_back(
      {"fma_flops_per_second", "fp32 multiply-adds from registers", "FLOP/s",
       2.0 * fma_blocks * threads * fma_rounds * fma_unroll * fma_chains,
       [=, &m] { launch(fma_chain, fma_blocks, threads, 0, fma_rounds, m.values.as<const float>(), m.sums.as<float>()); },
       [&m] { return std::isfinite(download<float>(m.sums, 1)[0]); }});
  const int mma_rounds = std::max(1, static_cast<int>(scale * 20000));
  const double mma_amount = mma_flops * multiprocessors * (threads / 32) * mma_rounds * mma_unroll * mma_a * mma_b;
  all_.push_back({"mma_sync_flops_per_second", "mma.sync.m16n8k16 from registers, fp16 in, fp32 sums", "FLOP/s", mma_amount,
                  [=, &m] {
                    launch(mma_chain<__half>, multiprocessors, threads, 0, mma_rounds, m.halves.as<const std::uint32_t>(),
                           m.sums.as<float>());
                  },
                  [&m] { return std::isfinite(download<float>(m.sums, 1)[0]); }});
  all_.push_back({"mma_sync_bf16_flops_per_second", "the same, bf16 in", "FLOP/s", mma_amount,
                  [=, &m] {
                    launch(mma_chain<__nv_bfloat16>, multiprocessors, threads, 0, mma_rounds,
                           m.bfloats.as<const std::uint32_t>(), m.sums.as<float>());
                  },
                  [&m] { return std::isfinite(download<float>(m.sums, 1)[0]); }});
}

Ceilings::~Ceilings() { delete memory_; }

}  // namespace ceilings
