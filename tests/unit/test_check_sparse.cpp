// The judges of outputs and gradients are tested with kernels that walk along lists of tiles: attention under sparse masks on
// the host, forward and backward, honest or with one fault of those that lists and masks invite. Honest ones must be accepted,
// broken ones rejected wherever the fault changes the result.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/run/family/backward_truth.h"
#include "tests/catch.h"

namespace {

using problem::Backward;
using problem::BackwardInputs;
using problem::Dtype;
using problem::HeadType;
using problem::SparseMask;
using problem::Tensor;

constexpr std::array<Dtype, 3> dtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16};
constexpr int tile = 8;       // queries, and keys
constexpr int long_list = 4;  // tiles: longer ones are split into two parts

enum class Fault {
  none,
  // one row's list
  live_skipped,
  dead_visited,
  one_too_far,
  one_too_few,
  first_twice,
  next_rows_list,
  partial_as_full,
  // a head's lists, or a batch entry's
  another_heads_list,
  lists_of_batch_0,
  // the mask
  sink_forgotten,
  sink_one_more,
  local_one_less,
  types_ignored,
  block_of_next_queries,
  // parts of split rows
  part_lost,
  parts_without_rescale,
  lse_of_last_part,
  parts_overwritten,
  // rows without a live tile
  empty_rows_unwritten,
  empty_rows_nan,
  empty_lse_zero,
  unseen_keys_unwritten,
};

int tiles_of(int extent) { return (extent + tile - 1) / tile; }

// What a tile of queries and one of keys are to each other.
struct Entry {
  int head;  // of the queries
  int query_tile, key_tile;
  bool full;
  bool same_pairs(const Entry& other) const {
    return head == other.head && query_tile == other.query_tile && key_tile == other.key_tile;
  }
};

// Forward, a row is a tile of queries of one head. Backward, it is a tile of keys of one key/value head, which visits tiles of
// queries of all heads that share it.
struct Row {
  int batch, head, tile;
  std::vector<Entry> entries;
};

class Lists {
 public:
  Lists(const Backward& shape, bool by_keys, Fault fault) : a_(shape), by_keys_(by_keys), fault_(fault), mask_(*shape.sparse) {
    change_mask();
    for (int batch = 0; batch < a_.batch; ++batch) {
      for (int head = 0; head < (by_keys_ ? a_.kv_heads : a_.heads); ++head) {
        for (int t = 0; t < tiles_of(by_keys_ ? a_.seq_k : a_.seq_q); ++t) rows.push_back(row_of(batch, head, t));
      }
    }
    change_lists();
  }

  // Does the kernel let this query see this key, in a tile that it visits?
  bool lets(int batch, const Entry& entry, int i, int j) const {
    return i < a_.seq_q && j < a_.seq_k && (entry.full || sees(mask_, batch, entry.head, i, j));
  }

  std::vector<Row> rows;

 private:
  bool has(Fault fault) const { return fault_ == fault; }

  bool sees(const SparseMask& mask, int batch, int head, int i, int j) const {
    const int of_mask = has(Fault::block_of_next_queries) ? std::min(i + mask.block_q, a_.seq_q - 1) : i;
    const bool streams = mask.type(head) == HeadType::streaming_tokens;  // these have no blocks of queries
    return a_.first_key(i) <= j && j < a_.last_key(i) &&
           problem::sees(mask, a_, has(Fault::lists_of_batch_0) ? 0 : batch, head, streams ? i : of_mask, j);
  }

  Row row_of(int batch, int head, int t) const {
    Row row{batch, head, t, {}};
    const int group = a_.heads / a_.kv_heads;
    if (!by_keys_) {
      for (int other = tiles_of(a_.seq_k) - 1; other >= 0; --other) add_tile(row, {head, t, other, false});
    } else {
      for (int h = head * group; h < (head + 1) * group; ++h) {
        for (int other = 0; other < tiles_of(a_.seq_q); ++other) add_tile(row, {h, other, t, false});
      }
    }
    return row;
  }

  // Where some pair is live; full: where all are.
  void add_tile(Row& row, Entry entry) const {
    int live = 0;
    for_pairs(entry, [&](int i, int j) { live += sees(mask_, row.batch, entry.head, i, j); });
    entry.full = live == tile * tile;
    if (live > 0) row.entries.push_back(entry);
  }

