#include "tests/suites/softmax_suite.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "tests/catch.h"
#include "tests/suites/asked.h"

namespace suite {
namespace {

using problem::Softmax;
using problem::SoftmaxInputKind;
using problem::Tensor;

constexpr float infinity = std::numeric_limits<float>::infinity();

run::Outcome clean(const run::SoftmaxVariant& variant, const Softmax& shape, const Tensor& x,
                   const run::SoftmaxTruth* truth = nullptr) {
  run::Outcome outcome = run::execute(variant, shape, x, {}, truth);
  INFO("variant " << variant.name << ", " << problem::to_string(shape));
  for (const runtime::Finding& finding : outcome.findings) {
    INFO(finding.text);
    REQUIRE(outcome.findings.empty());
  }
  INFO(outcome.verdict->reason());
  REQUIRE(outcome.verdict->pass());
  return outcome;
}

// 0 … count − 1 in another order, always the same.
std::vector<int> shuffled(int count) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (int i = count - 1; i > 0; --i) std::swap(order[i], order[static_cast<std::int64_t>(i) * 7919 % (i + 1)]);
  return order;
}

}  // namespace

std::vector<SoftmaxCase> softmax_shapes(problem::Dtype dtype) {
  std::vector<SoftmaxCase> cases;
  const auto add = [&](Softmax shape, SoftmaxInputKind kind = SoftmaxInputKind::normal) {
    shape.dtype = dtype;
    cases.push_back({problem::resolve(shape), kind});
  };
  const int columns[] = {1, 2, 31, 32, 33, 127, 128, 255, 1000, 1023, 1025, 4096, 4097};
  for (const int cols : columns) {
    add({.rows = 17, .cols = cols});
    add({.rows = 3, .cols = cols, .ldx = cols + 3, .ldy = cols + 11});  // modulo 8 elements, x and y start alike
    add({.rows = 5, .cols = cols, .ldx = cols + 1, .ldy = cols + 2});   // and here they do not
  }
  for (const int cols : {1, 33, 1000}) add({.rows = 129, .cols = cols});
  for (const int cols : {20000, 70000}) {
    add({.rows = 1, .cols = cols});
    add({.rows = 3, .cols = cols, .ldx = cols + 1, .ldy = cols + 9});
  }
  add({.rows = 2, .cols = 20000, .ldy = 20001}, SoftmaxInputKind::large);
  for (const auto kind :
       {SoftmaxInputKind::large, SoftmaxInputKind::one_hot, SoftmaxInputKind::uniform, SoftmaxInputKind::descending}) {
    for (const int cols : {2, 33, 1000, 1025}) add({.rows = 9, .cols = cols}, kind);
    add({.rows = 2, .cols = 40000}, kind);
  }
  return cases;
}

std::vector<SoftmaxCase> small_softmax_shapes(problem::Dtype dtype) {
  const auto make = [&](Softmax shape, SoftmaxInputKind kind) {
    shape.dtype = dtype;
    return SoftmaxCase{problem::resolve(shape), kind};
  };
  return {make({.rows = 17, .cols = 207}, SoftmaxInputKind::normal),
          make({.rows = 3, .cols = 2050, .ldx = 2051, .ldy = 2059}, SoftmaxInputKind::one_hot),
          make({.rows = 2, .cols = 40000}, SoftmaxInputKind::large)};
}

int passes(const run::SoftmaxVariant& variant, const std::vector<SoftmaxCase>& cases, std::uint64_t seed) {
  int taken = 0;
  for (const SoftmaxCase& c : cases) {
    INFO("variant " << variant.name << ", " << problem::to_string(c.shape) << ", inputs " << static_cast<int>(c.inputs));
    if (const auto reason = run::refusal(variant.supports, c.shape)) {
      const auto& dtypes = variant.supports.dtypes;
      INFO("refused: " << *reason);
      REQUIRE(std::find(dtypes.begin(), dtypes.end(), c.shape.dtype) == dtypes.end());
      continue;
    }
    const auto& asked = asked_of<run::SoftmaxTruth>(c.shape, c.inputs, seed);
    clean(variant, c.shape, asked.inputs, &asked.truth);
    ++taken;
  }
  return taken;
}

