// Sparse masks: what a pattern is, what a query sees under it, what files may hold, and that the reference agrees with
// attention written out pair by pair.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/problem/attention.h"
#include "common/problem/backward.h"
#include "common/problem/npy.h"
#include "common/reference/attention.h"
#include "common/reference/backward.h"
#include "common/run/cli/options.h"
#include "common/run/family/attention_files.h"
#include "common/run/family/attention_request.h"
#include "common/run/family/attention_truth.h"
#include "tests/catch.h"

using problem::Attention;
using problem::HeadType;
using problem::SparseMask;

namespace {

Attention shape_of(int seq_q, int seq_k, int heads = 1, bool causal = false, int batch = 1) {
  return problem::resolve({.batch = batch, .heads = heads, .seq_q = seq_q, .seq_k = seq_k, .dim = 8, .causal = causal});
}

Attention with_pattern(Attention shape, const std::string& pattern, int block_q, int block_k, std::uint64_t seed = 1) {
  shape.sparse = problem::make_pattern(pattern, shape, block_q, block_k, seed);
  return problem::resolve(shape);
}

// A head's blocks as rows of characters: "x" live, "." not, " " no visible pair in it.
std::vector<std::string> drawn(const Attention& a, int head = 0, int batch = 0) {
  const SparseMask& mask = *a.sparse;
  std::vector<std::string> rows;
  for (int row = 0; row < problem::query_blocks(mask, a); ++row) {
    rows.emplace_back();
    for (int column = 0; column < problem::key_blocks(mask, a); ++column) {
      bool visible = false;
      for (int i = row * mask.block_q; i < std::min((row + 1) * mask.block_q, a.seq_q); ++i) {
        visible |= a.first_key(i) < (column + 1) * mask.block_k && a.last_key(i) > column * mask.block_k;
      }
      rows.back() += !visible ? ' ' : problem::is_live(mask, a, batch, head, row, column) ? 'x' : '.';
    }
  }
  return rows;
}

using Rows = std::vector<std::string>;

int count(const Attention& a, int head) {
  int live = 0;
  for (const std::string& row : drawn(a, head)) live += static_cast<int>(std::count(row.begin(), row.end(), 'x'));
  return live;
}

}  // namespace

TEST_CASE("a band is as wide as it says, around the query's own blocks") {
  CHECK(drawn(with_pattern(shape_of(40, 40), "band:2", 10, 10)) == Rows{"xx..", "xxx.", ".xxx", "..xx"});
  CHECK(drawn(with_pattern(shape_of(40, 40, 1, true), "band:2", 10, 10)) == Rows{"x   ", "xx  ", ".xx ", "..xx"});
  CHECK(drawn(with_pattern(shape_of(40, 40), "band:0", 10, 10)) == Rows{"....", "....", "....", "...."});
  CHECK(drawn(with_pattern(shape_of(40, 40), "band:1", 20, 10)) == Rows{"xx..", "..xx"});
  CHECK(drawn(with_pattern(shape_of(20, 45), "band:1", 10, 10)) == Rows{"..xx.", "...xx"});  // own keys 25 … 44
  CHECK(drawn(with_pattern(shape_of(45, 20), "band:1", 10, 10)) == Rows{"..", "..", "x.", "xx", ".x"});
}

TEST_CASE("streaming heads have a sink and what is near") {
  CHECK(drawn(with_pattern(shape_of(40, 40, 1, true), "sink:1+local:2", 10, 10)) == Rows{"x   ", "xx  ", "xxx ", "x.xx"});
  CHECK(drawn(with_pattern(shape_of(40, 40), "sink:0+local:1", 10, 10)) == Rows{"x...", ".x..", "..x.", "...x"});
  const Attention tokens = with_pattern(shape_of(12, 12, 1, true), "sink:2t+local:3t", 10, 10);
  for (int i = 0; i < 12; ++i) {
    for (int j = 0; j <= i; ++j) {
      CHECK(problem::sees(*tokens.sparse, tokens, 0, 0, i, j) == (j < 2 || i - j < 3));
    }
  }
  Attention packed = shape_of(12, 12);
  packed.cu_seqlens = {0, 5, 5, 12};
  packed = with_pattern(packed, "sink:1t+local:2t", 10, 10);
  CHECK(problem::sees(*packed.sparse, packed, 0, 0, 9, 5));  // the first key of its own sequence
  CHECK(!problem::sees(*packed.sparse, packed, 0, 0, 9, 6));
}

