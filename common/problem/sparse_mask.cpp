#include "common/problem/sparse_mask.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "common/device/visibility.h"
#include "common/problem/attention.h"
#include "common/problem/number.h"
#include "common/problem/require.h"
#include "common/problem/splitmix.h"

namespace problem {
namespace {

int blocks(int rows, int block) { return static_cast<int>((std::int64_t{rows} + block - 1) / block); }

int floor_div(std::int64_t a, int b) { return static_cast<int>(a >= 0 ? a / b : -((-a + b - 1) / b)); }

int distance(const OwnBlocks& own, int key_block) { return visibility::block_distance(own.first, own.last, key_block); }

// Pairs of a block of queries with each block of keys, visible but for the mask: [query blocks, key blocks].
std::vector<double> pairs_of_blocks(const SparseMask& mask, const Attention& shape) {
  const int columns = key_blocks(mask, shape);
  std::vector<double> pairs(static_cast<std::size_t>(query_blocks(mask, shape)) * columns);
  for (int i = 0; i < shape.seq_q; ++i) {
    const int first = shape.first_key(i), last = shape.last_key(i);
    for (int j = first; j < last;) {
      const int block = j / mask.block_k;
      const int end = static_cast<int>(std::min<std::int64_t>(last, (std::int64_t{block} + 1) * mask.block_k));
      pairs[static_cast<std::size_t>(i / mask.block_q) * columns + block] += end - j;
      j = end;
    }
  }
  return pairs;
}

double token_pairs(const Attention& shape, const Streaming& streaming) {
  const visibility::Tokens tokens = visibility::tokens_of(streaming.sink, streaming.local);
  double pairs = 0;
  for (int i = 0; i < shape.seq_q; ++i) {
    const visibility::SeenKeys seen = visibility::streaming_keys(tokens, shape.first_key(i), shape.last_key(i),
                                                                 visibility::own_key(shape, i), shape.sequence_of(i).first);
    const int sink_end = std::max(seen.sink_first, seen.sink_end);
    pairs += sink_end - seen.sink_first + std::max(seen.end - std::max(seen.first, sink_end), 0);
  }
  return pairs;
}

// ---- patterns ----

// The random choices of one head.
class Random {
 public:
  explicit Random(std::uint64_t stream) : stream_(stream) {}
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t next() { return splitmix(stream_, count_++); }
  std::uint64_t stream_, count_ = 0;
};

[[noreturn]] void bad_pattern(const std::string& pattern, const std::string& what) {
  throw std::invalid_argument("pattern '" + pattern + "': " + what);
}

// The parts of a text between these characters.
std::vector<std::string> split(const std::string& text, char between) {
  std::vector<std::string> parts = {""};
  for (const char c : text) {
    if (c == between) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

int whole(const std::string& pattern, const std::string& text) {
  int value = 0;
  if (read_number(text, value) != Typed::good || value < 0) {
    bad_pattern(pattern, "'" + text + "' must be a whole number from 0 to 2147483647");
  }
  return value;
}

double share(const std::string& pattern, const std::string& text) {
  double value = 0;
  const Typed typed = read_number(text, value);
  if (typed == Typed::too_small) {
    bad_pattern(pattern, "'" + text + "' is too near 0 for a double; the least share above 0 is 4.9e-324");
  }
  if (typed != Typed::good || !(value >= 0 && value <= 1)) bad_pattern(pattern, "'" + text + "' must be a share from 0 to 1");
  return value;
}

// One head's part of a mask, filled in block by block.
struct Head {
  const SparseMask& mask;
  const Attention& shape;
  const std::vector<double>& pairs;  // [query blocks, key blocks], visible but for the mask
  std::int32_t* live;                // [query blocks, words], bits
  int rows, columns, words;

  bool visible(int row, int column) const { return pairs[static_cast<std::size_t>(row) * columns + column] > 0; }
  void set(int row, int column) const {
    if (column < 0 || column >= columns || !visible(row, column)) return;
    live[static_cast<std::size_t>(row) * words + column / 32] |= static_cast<std::int32_t>(1u << column % 32);
  }
  OwnBlocks own(int row) const { return own_blocks(mask, shape, row); }

  // So many of the row's visible blocks: its last own block, and others at random.
  void choose(int row, double wanted, Random& random) const {
    std::vector<int> visible_columns;
    for (int column = 0; column < columns; ++column) {
      if (visible(row, column)) visible_columns.push_back(column);
    }
    if (visible_columns.empty() || wanted <= 0) return;
    const auto most = std::ssize(visible_columns);
    const auto count = std::clamp<std::int64_t>(std::llround(wanted * static_cast<double>(most)), 1, most);
    const auto own_column = std::find(visible_columns.begin(), visible_columns.end(), own(row).last);
    std::swap(visible_columns.front(), own_column == visible_columns.end() ? visible_columns.back() : *own_column);
    for (std::int64_t n = 1; n < count; ++n) std::swap(visible_columns[n], visible_columns[n + random.below(most - n)]);
    for (std::int64_t n = 0; n < count; ++n) set(row, visible_columns[n]);
  }
};

void fill_band(const Head& head, int blocks_away) {
  for (int row = 0; row < head.rows; ++row) {
    for (int column = 0; column < head.columns; ++column) {
      if (distance(head.own(row), column) < blocks_away) head.set(row, column);
    }
  }
}

void fill_vertical_slash(const Head& head, int columns, int diagonals, Random& random) {
  const int most = static_cast<int>(std::min<std::int64_t>(std::int64_t{64} * head.columns, INT_MAX));  // more find nothing new
  columns = std::min(columns, most);
  diagonals = std::min(diagonals, most);
  fill_band(head, 1);
  for (int n = 0; n < columns; ++n) {
    const int column = n == 0 ? 0 : static_cast<int>(random.below(head.columns));
    for (int row = 0; row < head.rows; ++row) head.set(row, column);
  }
  for (int n = 0; n < diagonals; ++n) {
    const int away = static_cast<int>(random.below(head.columns));
    for (int row = 0; row < head.rows; ++row) head.set(row, head.own(row).last - away);
  }
}

// The two numbers of "S+local:L" behind "sink:", and whether they count tokens.
void set_streaming(const std::string& pattern, const std::string& arguments, HeadType& type, Streaming& streaming) {
  const auto parts = split(arguments, '+');
  if (parts.size() != 2 || !parts[1].starts_with("local:"))
    bad_pattern(pattern, "it must be sink:S+local:L or sink:St+local:Lt");
  std::string sink = parts[0], local = parts[1].substr(6);
  const bool tokens = sink.ends_with('t');
  if (tokens != local.ends_with('t')) bad_pattern(pattern, "both numbers count blocks, or both count tokens (a t behind each)");
  if (tokens) {
    sink.pop_back();
    local.pop_back();
  }
  type = tokens ? HeadType::streaming_tokens : HeadType::streaming_blocks;
  streaming = {whole(pattern, sink), whole(pattern, local)};
}

void fill(const std::string& pattern, const Head& head, HeadType& type, Streaming& streaming, Random& random) {
  const std::size_t colon = pattern.find(':');
  const std::string kind = pattern.substr(0, colon);
  const std::string arguments = colon == std::string::npos ? "" : pattern.substr(colon + 1);
  const bool plain = colon == std::string::npos;
  type = HeadType::block_sparse;
  if (kind == "dense" && plain) {
    type = HeadType::dense;
  } else if (kind == "empty" && plain) {
    return;
  } else if (kind == "band" && !plain) {
    fill_band(head, whole(pattern, arguments));
  } else if (kind == "sink" && !plain) {
    set_streaming(pattern, arguments, type, streaming);
  } else if (kind == "vertical-slash" && !plain) {
    const auto parts = split(arguments, '+');
    if (parts.size() != 2) bad_pattern(pattern, "it must be vertical-slash:V+S");
    fill_vertical_slash(head, whole(pattern, parts[0]), whole(pattern, parts[1]), random);
  } else if ((kind == "random" || kind == "uneven" || kind == "full-row") && !plain) {
    const double p = share(pattern, arguments);
    const int full = kind == "full-row" ? static_cast<int>(random.below(head.rows)) : -1;
    for (int row = 0; row < head.rows; ++row) {
      // A square of a random number, from 0 to 1, is 1/3 on average: P/4 and 9/4 P of it.
      const double u = random.unit(), factor = kind == "uneven" ? 0.25 + 2.25 * u * u : 1;
      head.choose(row, row == full ? 1 : p * factor, random);
    }
  } else {
    bad_pattern(pattern,
                "it is none of dense, band:N, sink:S+local:L, sink:St+local:Lt, random:P, uneven:P, full-row:P, "
                "vertical-slash:V+S, empty");
  }
}

}  // namespace

std::string_view to_string(HeadType type) {
  constexpr std::string_view names[] = {"dense", "block-sparse", "streaming by block", "streaming by token"};
  return names[static_cast<int>(type)];
}

bool SparseMask::has(HeadType type) const {
  return std::find(types.begin(), types.end(), static_cast<std::int32_t>(type)) != types.end();
}

int query_blocks(const SparseMask& mask, const Attention& shape) { return blocks(shape.seq_q, mask.block_q); }
int key_blocks(const SparseMask& mask, const Attention& shape) { return blocks(shape.seq_k, mask.block_k); }
int words_of_row(const SparseMask& mask, const Attention& shape) { return blocks(key_blocks(mask, shape), 32); }

OwnBlocks own_blocks(const SparseMask& mask, const Attention& shape, int query_block) {
  const int first = query_block * mask.block_q;
  const visibility::OwnKeys own = visibility::own_keys(shape, first, std::min(mask.block_q, shape.seq_q - first));
  return {floor_div(own.first, mask.block_k), floor_div(own.last, mask.block_k)};
}

bool is_live(const SparseMask& mask, const Attention& shape, int batch, int head, int query_block, int key_block) {
  switch (mask.type(head)) {
    case HeadType::block_sparse: {
      const std::int64_t row = (std::int64_t{mask.batches == 1 ? 0 : batch} * shape.heads + head) * query_blocks(mask, shape);
      const std::int32_t word = mask.live[(row + query_block) * words_of_row(mask, shape) + key_block / 32];
      return static_cast<std::uint32_t>(word) >> key_block % 32 & 1;
    }
    case HeadType::streaming_blocks: {
      const Streaming& streaming = mask.streaming[head];
      return key_block < streaming.sink || distance(own_blocks(mask, shape, query_block), key_block) < streaming.local;
    }
    case HeadType::dense:
    case HeadType::streaming_tokens:
      break;
  }
  return true;
}

bool sees(const SparseMask& mask, const Attention& shape, int batch, int head, int query, int key) {
  const int query_block = query / mask.block_q, key_block = key / mask.block_k;
  const HeadType type = mask.type(head);
  if (type == HeadType::dense) return true;
  if (type == HeadType::block_sparse) return is_live(mask, shape, batch, head, query_block, key_block);
  const auto [sink, local] = mask.streaming[head];
  const std::int64_t ahead = std::int64_t{shape.seq_k} - shape.seq_q;
  if (type == HeadType::streaming_tokens) {
    return key - shape.sequence_of(query).first < sink || std::abs(query + ahead - key) < local;
  }
  // One of the block's own keys lies among the keys that are less than `local` blocks away from this key's block.
  const std::int64_t first_own = std::int64_t{query_block} * mask.block_q + ahead;
  const std::int64_t last_own = std::min<std::int64_t>(first_own + mask.block_q, shape.seq_k) - 1;
  const std::int64_t near_begin = (std::int64_t{key_block} - local + 1) * mask.block_k;
  const std::int64_t near_end = (std::int64_t{key_block} + local) * mask.block_k;
  return key_block < sink || (local > 0 && last_own >= near_begin && first_own < near_end);
}

double live_pairs(const SparseMask& mask, const Attention& shape) {
  const std::vector<double> pairs = pairs_of_blocks(mask, shape);
  const int rows = query_blocks(mask, shape), columns = key_blocks(mask, shape);
  double total = 0;
  for (int batch = 0; batch < mask.batches; ++batch) {
    for (int head = 0; head < shape.heads; ++head) {
      if (mask.type(head) == HeadType::streaming_tokens) {
        total += token_pairs(shape, mask.streaming[head]);
        continue;
      }
      for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < columns; ++column) {
          const double here = pairs[static_cast<std::size_t>(row) * columns + column];
          if (here > 0 && is_live(mask, shape, batch, head, row, column)) total += here;
        }
      }
    }
  }
  return mask.batches == 1 ? total * shape.batch : total;
}

namespace {

// Whoever counts pairs has a number for each block of a head.
void require_blocks(const SparseMask& mask, const Attention& shape) {
  const double of_head = static_cast<double>(query_blocks(mask, shape)) * key_blocks(mask, shape);
  require(of_head <= 0x1p26 && of_head * shape.heads * mask.batches <= 0x1p32,
          "a sparse mask of more than 2^26 blocks a head, or 2^32 in all: larger blocks (block-q, block-k) make fewer");
}

}  // namespace

void require_mask(const SparseMask& mask, const Attention& shape) {
  require_extent("block-q", mask.block_q);
  require_extent("block-k", mask.block_k);
  const auto heads = static_cast<std::size_t>(shape.heads);
  require(mask.batches == 1 || mask.batches == shape.batch, "block_mask is for " + std::to_string(mask.batches) +
                                                                " batch entries; it must be for 1 or for " +
                                                                std::to_string(shape.batch));
  require_blocks(mask, shape);
  require(mask.types.size() == heads,
          "head_type has " + std::to_string(mask.types.size()) + " heads; there are " + std::to_string(shape.heads));
  for (const std::int32_t type : mask.types) {
    require(type >= 0 && type <= static_cast<std::int32_t>(HeadType::streaming_tokens),
            "head_type is " + std::to_string(type) +
                "; it must be 0 (dense), 1 (block-sparse), 2 (streaming by block) or 3 (streaming by token)");
  }
  const bool streams = mask.has(HeadType::streaming_blocks) || mask.has(HeadType::streaming_tokens);
  require(!streams || mask.streaming.size() == heads,
          "streaming has " + std::to_string(mask.streaming.size()) + " heads; there are " + std::to_string(shape.heads));
  for (const Streaming& s : mask.streaming) {
    require(s.sink >= 0 && s.local >= 0, "streaming: sink and local must be 0 or more");
  }
  require(
      !mask.has(HeadType::streaming_blocks) || !shape.is_packed(),
      "a head that streams by block in packed sequences (cu-seqlens): blocks do not begin where sequences do; by token it can");
  const double size = static_cast<double>(mask.batches) * shape.heads * query_blocks(mask, shape) * words_of_row(mask, shape);
  require(!mask.has(HeadType::block_sparse) || static_cast<double>(mask.live.size()) == size,
          "block_mask must have " + std::to_string(mask.batches) + " × " + std::to_string(shape.heads) + " × " +
              std::to_string(query_blocks(mask, shape)) + " × " + std::to_string(key_blocks(mask, shape)) + " blocks");
}

std::shared_ptr<const SparseMask> make_pattern(const std::string& pattern, const Attention& shape, int block_q, int block_k,
                                               std::uint64_t seed) {
  require_extent("block-q", block_q);
  require_extent("block-k", block_k);
  auto mask = std::make_shared<SparseMask>();
  mask->block_q = block_q;
  mask->block_k = block_k;
  mask->types.resize(shape.heads);
  mask->streaming.resize(shape.heads);
  const int rows = query_blocks(*mask, shape), columns = key_blocks(*mask, shape);
  require_blocks(*mask, shape);
  const int words = words_of_row(*mask, shape);
  const std::size_t of_head = static_cast<std::size_t>(rows) * words;
  mask->live.resize(of_head * shape.heads);
  const std::vector<double> pairs = pairs_of_blocks(*mask, shape);
  const auto patterns = split(pattern, ',');
  const bool has_empty = std::find(patterns.begin(), patterns.end(), "") != patterns.end();
  if (has_empty && patterns.size() > 1) bad_pattern(pattern, "a part between commas is empty");
  for (int h = 0; h < shape.heads; ++h) {
    Random random(splitmix(seed, h));
    HeadType type{};
    fill(patterns[h % patterns.size()], {*mask, shape, pairs, &mask->live[of_head * h], rows, columns, words}, type,
         mask->streaming[h], random);
    mask->types[h] = static_cast<std::int32_t>(type);
  }
  for (std::size_t n = shape.heads; n < patterns.size(); ++n) {  // those that no head takes must be patterns, too
    std::vector<std::int32_t> nowhere(of_head);
    HeadType type{};
    Streaming streaming{};
    Random random(seed);
    fill(patterns[n], {*mask, shape, pairs, nowhere.data(), rows, columns, words}, type, streaming, random);
  }
  if (!mask->has(HeadType::block_sparse)) mask->live.clear();
  return mask;
}

}  // namespace problem