  template <class Visit>
  void for_pairs(const Entry& entry, const Visit& visit) const {
    for (int i = entry.query_tile * tile; i < std::min((entry.query_tile + 1) * tile, a_.seq_q); ++i) {
      for (int j = entry.key_tile * tile; j < std::min((entry.key_tile + 1) * tile, a_.seq_k); ++j) visit(i, j);
    }
  }

  void change_mask() {
    for (problem::Streaming& streaming : mask_.streaming) {
      if (has(Fault::sink_forgotten)) streaming.sink = 0;
      if (has(Fault::sink_one_more)) ++streaming.sink;
      if (has(Fault::local_one_less) && streaming.local > 0) --streaming.local;
    }
    if (has(Fault::types_ignored)) mask_ = SparseMask{.types = std::vector<std::int32_t>(a_.heads)};
  }

  void change_lists() {
    if (has(Fault::another_heads_list)) return take_another_heads();
    // From the middle on, and then from the start: the first row that the fault changes.
    for (std::size_t n = 0; n < rows.size(); ++n) {
      const std::size_t at = (n + rows.size() / 2) % rows.size();
      if (change_list(at)) return;
    }
  }

  bool change_list(std::size_t at) {
    std::vector<Entry>& own = rows[at].entries;
    const auto end = static_cast<std::ptrdiff_t>(own.size());
    if (has(Fault::live_skipped) && end > 0) return own.erase(own.begin() + end / 2), true;
    if (has(Fault::one_too_few) && end > 0) return own.pop_back(), true;
    if (has(Fault::first_twice) && end > 0) return own.push_back(own.front()), true;
    if (has(Fault::one_too_far) && end > 0) {  // what lies behind it: the next row's first tile
      std::size_t next = at + 1;
      while (next < rows.size() && rows[next].entries.empty()) ++next;
      if (next == rows.size()) return false;
      const Entry behind = as_own(rows[at], rows[next].entries.front());
      return lets_some(rows[at].batch, behind) && (own.push_back(behind), true);
    }
    if (has(Fault::next_rows_list) && at + 1 < rows.size() && rows[at + 1].tile > rows[at].tile) {
      std::vector<Entry> theirs = rows[at + 1].entries;
      for (Entry& entry : theirs) entry = as_own(rows[at], entry);
      const bool differ = !std::equal(theirs.begin(), theirs.end(), own.begin(), own.end(),
                                      [](const Entry& x, const Entry& y) { return x.same_pairs(y); });
      if (differ) return own = theirs, true;
    }
    if (has(Fault::partial_as_full)) {
      for (Entry& entry : own) {
        if (!entry.full && hides_some(rows[at].batch, entry)) return entry.full = true;
      }
    }
    return has(Fault::dead_visited) && visit_dead(rows[at]);
  }

  // The tile that an entry of another row's list names, visited by this row.
  Entry as_own(const Row& row, Entry entry) const {
    if (by_keys_) {
      const int group = a_.heads / a_.kv_heads;
      entry.head = row.head * group + entry.head % group;
      entry.key_tile = row.tile;
    } else {
      entry.head = row.head;
      entry.query_tile = row.tile;
    }
    return entry;
  }

  bool hides_some(int batch, const Entry& entry) const {
    bool some = false;
    for_pairs(entry, [&](int i, int j) { some |= !sees(mask_, batch, entry.head, i, j); });
    return some;
  }

  bool lets_some(int batch, const Entry& entry) const {
    bool some = false;
    for_pairs(entry, [&](int i, int j) { some |= lets(batch, entry, i, j); });
    return some;
  }

  // A dead tile between live ones is multiplied as if it were full, where other masks let some pair through.
  bool visit_dead(Row& row) const {
    const SparseMask dense{.types = std::vector<std::int32_t>(a_.heads)};
    for (int other = 0; other < tiles_of(by_keys_ ? a_.seq_q : a_.seq_k); ++other) {
      const Entry entry = as_own(row, by_keys_ ? Entry{0, other, 0, true} : Entry{0, 0, other, true});
      bool visible = false;
      for_pairs(entry, [&](int i, int j) { visible |= sees(dense, row.batch, entry.head, i, j); });
      const bool listed =
          std::any_of(row.entries.begin(), row.entries.end(), [&](const Entry& x) { return x.same_pairs(entry); });
      if (visible && !listed) return row.entries.push_back(entry), true;
    }
    return false;
  }