TEST_CASE("random patterns have the share that they say, and the own block") {
  const Attention a = with_pattern(shape_of(64 * 20, 64 * 20, 2), "random:0.25", 64, 64, 7);
  CHECK(count(a, 0) == 20 * 5);
  CHECK(count(a, 1) == 20 * 5);
  CHECK(drawn(a, 0) != drawn(a, 1));
  for (int row = 0; row < 20; ++row) CHECK(drawn(a)[row][row] == 'x');
  CHECK(drawn(a) == drawn(with_pattern(shape_of(64 * 20, 64 * 20, 2), "random:0.25", 64, 64, 7)));
  CHECK(drawn(a) != drawn(with_pattern(shape_of(64 * 20, 64 * 20, 2), "random:0.25", 64, 64, 8)));
  CHECK(count(with_pattern(shape_of(640, 640), "random:1", 64, 64), 0) == 100);
  CHECK(count(with_pattern(shape_of(640, 640), "random:0", 64, 64), 0) == 0);
  CHECK(count(with_pattern(shape_of(640, 640), "random:0.001", 64, 64), 0) == 10);  // the own block at least
  const Attention full = with_pattern(shape_of(640, 640), "full-row:0.1", 64, 64);
  CHECK(count(full, 0) == 9 + 10);
  const Attention uneven = with_pattern(shape_of(64 * 100, 64 * 100), "uneven:0.2", 64, 64);
  CHECK(std::abs(count(uneven, 0) - 2000) < 300);
  const Attention lines = with_pattern(shape_of(640, 640, 1, true), "vertical-slash:1+0", 64, 64);
  for (int row = 0; row < 10; ++row) CHECK(drawn(lines)[row][0] == 'x');
  CHECK(count(lines, 0) == 19);
}

TEST_CASE("heads take patterns by turns, and batch entries may have masks of their own") {
  const Attention a = with_pattern(shape_of(20, 20, 4), "dense,empty,sink:1t+local:1t", 10, 10);
  CHECK(a.sparse->type(0) == HeadType::dense);
  CHECK(a.sparse->type(1) == HeadType::block_sparse);
  CHECK(a.sparse->type(2) == HeadType::streaming_tokens);
  CHECK(a.sparse->type(3) == HeadType::dense);
  CHECK(drawn(a, 0) == Rows{"xx", "xx"});
  CHECK(drawn(a, 1) == Rows{"..", ".."});
  Attention two = shape_of(20, 20, 1, false, 2);
  two.sparse =
      std::make_shared<SparseMask>(SparseMask{.block_q = 10, .block_k = 10, .batches = 2, .types = {1}, .live = {1, 2, 3, 0}});
  two = problem::resolve(two);
  CHECK(drawn(two, 0, 0) == Rows{"x.", ".x"});
  CHECK(drawn(two, 0, 1) == Rows{"xx", ".."});
  CHECK(two.live_pairs() == 400);
}

