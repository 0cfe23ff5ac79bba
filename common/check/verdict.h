// The verdict: is a kernel's output right? It is compared, row by row, with the truth (in double) and with what an honest
// implementation in the same dtype gets (the baseline). A row is one query of O, dQ or LSE, one key of dK or dV: the largest
// error of a whole causal tensor is set by its first, large rows and would hide errors in the late ones.
//
// The rules, in the order in which they are tried:
//   written   no element still bears the poison that the buffer was filled with before the launch
//   finite    every element is finite, or exactly what the contract asks for (O = 0 and LSE = −∞ where a query sees no key);
//             where the truth is NaN it is NaN, where the truth is infinite it is that infinity (in gradients: any of these)
//   row       max |out − truth| ≤ factor · max(the baseline's error in that row, floor); factor 2, for gradients 3
//   mean      mean |out − truth| ≤ 1.5 · max(the baseline's mean error, the mean floor): a bias hides below a row's maximum
// A row in which fp32 may overflow on the way to the scores must be written, and is held to nothing else.
//
// The mean floor of many elements is ½ ulp of a 16-bit dtype: rounding an output costs ¼ ulp on average, and ½ ulp where all P
// of a row are rounded to one side by as much as they can be; and half of what rounding on the way can amount to, if that is
// more. Fp16 that was rounded to bf16 is off by 2 ulp.
//
// The floor is 2 ulp of a 16-bit dtype, 16 ulp of fp32, at the row's largest |truth|: with a single key the baseline's error is
// zero. That is not enough where a sum of large terms cancels: there the floor is raised to what rounding in fp32 can amount to
// (reference::fp32_rounding, product_rounding). And it is too much where the elements of a row differ in size: an element's
// size can be given, and then every element has bounds of its own.
//
// An allowance must not grow until zeros pass. Scores of a million are rounded by so much that another key wins, and O is far
// from the truth, the baseline's too. What is demanded then is that O be a mean of V's rows that such scores can give
// (Expected::reach).
//
// Next to the dtype's largest number an honest output may round to infinity: it stands for the next number beyond the largest.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/problem/dtype.h"
#include "common/problem/element.h"
#include "common/problem/tensor.h"