void rows_are_independent(const run::SoftmaxVariant& variant, const Softmax& shape) {
  REQUIRE(shape.rows > 1);
  REQUIRE(shape.ldx * problem::bytes(shape.dtype) % 16 == 0);
  REQUIRE(shape.ldy * problem::bytes(shape.dtype) % 16 == 0);
  const Tensor x = problem::make_inputs(shape, 21);
  const Tensor all = clean(variant, shape, x).output("y");
  Softmax single = shape;
  single.rows = 1;
  for (int row = 0; row < shape.rows; ++row) {
    const auto row_of = [&](const Tensor& tensor) {
      Tensor part({1, shape.cols});
      std::copy_n(tensor.values.begin() + std::int64_t{row} * shape.cols, shape.cols, part.values.begin());
      return part;
    };
    const Tensor alone = clean(variant, single, row_of(x)).output("y");
    INFO("variant " << variant.name << ", row " << row << " alone");
    REQUIRE(!check::first_difference(row_of(all).values, alone.values));
  }
}

void follows_permutations_and_shifts(const run::SoftmaxVariant& variant, const Softmax& shape) {
  Tensor x = problem::make_inputs(shape, 31);
  for (float& score : x.values) score = problem::round_to(problem::Dtype::bf16, score);  // so that score + 3 is exact in fp32
  for (float& score : x.values) score = std::round(score * 64) / 64;                     // and in fp16
  const run::SoftmaxTruth truth(shape, x);
  const auto judged = [&](const Tensor& changed, const auto& undo) {
    const run::Outcome outcome = run::execute(variant, shape, changed, {.check = false});
    REQUIRE(outcome.pass());
    const check::TensorVerdict verdict = truth.judge(undo(outcome.output("y")));
    INFO("variant " << variant.name << ": " << verdict.reason);
    REQUIRE(verdict.pass);
  };
  const std::vector<int> order = shuffled(shape.cols);
  Tensor permuted = x, shifted = x;
  for (std::int64_t e = 0; e < std::ssize(x.values); ++e) {
    permuted.values[e] = x.values[e / shape.cols * shape.cols + order[e % shape.cols]];
    shifted.values[e] += 3.0f;
  }
  judged(permuted, [&](const Tensor& y) {
    Tensor result = y;
    for (std::int64_t e = 0; e < std::ssize(y.values); ++e) {
      result.values[e / shape.cols * shape.cols + order[e % shape.cols]] = y.values[e];
    }
    return result;
  });
  judged(shifted, [](const Tensor& y) { return y; });
}