TEST_CASE("what cannot be a mask is refused by name") {
  const Attention a = shape_of(20, 20, 2);
  for (const char* pattern : {"", "band", "band:", "band:-1", "band:x", "dense:1", "random:1.5", "random:nan",
                              "random:", "sink:1", "sink:1+2", "sink:1t+local:2", "sink:1+local:", "vertical-slash:1", "dense,",
                              "dense,dense,oops", "empty:1", "full-row", "Random:0.5"}) {
    INFO(pattern);
    CHECK_THROWS_AS(problem::make_pattern(pattern, a, 10, 10, 1), std::invalid_argument);
  }
  CHECK_THROWS_AS(problem::make_pattern("dense,,dense", a, 10, 10, 1), std::invalid_argument);
  CHECK_THROWS_AS(problem::make_pattern("dense", a, 0, 10, 1), std::invalid_argument);
  CHECK_THROWS_AS(problem::make_pattern("dense", shape_of(1000000, 1000000), 64, 64, 1), std::invalid_argument);
  CHECK_NOTHROW(problem::make_pattern("dense", a, 1073741824, 1073741824, 1));
  CHECK_NOTHROW(problem::make_pattern("vertical-slash:2147483647+2147483647", a, 10, 10, 1));  // and ends soon
  const auto refuses = [&](const SparseMask& mask) {
    Attention with = a;
    with.sparse = std::make_shared<SparseMask>(mask);
    CHECK_THROWS_AS(problem::resolve(with), std::invalid_argument);
  };
  const SparseMask good{.block_q = 10, .block_k = 10, .types = {1, 0}, .live = {1, 1, 0, 0}};
  Attention fits = a;
  fits.sparse = std::make_shared<SparseMask>(good);
  CHECK_NOTHROW(problem::resolve(fits));
  SparseMask bad = good;
  bad.types = {1};
  refuses(bad);
  bad = good;
  bad.types = {1, 4};
  refuses(bad);
  bad = good;
  bad.types = {1, 2};  // without streaming
  refuses(bad);
  bad.streaming = {{0, 0}, {-1, 2}};
  refuses(bad);
  bad = good;
  bad.live.pop_back();
  refuses(bad);
  bad = good;
  bad.batches = 3;
  refuses(bad);
  Attention packed = shape_of(20, 20);
  packed.cu_seqlens = {0, 20};
  CHECK_THROWS_AS(with_pattern(packed, "sink:1+local:1", 10, 10), std::invalid_argument);
}

TEST_CASE("live pairs are those that a query sees, one by one") {
  for (const char* pattern :
       {"band:2", "random:0.4", "sink:1+local:2", "sink:3t+local:9t", "vertical-slash:1+1", "empty", "dense"}) {
    for (const bool causal : {false, true}) {
      for (const int window : {0, 17}) {
        for (const auto& [seq_q, seq_k] : {std::pair{45, 45}, {30, 70}, {70, 30}}) {
          Attention a = shape_of(seq_q, seq_k, 2, causal, 2);
          a.window = window;
          a = with_pattern(a, pattern, 16, 8);
          double pairs = 0;
          for (int head = 0; head < 2; ++head) {
            for (int i = 0; i < seq_q; ++i) {
              for (int j = a.first_key(i); j < a.last_key(i); ++j) pairs += problem::sees(*a.sparse, a, 0, head, i, j);
            }
          }
          INFO(pattern << " causal " << causal << " window " << window);
          CHECK(a.live_pairs() == 2 * pairs);
          CHECK(a.flops() == 4 * 8 * 2 * pairs);
        }
      }
    }
  }
}