namespace check {

inline constexpr double output_factor = 2;
inline constexpr double gradient_factor = 3;
inline constexpr double mean_factor = 1.5;

// What outputs are filled with before each launch, as 32-bit words: a NaN as fp32, and each half as fp16 and as bf16.
inline constexpr std::uint32_t poison_word = 0x7fed7fedu;

// The value that an unwritten element has after it was downloaded and converted to float.
float poison_value(problem::Dtype dtype);

// The distance between neighbouring numbers of the dtype at |x|; beyond its largest number, the distance there.
double ulp(problem::Dtype dtype, double x);

// What is asked of a row.
enum class RowRule : std::uint8_t {
  compare,  // every rule
  empty,    // sees no key: exactly Output::empty_value
  written,  // fp32 may overflow in its scores: exempt from all but the poison
};

// A tensor that a kernel wrote, or those rows of it that are looked at.
struct Output {
  std::string name;                                        // "O"
  problem::Dtype dtype = problem::Dtype::fp32;             // of its elements in device memory
  std::int64_t cols = 1;                                   // elements of a row
  std::span<const float> values;                           // [rows, cols]
  std::span<const RowRule> rules = {};                     // [rows]; none: every row is compared
  std::function<std::string(std::int64_t)> row_name = {};  // for people: "batch 0, head 3, query 117"; none: the row's number
  double empty_value = 0;                                  // of an empty row: 0 in O, −∞ in LSE
};

struct TensorVerdict {
  std::string name;
  bool pass = true;
  std::string reason;  // of a rejection, in one line that names row and numbers
  // Over the rows that were compared; NaN where nothing was, because an earlier rule failed.
  double max_error = std::numeric_limits<double>::quiet_NaN();
  double max_baseline_error = std::numeric_limits<double>::quiet_NaN();
  double worst_ratio = std::numeric_limits<double>::quiet_NaN();  // error over allowed error, the largest of all rows
  double mean_error = std::numeric_limits<double>::quiet_NaN();
  double mean_allowed = std::numeric_limits<double>::quiet_NaN();
  std::int64_t worst_row = -1;    // where worst_ratio is; −1: no row was compared
  std::int64_t rows_checked = 0;  // exempt ones not among them
  std::int64_t rows_exempt = 0;   // those of RowRule::written
};

// Only the rules "written" and "finite", without a truth: for whole tensors of which only some rows are compared.
TensorVerdict judge_written(const Output& output);

// What an output is compared with, [rows, cols]. Rows that are not compared are not looked at.
struct Expected {
  std::span<const double> truth;    // may hold NaN and infinities
  std::span<const float> baseline;  // its elements count where the truth is finite
  // What an element would be if the terms of its sum had random signs, or |truth| where that is more: each element is judged
  // alone, with the floor at its size. None: a row's elements share the largest |truth| and the largest error of the baseline.
  std::span<const double> size = {};
  std::span<const double> rounding = {};  // raises the floor where it is larger; [rows] where there are no sizes; or none
  std::span<const std::uint8_t> may_overflow = {};  // 1: an honest fp32 sum may overflow on the way, so it may be ±∞ or NaN
  // Of a row, and a direction [cols]: the largest direction · (out − truth) that honest rounding makes of quantities that are
  // shared by the row's elements. It is allowed beside all the rest. None: 0.
  std::function<double(std::int64_t, std::span<const double>)> reach = {};
  bool nan_for_infinity = false;  // NaN is right for ±∞, too: an honest factor may round to 0, and 0 · ∞ is NaN
  // Where the truth is NaN or ±∞, either is right, whatever its sign: gradients, where ∞ − ∞ depends on the order of sums.
  bool any_non_finite = false;
  double factor = output_factor;
};

// All rules. Throws std::invalid_argument where the spans do not fit together.
TensorVerdict judge(const Output& output, const Expected& expected);

// Which rows of an output are compared. Of the others it is still asked that they be written, and finite where the rules say
// so.
struct Sample {
  std::vector<std::int64_t> rows;       // the compared ones, ascending; none: all
  std::vector<RowRule> rules = {};      // of the compared rows; none: every rule
  std::vector<RowRule> all_rules = {};  // of all rows, without a truth; none: nothing is asked of them beforehand
};

// First what is asked of all rows, then judge_rows() of the compared ones: an Output with these rows alone, and their names.
TensorVerdict judge_sample(const Output& output, const Sample& sample,
                           const std::function<TensorVerdict(const Output&)>& judge_rows);

// LSE, one element a row, always fp32 in device memory: "written", NaN or −∞ exactly where the truth is, and an absolute error
// of at most 1e-3 for 16-bit inputs and 1e-5 · max(1, |LSE|) for fp32, or rounding where that is more. truth [rows], rounding
// [rows] or none.
TensorVerdict judge_lse(const Output& output, std::span<const double> truth, problem::Dtype inputs,
                        std::span<const double> rounding = {});

// Of an output whose length only the launch knows: a rejection where that is not the truth's.
std::optional<TensorVerdict> judge_shape(const std::string& name, const std::vector<std::int64_t>& shape,
                                         const std::vector<std::int64_t>& expected);

// Integers are right where they are equal to the truth, in number and one by one. One int8 that nobody wrote may be so by
// chance, because the poison is no special number of that size.
TensorVerdict judge_integers(const std::string& name, const problem::Integers& values, const problem::Integers& truth,
                             problem::Element element = problem::Element::int32());

// The first element in which two runs differ by a bit; nothing if they are equal. NaNs are compared by their bits too.
std::optional<std::int64_t> first_difference(std::span<const float> run, std::span<const float> again);

// Everything that is asked of one launch.
struct Verdict {
  std::vector<TensorVerdict> tensors;
  bool guards_intact = true;       // nothing was written before or after a buffer
  std::optional<bool> repeatable;  // two runs gave the same bits; nothing where the variant does not promise that
  bool pass() const;
  std::string reason() const;  // of the first rejection, in one line; empty where all is well
};

}  // namespace check