  // One head's rows have the lists of the next head.
  void take_another_heads() {
    const int heads = by_keys_ ? a_.kv_heads : a_.heads, of_head = static_cast<int>(rows.size()) / a_.batch / heads;
    const std::vector<Row> right = rows;
    for (int head = 0; head < heads; ++head) {
      bool differ = false;
      for (int t = 0; t < of_head; ++t) {
        Row& row = rows[head * of_head + t];
        row.entries = right[(head + 1) % heads * of_head + t].entries;
        for (Entry& entry : row.entries) entry = as_own(row, entry);
        const auto& before = right[head * of_head + t].entries;
        differ |= !std::equal(before.begin(), before.end(), row.entries.begin(), row.entries.end(),
                              [](const Entry& x, const Entry& y) { return x.same_pairs(y); });
      }
      if (differ) return;
      rows = right;
    }
  }

  Backward a_;
  bool by_keys_;
  Fault fault_;
  SparseMask mask_;
};

struct Result {
  Tensor o, lse, dq, dk, dv;  // O and LSE, or gradients
};

class Kernel {
 public:
  Kernel(const Backward& shape, const BackwardInputs& in, Fault fault = Fault::none) : a_(shape), in_(in), fault_(fault) {}

  Result forward() {
    Result out;
    out.o = Tensor(in_.q.shape);
    out.lse = Tensor({a_.batch, a_.heads, a_.seq_q});
    const Lists lists(a_, false, fault_);
    for (const Row& row : lists.rows) {
      for (int i = row.tile * tile; i < std::min((row.tile + 1) * tile, a_.seq_q); ++i) attend(lists, row, i, out);
    }
    return out;
  }

  Result backward() {
    Result out;
    out.dq = Tensor(in_.q.shape);
    out.dk = Tensor(in_.k.shape);
    out.dv = Tensor(in_.v.shape);
    const Lists lists(a_, true, fault_);
    for (const Row& row : lists.rows) {
      for (int j = row.tile * tile; j < std::min((row.tile + 1) * tile, a_.seq_k); ++j) add_gradients(lists, row, j, out);
    }
    for (float& x : out.dq.values) x = rounded(static_cast<float>(*a_.scale) * x);
    for (std::int64_t row = 0; row < std::ssize(in_.lse.values); ++row) {
      if (in_.lse.values[row] != -INFINITY) continue;
      spoil_empty(&out.dq.values[row * a_.dim]);
    }
    return out;
  }

 private:
  bool has(Fault fault) const { return fault_ == fault; }
  float rounded(float x) const { return problem::round_to(a_.dtype, x); }
  std::int64_t query_row(int batch, int head, int i) const { return (std::int64_t{batch} * a_.heads + head) * a_.seq_q + i; }
  std::int64_t key_row(int batch, int kv_head, int j) const {
    return (std::int64_t{batch} * a_.kv_heads + kv_head) * a_.seq_k + j;
  }
  float dot(const float* x, const float* y) const {
    float sum = 0;
    for (int d = 0; d < a_.dim; ++d) sum += x[d] * y[d];
    return sum;
  }
  float score(std::int64_t query, std::int64_t key) const {
    return static_cast<float>(*a_.scale) * dot(&in_.q.values[query * a_.dim], &in_.k.values[key * a_.dim]);
  }
  void spoil_empty(float* row) const {
    if (has(Fault::empty_rows_unwritten)) std::fill_n(row, a_.dim, check::poison_value(a_.dtype));
    if (has(Fault::empty_rows_nan)) std::fill_n(row, a_.dim, std::nanf(""));
  }

  // Entries of a list from `begin` on are another part of it.
  static std::size_t second_part(const Row& row) {
    return row.entries.size() > long_list ? row.entries.size() / 2 : row.entries.size();
  }

  struct Part {
    float max = -INFINITY, sum = 0;
    std::vector<float> o;
  };

  Part attend_part(const Lists& lists, const Row& row, int i, std::size_t begin, std::size_t end) const {
    std::vector<std::pair<int, float>> scores;
    Part part{.o = std::vector<float>(a_.dim)};
    const std::int64_t first = key_row(row.batch, row.head / (a_.heads / a_.kv_heads), 0);
    for (std::size_t n = begin; n < end; ++n) {
      const int key = row.entries[n].key_tile * tile;
      for (int j = key; j < key + tile; ++j) {
        if (!lists.lets(row.batch, row.entries[n], i, j)) continue;
        scores.emplace_back(j, score(query_row(row.batch, row.head, i), first + j));
        part.max = std::max(part.max, scores.back().second);
      }
    }
    for (const auto& [j, s] : scores) {
      const float p = std::exp(s - part.max);
      part.sum += p;
      for (int d = 0; d < a_.dim; ++d) part.o[d] += rounded(p) * in_.v.values[(first + j) * a_.dim + d];
    }
    return part;
  }