TEST_CASE("the reference sees what the mask lets it see, forward and backward") {
  Attention a = shape_of(37, 45, 4, true, 2);
  a.kv_heads = 2;
  a = with_pattern(problem::resolve(a), "random:0.5,sink:2t+local:5t,empty,dense", 8, 8);
  const problem::AttentionInputs in = problem::make_inputs(a, 3);
  const auto spec = run::spec_of(a);
  const auto rows = reference::all_rows(spec);
  const auto truth = reference::forward(spec, rows, std::span<const float>(in.q.values), in.k.values, in.v.values);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto [batch, head, i] = rows[r];
    const std::int64_t kv = (batch * 2 + head / 2) * 45;
    double sum = 0;
    std::vector<double> o(8);
    for (int j = 0; j < 45; ++j) {
      if (j > i + 8 || !problem::sees(*a.sparse, a, batch, head, i, j)) continue;
      double score = 0;
      for (int d = 0; d < 8; ++d) score += static_cast<double>(in.q.values[r * 8 + d]) * in.k.values[(kv + j) * 8 + d];
      const double e = std::exp(score * *a.scale);
      sum += e;
      for (int d = 0; d < 8; ++d) o[d] += e * in.v.values[(kv + j) * 8 + d];
    }
    CHECK(reference::sees_nothing(spec, rows[r]) == (sum == 0));
    for (int d = 0; d < 8; ++d) CHECK(truth.o[r * 8 + d] == Approx(sum == 0 ? 0 : o[d] / sum).margin(1e-12));
  }

  // Gradients against finite differences of Σ dO ∘ O.
  const problem::BackwardInputs back = problem::make_inputs(problem::Backward{a}, 3);
  const auto gradients = reference::backward(spec, back.q.values, back.k.values, back.v.values, back.d_o.values);
  const auto loss = [&](const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v) {
    const auto out = reference::forward(spec, rows, std::span<const double>(q), k, v);
    double total = 0;
    for (std::size_t n = 0; n < out.o.size(); ++n) total += out.o[n] * back.d_o.values[n];
    return total;
  };
  const auto doubles = [](const std::vector<float>& x) { return std::vector<double>(x.begin(), x.end()); };
  std::vector<double> q = doubles(back.q.values), k = doubles(back.k.values), v = doubles(back.v.values);
  const auto check = [&](std::vector<double>& x, const std::vector<double>& gradient) {
    for (std::size_t n = 5; n < x.size(); n += x.size() / 23) {
      const double there = x[n], h = 1e-5;
      x[n] = there + h;
      const double above = loss(q, k, v);
      x[n] = there - h;
      const double below = loss(q, k, v);
      x[n] = there;
      CHECK(gradient[n] == Approx((above - below) / (2 * h)).margin(1e-6));
    }
  };
  check(q, gradients.dq);
  check(k, gradients.dk);
  check(v, gradients.dv);
}

TEST_CASE("what a mask hides does not count: NaN, infinities, overflow") {
  Attention a = with_pattern(shape_of(20, 20, 2), "band:1,dense", 10, 10);
  a.kv_heads = 1;
  problem::AttentionInputs in = problem::make_inputs(a, 1);
  in.v.values[15 * 8] = std::numeric_limits<float>::quiet_NaN();
  in.k.values[16 * 8] = std::numeric_limits<float>::max();
  const auto spec = run::spec_of(a);
  const auto rows = reference::all_rows(spec);
  const auto odd = reference::sees_non_finite(spec, rows, in.q.values, in.k.values, in.v.values);
  const auto overflow = reference::scores_may_overflow(spec, rows, in.q.values, in.k.values);
  const auto truth = reference::forward(spec, rows, std::span<const float>(in.q.values), in.k.values, in.v.values);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const bool sees_it = rows[r].head == 1 || rows[r].query >= 10;
    CHECK(bool(odd[r]) == sees_it);
    if (!sees_it) CHECK(!overflow[r]);
    CHECK(std::isnan(truth.o[r * 8]) == sees_it);
  }
}

TEST_CASE("a variant names what of a mask it does not take, and a report says what the mask was") {
  const run::AttentionSupport supports{.sparse_q = {128}, .sparse_k = {64, 128}};
  CHECK(to_string(supports).find("sparse masks, blocks of 128 queries by 64, 128 keys") != std::string::npos);
  const auto reason = [&](const std::string& pattern, int block_q, int block_k) {
    return run::refusal(supports, with_pattern(shape_of(300, 300), pattern, block_q, block_k)).value_or("");
  };
  CHECK(reason("band:1", 128, 64).empty());
  CHECK(reason("band:1", 64, 64).starts_with("does not support blocks of 64 queries"));
  CHECK(reason("band:1", 128, 32).starts_with("does not support blocks of 32 keys"));
  CHECK(reason("sink:1t+local:2t", 128, 128).starts_with("does not support heads that stream by token"));
  const auto json = run::attention_json(with_pattern(shape_of(20, 20, 2), "band:1,dense", 10, 10))["sparse"];
  CHECK(json == nlohmann::ordered_json::parse(
                    R"({"block_q": 10, "block_k": 10, "live_pairs": 600.0, "head_types": ["block-sparse", "dense"]})"));
}

