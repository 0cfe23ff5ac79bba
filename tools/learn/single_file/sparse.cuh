// A mask of blocks, for each head, on top of a causal mask and a window.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "tools/learn/single_file/host.cuh"

namespace host {

enum class HeadType : std::int32_t { dense, block_sparse, streaming_blocks, streaming_tokens };
struct Streaming {
  std::int32_t sink, local;  // the first `sink` blocks or tokens, and those less than `local` away
};
struct SparseMask {
  int block_q = 128, block_k = 128;    // queries and keys of a block
  int batches = 1;                     // the same mask for all batch entries
  std::vector<std::int32_t> types{};   // [heads]: a HeadType each
  std::vector<Streaming> streaming{};  // [heads]
  std::vector<std::int32_t> live{};    // [heads, query blocks, words]: bit c of word w is block 32 w + c of keys
  int seq_q = 0, seq_k = 0;

  HeadType type(int head) const { return static_cast<HeadType>(types[head]); }
  int query_blocks() const { return (seq_q + block_q - 1) / block_q; }
  int words() const { return (seq_k + 32 * block_k - 1) / (32 * block_k); }
  bool sees(int head, int i, int j) const {
    const auto [sink, local] = streaming[head];
    const int block = i / block_q, key_block = j / block_k, ahead = seq_k - seq_q;
    if (types[head] == 1) {
      const std::int32_t word = live[(std::int64_t{head} * query_blocks() + block) * words() + key_block / 32];
      return static_cast<std::uint32_t>(word) >> key_block % 32 & 1;
    }
    if (types[head] == 2) {  // the own blocks of a block of queries hold the keys beside them
      const auto own_block = [&](int query) {
        return static_cast<int>(std::floor(static_cast<double>(query + ahead) / block_k));
      };
      const int first = own_block(block * block_q), last = own_block(std::min((block + 1) * block_q, seq_q) - 1);
      return key_block < sink || std::max({first - key_block, key_block - last, 0}) < local;
    }
    if (types[head] == 3) return j < sink || std::abs(i + ahead - j) < local;
    return true;
  }
};
template <class Shape>
int query_blocks(const SparseMask& mask, const Shape&) {
  return mask.query_blocks();
}
template <class Shape>
int words_of_row(const SparseMask& mask, const Shape&) {
  return mask.words();
}

// Makes a mask from a pattern, or from several with commas between them, which the heads take by turns:
//   dense, random:SHARE of live blocks, band:N blocks, sink:S+local:L blocks, sink:St+local:Lt tokens
inline void fill(SparseMask& mask, int heads, const std::string& pattern, std::mt19937_64& random) {
  const std::regex comma(","), share(R"(random:(0|1|0?\.\d{1,9}))"),
      streams(R"((?:sink:(\d{1,7})(t?)\+local|band):(\d{1,7})(t?))");
  const std::vector<std::string> parts(std::sregex_token_iterator(pattern.begin(), pattern.end(), comma, -1), {});
  const std::int64_t words = std::int64_t{mask.query_blocks()} * mask.words();  // of a head
  mask.live.resize(static_cast<std::size_t>(heads * words));
  for (int head = 0; head < heads; ++head) {
    const std::string part = parts.empty() ? "" : parts[head % parts.size()];
    std::smatch match;
    int type = 0, sink = 0, local = 0;
    if (std::regex_match(part, match, share)) {
      type = 1;
      std::bernoulli_distribution is_live(std::stod(match[1]));
      for (std::int64_t word = head * words; word < (head + 1) * words; ++word) {
        std::uint32_t bits = 0;
        for (int bit = 0; bit < 32; ++bit) bits |= static_cast<std::uint32_t>(is_live(random)) << bit;
        mask.live[word] = static_cast<std::int32_t>(bits);
      }
    } else if (std::regex_match(part, match, streams) && match[2].str() == match[4].str()) {
      type = match[2].length() > 0 ? 3 : 2;
      sink = match[1].matched ? std::stoi(match[1]) : 0;
      local = std::stoi(match[3]);
    } else {
      require(part == "dense",
              "--pattern has '" + part + "', which is none of dense, random:P, band:N, sink:S+local:L, sink:St+local:Lt");
    }
    mask.types.push_back(type);
    mask.streaming.push_back({sink, local});
  }
}

}  // namespace host