  void attend(const Lists& lists, const Row& row, int i, Result& out) const {
    const std::size_t middle = second_part(row), end = row.entries.size();
    Part x = attend_part(lists, row, i, 0, middle), y = attend_part(lists, row, i, middle, end);
    if (has(Fault::part_lost)) y = Part{.o = std::vector<float>(a_.dim)};
    const float max = std::max(x.max, y.max);
    const bool keeps = has(Fault::parts_without_rescale);
    const float of_x = x.max == -INFINITY ? 0 : keeps ? 1 : std::exp(x.max - max);
    const float of_y = y.max == -INFINITY ? 0 : keeps ? 1 : std::exp(y.max - max);
    const float sum = of_x * x.sum + of_y * y.sum;
    const bool overwritten = has(Fault::parts_overwritten) && y.sum > 0;
    const std::int64_t at = query_row(row.batch, row.head, i);
    float* o = &out.o.values[at * a_.dim];
    for (int d = 0; d < a_.dim; ++d) {
      o[d] = sum == 0 ? 0 : rounded(overwritten ? y.o[d] / y.sum : (of_x * x.o[d] + of_y * y.o[d]) / sum);
    }
    out.lse.values[at] = sum == 0 ? -INFINITY : max + std::log(sum);
    if (has(Fault::lse_of_last_part) && y.sum > 0) out.lse.values[at] = y.max + std::log(y.sum);
    if (sum > 0) return;
    spoil_empty(o);
    if (has(Fault::empty_rows_nan) || has(Fault::empty_lse_zero)) out.lse.values[at] = 0;
  }

  void add_gradients(const Lists& lists, const Row& row, int j, Result& out) const {
    std::vector<float> dk(a_.dim), dv(a_.dim);
    const std::int64_t key = key_row(row.batch, row.head, j);
    const float* k = &in_.k.values[key * a_.dim];
    bool seen = false;
    for (std::size_t n = 0; n < row.entries.size(); ++n) {
      const Entry& entry = row.entries[n];
      const bool is_second = n >= second_part(row);
      if (has(Fault::part_lost) && is_second) break;
      if (has(Fault::parts_overwritten) && n == second_part(row)) {
        std::fill(dk.begin(), dk.end(), 0.0f);
        std::fill(dv.begin(), dv.end(), 0.0f);
      }
      for (int i = entry.query_tile * tile; i < (entry.query_tile + 1) * tile; ++i) {
        if (!lists.lets(row.batch, entry, i, j)) continue;
        const std::int64_t at = query_row(row.batch, entry.head, i);
        const float* d_o = &in_.d_o.values[at * a_.dim];
        const float p = std::exp(score(at, key) - in_.lse.values[at]);
        const float ds = rounded(p * (dot(d_o, &in_.v.values[key * a_.dim]) - dot(d_o, &in_.o.values[at * a_.dim])));
        for (int d = 0; d < a_.dim; ++d) {
          dk[d] += ds * in_.q.values[at * a_.dim + d];
          dv[d] += rounded(p) * d_o[d];
          out.dq.values[at * a_.dim + d] += ds * k[d];
        }
        seen = true;
      }
    }
    for (int d = 0; d < a_.dim; ++d) {
      const bool unwritten = !seen && has(Fault::unseen_keys_unwritten);
      out.dk.values[key * a_.dim + d] =
          unwritten ? check::poison_value(a_.dtype) : rounded(static_cast<float>(*a_.scale) * dk[d]);
      out.dv.values[key * a_.dim + d] = unwritten ? check::poison_value(a_.dtype) : rounded(dv[d]);
    }
  }

  Backward a_;
  const BackwardInputs& in_;
  Fault fault_;
};

// ---- problems ----

struct Masked {
  problem::Attention shape;
  const char* pattern;
  int block_q = 16, block_k = 8;
  bool mask_each = false;  // of the batch entries
};