namespace {

// An .npy file of bytes, or of int32.
template <class T>
void write_file(const std::filesystem::path& path, const std::string& descr, const std::string& shape,
                const std::vector<T>& values) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.append(63 - (10 + header.size()) % 64, ' ') += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00", 8).write(reinterpret_cast<const char*>(&length), 2) << header;
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}

}  // namespace

TEST_CASE("a folder's mask is read, and what cannot be one is refused by name") {
  const auto folder = std::filesystem::temp_directory_path() / "flashsteps_sparse_mask";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const Attention a = shape_of(20, 30, 2, false, 3);
  using Bytes = std::vector<std::uint8_t>;
  using Integers = std::vector<std::int32_t>;
  const auto read = [&] { return run::read_sparse_mask(folder, a, 10, 10); };
  const auto refused_with = [&](const std::string& part) {
    try {
      read();
      FAIL("not refused: " << part);
    } catch (const run::InputError& error) {
      INFO(error.what());
      CHECK(std::string(error.what()).find(part) != std::string::npos);
    }
  };
  CHECK(read() == nullptr);
  write_file(folder / "streaming.npy", "<i4", "(2, 2)", Integers{1, 2, 3, 4});
  refused_with("there is no head_type.npy");
  write_file(folder / "head_type.npy", "<i4", "(2,)", Integers{1, 2});
  refused_with("there is no block_mask.npy");
  write_file(folder / "block_mask.npy", "|b1", "(1, 2, 2, 3)", Bytes{1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0});
  auto mask = read();
  CHECK(mask->batches == 1);
  CHECK(mask->live == Integers{1, 6, 0, 0});
  CHECK(mask->types == Integers{1, 2});
  CHECK(mask->streaming[1] == problem::Streaming{3, 4});
  write_file(folder / "block_mask.npy", "|u1", "(3, 2, 2, 3)", Bytes(36, 1));
  CHECK(read()->batches == 3);
  write_file(folder / "block_mask.npy", "|u1", "(2, 2, 2, 3)", Bytes(24, 1));
  refused_with("[3, 2, 2, 3]");
  write_file(folder / "block_mask.npy", "|u1", "(1, 2, 2, 3)", Bytes{1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  refused_with("element 2 is 2");
  write_file(folder / "block_mask.npy", "<f4", "(1, 2, 2, 3)", std::vector<float>(12));
  refused_with("'<f4'");
  write_file(folder / "block_mask.npy", "|u1", "(1, 2, 2, 3)", Bytes(12, 1));
  write_file(folder / "head_type.npy", "<i4", "(2,)", Integers{1, 4});
  refused_with("type 4");
  write_file(folder / "head_type.npy", "<i4", "(3,)", Integers{1, 1, 1});
  refused_with("3 heads where q.npy has 2");
  write_file(folder / "head_type.npy", "<i4", "(2,)", Integers{1, 3});
  write_file(folder / "streaming.npy", "<i4", "(4,)", Integers{1, 2, 3, 4});
  refused_with("[2, 2]");
  write_file(folder / "streaming.npy", "<i4", "(2, 2)", Integers{1, 2, -3, 4});
  refused_with("below 0");
  std::filesystem::remove(folder / "streaming.npy");
  refused_with("there is no streaming.npy");
  std::filesystem::remove(folder / "head_type.npy");
  CHECK(read()->types == Integers{1, 1});
  std::filesystem::remove_all(folder);
}