void takes_the_largest_scores(const run::SoftmaxVariant& variant, const Softmax& shape) {
  const bool fp32 = shape.dtype == problem::Dtype::fp32;
  const float top = fp32 ? std::numeric_limits<float>::max() : 65504.0f;
  const float high = fp32 ? 3e38f : 60000.0f;  // fp32: beyond 2.36e38, times log2(e) it is too large
  const auto at_every_third = [](float value, float other) { return [=](int col) { return col % 3 == 0 ? value : other; }; };
  const std::vector<std::function<float(int)>> rows = {
      [&](int) { return -top; },        // all are masked: each gets 1 / cols
      [&](int) { return top; },         //
      [&](int) { return high; },        //
      at_every_third(-top, 0.5f),       // a mask
      at_every_third(high, -high),      //
      at_every_third(top, high),        //
      at_every_third(-high, -top),      //
      at_every_third(-infinity, -top),  // both kinds of mask: −FLT_MAX is a number, −∞ is none
      [&](int col) { return col == shape.cols - 1 ? high : 1.0f; },  // one key takes all, and comes last
      [&](int col) { return col == 0 ? top : -infinity; },
  };
  Tensor x({shape.rows, shape.cols});
  for (std::size_t first = 0; first < rows.size(); first += static_cast<std::size_t>(shape.rows)) {
    const auto score = [&](int row, int col) {
      return problem::round_to(shape.dtype, rows[(first + static_cast<std::size_t>(row)) % rows.size()](col));
    };
    for (int row = 0; row < shape.rows; ++row) {
      for (int col = 0; col < shape.cols; ++col) x.values[std::int64_t{row} * shape.cols + col] = score(row, col);
    }
    const Tensor y = clean(variant, shape, x).output("y");
    for (int row = 0; row < shape.rows; ++row) {
      float largest = -infinity;
      for (int col = 0; col < shape.cols; ++col) largest = std::max(largest, score(row, col));
      int equals = 0;  // scores are so far apart that the largest ones share everything
      for (int col = 0; col < shape.cols; ++col) equals += score(row, col) == largest;
      int wrong = -1;  // a column: of a million, Catch2 would take longer than the kernel
      for (int col = 0; col < shape.cols; ++col) {
        const double right = score(row, col) == largest ? 1.0 / equals : 0.0;
        const double error = std::abs(y.values[std::int64_t{row} * shape.cols + col] - right);
        if (!(error <= (fp32 ? 1e-6 : 1e-3) * right)) wrong = col;
      }
      INFO("variant " << variant.name << ", row of " << score(row, 0) << " and " << score(row, 1) << ", column " << wrong);
      REQUIRE(wrong == -1);
    }
  }
}

void contains_nan_and_infinity(const run::SoftmaxVariant& variant, const Softmax& shape, bool last_row_too) {
  const Tensor x = problem::make_inputs(shape, 41);
  const Tensor before = clean(variant, shape, x).output("y");
  std::int64_t begin = 0, end = 0;  // of the row that is changed
  enum class Where { first, inside, last, all, all_but_one };
  const auto changed = [&](float value, Where where) {
    Tensor after = x;
    const auto at = after.values.begin();
    if (where == Where::first) at[begin] = value;
    if (where == Where::inside) at[begin + (end - begin) * 3 / 4] = value;  // of a row in parts: not in the first
    if (where == Where::last) at[end - 1] = value;
    if (where == Where::all) std::fill(at + begin, at + end, value);
    if (where == Where::all_but_one) std::fill(at + begin, at + end - 1, value);
    return clean(variant, shape, after).output("y");
  };
  const auto require_row = [&](float value, Where where, const auto& right) {  // right(column, y)
    const Tensor after = changed(value, where);
    std::int64_t wrong = -1;  // an element
    for (std::int64_t e = 0; e < std::ssize(after.values); ++e) {
      const bool touched = begin <= e && e < end;
      if (touched ? !right(e - begin, after.values[e]) : after.values[e] != before.values[e]) wrong = e;
    }
    INFO("variant " << variant.name << ", " << value << " at " << static_cast<int>(where) << ", element " << wrong);
    REQUIRE(wrong == -1);
  };
  const auto is_nan = [](std::int64_t, float y) { return std::isnan(y); };
  std::vector<int> rows = {shape.rows / 2};
  if (last_row_too) rows.push_back(shape.rows - 1);
  for (const int row : rows) {
    begin = std::int64_t{row} * shape.cols;
    end = begin + shape.cols;
    for (const Where where : {Where::first, Where::inside, Where::last}) {
      require_row(std::numeric_limits<float>::quiet_NaN(), where, is_nan);
      require_row(infinity, where, is_nan);
    }
    require_row(-infinity, Where::all, [](std::int64_t, float y) { return y == 0; });
    require_row(-infinity, Where::all_but_one,
                [&](std::int64_t col, float y) { return col < shape.cols - 1 ? y == 0 : std::abs(y - 1) < 1e-6f; });
    require_row(-infinity, Where::first, [](std::int64_t col, float y) { return col == 0 ? y == 0 : y > 0; });
  }
}

}  // namespace suite