const std::vector<Masked> masked_shapes = {
    {{1, 2, 2, 48, 48, 32, true}, "random:0.5"},
    {{2, 3, 3, 41, 41, 32}, "random:0.5,band:1,sink:1+local:1"},
    {{1, 4, 2, 40, 70, 32, true}, "random:0.4,sink:3t+local:9t,dense,empty", 8, 8},
    {{1, 6, 3, 37, 35, 32, true}, "sink:1+local:1,band:2", 8, 16},
    {{1, 2, 1, 50, 50, 64, false, 13}, "random:0.6,sink:2t+local:6t", 8, 8},
    {{1, 2, 2, 60, 60, 32}, "sink:5t+local:7t"},
    {{1, 2, 1, 23, 50, 40, true}, "sink:2t+local:11t,random:0.3", 8, 8},
    {{2, 2, 1, 45, 64, 32}, "random:0.4", 16, 16, true},
    {{2, 4, 2, 33, 40, 32}, "uneven:0.4,empty,random:0.5", 8, 8, true},
    {{2, 4, 2, 45, 40, 32, true, 25}, "vertical-slash:1+1,full-row:0.3,empty,sink:1+local:2", 16, 16},
    {{2, 1, 1, 50, 40, 32}, "random:0.4", 8, 8, true},
    {{3, 2, 2, 40, 30, 32, true}, "random:0.5,full-row:0.3", 8, 8, true},
    {{1, 4, 1, 64, 64, 32}, "full-row:0.2,sink:2+local:1", 8, 8},
    {{1, 2, 2, 61, 61, 32, false, 0, {}, Dtype::fp32}, "random:0.5,sink:2t+local:5t"},  // made into packed sequences
};

Backward made(const Masked& m, Dtype dtype) {
  problem::Attention a = m.shape;
  a.dtype = dtype;
  if (&m == &masked_shapes.back()) a.cu_seqlens = {0, 17, 17, 40, 61};
  a = problem::resolve(a);
  auto mask = std::make_shared<SparseMask>(*problem::make_pattern(m.pattern, a, m.block_q, m.block_k, 1));
  for (int batch = 1; m.mask_each && batch < a.batch; ++batch) {
    const auto other = problem::make_pattern(m.pattern, a, m.block_q, m.block_k, 10 + static_cast<std::uint64_t>(batch));
    mask->live.insert(mask->live.end(), other->live.begin(), other->live.end());
    mask->batches = a.batch;
  }
  a.sparse = mask;
  return {problem::resolve(a)};
}

struct Problem {
  Backward a;
  BackwardInputs in;
  std::unique_ptr<run::AttentionTruth> forward;
  std::unique_ptr<run::BackwardTruth> backward;
  Result honest;  // both passes'
};

std::unique_ptr<Problem> make_problem(const Masked& m, Dtype dtype) {
  auto p = std::make_unique<Problem>();
  p->a = made(m, dtype);
  p->in = problem::make_inputs(p->a, 1);
  p->forward = std::make_unique<run::AttentionTruth>(p->a, problem::AttentionInputs{p->in.q, p->in.k, p->in.v});
  p->honest = Kernel(p->a, p->in).forward();
  p->in.o = p->honest.o;
  p->in.lse = p->honest.lse;
  p->backward = std::make_unique<run::BackwardTruth>(p->a, p->in);
  Result gradients = Kernel(p->a, p->in).backward();
  p->honest.dq = gradients.dq;
  p->honest.dk = gradients.dk;
  p->honest.dv = gradients.dv;
  return p;
}

enum Which { o_, lse_, dq_, dk_, dv_ };
constexpr std::array names = {"O", "LSE", "dQ", "dK", "dV"};

const Tensor& tensor_of(const Result& r, Which which) {
  const Tensor* tensors[] = {&r.o, &r.lse, &r.dq, &r.dk, &r.dv};
  return *tensors[which];
}

std::map<Which, check::TensorVerdict> judge(const Problem& p, const Result& out) {
  std::map<Which, check::TensorVerdict> all;
  for (auto& verdict : p.forward->judge(out.o, out.lse)) all.emplace(verdict.name == "O" ? o_ : lse_, verdict);
  for (auto& verdict : p.backward->judge(out.dq, out.dk, out.dv)) {
    for (const Which which : {dq_, dk_, dv_}) {
      if (verdict.name == names[which]) all.emplace(which, verdict);
    }
  }
  return all;
}

// ---- the faults ----

struct FaultCase {
  Fault fault;
  const char* text;
  std::set<Which> rejected;  // each at four shapes or more
};

const std::set<Which> all = {o_, lse_, dq_, dk_, dv_};
const std::vector<FaultCase> fault_cases = {
    {Fault::live_skipped, "a live tile skipped", all},
    {Fault::dead_visited, "a dead tile visited", all},
    {Fault::one_too_far, "a list read one too far", all},
    {Fault::one_too_few, "a list read one too few", all},
    {Fault::first_twice, "a list's first tile visited twice", {lse_, dq_, dk_, dv_}},
    {Fault::next_rows_list, "the next row's list", all},
    {Fault::partial_as_full, "a partial tile taken for a full one", all},
    {Fault::another_heads_list, "another head's lists", all},
    {Fault::lists_of_batch_0, "batch entry 0's lists in all", all},
    {Fault::sink_forgotten, "the sink forgotten", all},
    {Fault::sink_one_more, "the sink one larger", all},
    {Fault::local_one_less, "local one smaller", all},
    {Fault::types_ignored, "all heads taken for dense", all},
    {Fault::block_of_next_queries, "the mask of the next block of queries", all},
    {Fault::part_lost, "a part of a split row lost", all},
    {Fault::parts_without_rescale, "parts merged without their maxima", {o_, lse_}},
    {Fault::lse_of_last_part, "LSE of the last part", {lse_}},
    {Fault::parts_overwritten, "the last part alone", {o_, dk_, dv_}},
    {Fault::empty_rows_unwritten, "rows without a live tile not written", {o_, dq_}},
    {Fault::empty_rows_nan, "rows without a live tile NaN", {o_, lse_, dq_}},
    {Fault::empty_lse_zero, "LSE 0 of rows without a live tile", {lse_}},
    {Fault::unseen_keys_unwritten, "keys that no query sees not written", {dk_, dv_}},
};

bool same(const Tensor& x, const Tensor& y) { return !check::first_difference(x.values, y.values).has_value(); }

// `every`: all dtypes at each shape; else one, by turns.
void reject_broken_kernels(bool every) {
  std::map<std::pair<std::size_t, Dtype>, std::unique_ptr<Problem>> problems;
  std::printf("%-40s", "rejected, and at so many shapes");
  for (const char* name : names) std::printf(" %9s", name);
  std::printf("   smallest error / allowed\n");
  for (const FaultCase& fault : fault_cases) {
    std::map<Which, int> rejected;
    std::map<Which, std::set<std::size_t>> shapes;
    double closest = INFINITY;
    for (std::size_t n = 0; n < masked_shapes.size(); ++n) {
      for (std::size_t t = 0; t < dtypes.size(); ++t) {
        if (!every && t != (n + static_cast<std::size_t>(fault.fault)) % dtypes.size()) continue;
        auto& p = problems[{n, dtypes[t]}];
        if (!p) {
          p = make_problem(masked_shapes[n], dtypes[t]);
          for (const auto& [which, verdict] : judge(*p, p->honest)) {
            const std::string reason = check::Verdict{{verdict}, true, {}}.reason();
            INFO("honest " << names[which] << " at " << problem::to_string(p->a) << ", " << masked_shapes[n].pattern);
            INFO(reason);
            CHECK(verdict.pass);
          }
        }
        Result broken = Kernel(p->a, p->in, fault.fault).forward();
        Result gradients = Kernel(p->a, p->in, fault.fault).backward();
        broken.dq = gradients.dq;
        broken.dk = gradients.dk;
        broken.dv = gradients.dv;
        const auto verdicts = judge(*p, broken);
        for (const Which which : fault.rejected) {
          if (same(tensor_of(broken, which), tensor_of(p->honest, which))) continue;
          const check::TensorVerdict& verdict = verdicts.at(which);
          INFO(fault.text << " at " << problem::to_string(p->a) << ", " << masked_shapes[n].pattern << ": " << names[which]
                          << ", worst ratio " << verdict.worst_ratio);
          CHECK_FALSE(verdict.pass);
          rejected[which] += !verdict.pass;
          shapes[which].insert(n);
          if (!std::isnan(verdict.worst_ratio)) closest = std::min(closest, verdict.worst_ratio);
        }
      }
    }
    std::printf("%-40s", fault.text);
    for (const Which which : {o_, lse_, dq_, dk_, dv_}) {
      if (fault.rejected.count(which)) {
        std::printf(" %3d at %2zu", rejected[which], shapes[which].size());
        INFO(fault.text << ": " << names[which]);
        CHECK(shapes[which].size() >= 4);
      } else {
        std::printf(" %9s", "");
      }
    }
    std::printf(" %12.3g\n", closest);
  }
}

}  // namespace

TEST_CASE(
    "every broken walk along lists of tiles is rejected wherever its fault changes the result, and the honest one accepted") {
  reject_broken_kernels(false);
}
TEST_CASE("every broken walk along lists of tiles is rejected in every type", "[.long]") { reject_broken_kernels(true); }
