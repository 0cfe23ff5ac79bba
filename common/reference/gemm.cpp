#include "common/reference/gemm.h"

#include <limits>
#include <numeric>

#include "common/reference/parts.h"
#include "common/reference/sample.h"

namespace reference {
namespace {

// Columns of C that are computed side by side, from a transposed copy of as many rows of B; and rows that share it.
constexpr int panel_cols = 8;
constexpr int group_rows = 2;

std::int64_t entries_of_b(const GemmSpec& spec) {
  return spec.b_of.empty() ? spec.batch : *std::max_element(spec.b_of.begin(), spec.b_of.end()) + 1;
}

void require_valid(const GemmSpec& spec, std::span<const float> a, std::span<const float> b) {
  require(std::min({spec.batch, spec.m, spec.n, spec.k}) >= 1, "every extent must be ≥ 1");
  require(spec.batch_a == 1 || spec.batch_a == spec.batch, "batch_a must be 1 or batch");
  require_size(a, std::int64_t{spec.batch_a} * spec.m * spec.k, "a");
  require(spec.b_of.empty() || std::ssize(spec.b_of) == spec.batch, "b_of must name an entry of B for each batch entry");
  require_size(b, entries_of_b(spec) * spec.n * spec.k, "b");
}

// Where the row of A lies that a row of C is made from.
std::int64_t a_offset(const GemmSpec& spec, std::int64_t row) { return (spec.batch_a == 1 ? row % spec.m : row) * spec.k; }

// c [group_rows, panel_cols] = rows of A · panel [k, panel_cols], each sum in the order of k.
template <class Real>
void multiply_panel(const float* const (&a)[group_rows], const Real* panel, int k, Real (&c)[group_rows][panel_cols]) {
  for (auto& row : c) std::fill_n(row, panel_cols, Real{0});
  for (int d = 0; d < k; ++d) {
    for (int r = 0; r < group_rows; ++r) {
      const Real x = static_cast<Real>(a[r][d]);
      for (int j = 0; j < panel_cols; ++j) c[r][j] += x * panel[d * panel_cols + j];
    }
  }
}

// Columns first_col … of the rows [begin, end), which belong to one batch entry; the last group repeats its last row.
template <class Real>
void multiply_columns(const GemmSpec& spec, const GemmRows& rows, std::int64_t begin, std::int64_t end, int first_col,
                      std::span<const float> a, std::span<const float> b, Real* c) {
  const std::int64_t k = spec.k;
  const int cols = std::min(panel_cols, spec.n - first_col);
  std::vector<Real> panel(k * panel_cols, Real{0});
  const std::int64_t b_entry = spec.b_entry(rows[begin] / spec.m);
  for (int j = 0; j < cols; ++j) {
    const float* b_row = &b[(b_entry * spec.n + first_col + j) * k];
    for (std::int64_t d = 0; d < k; ++d) panel[d * panel_cols + j] = static_cast<Real>(b_row[d]);
  }
  for (std::int64_t r = begin; r < end; r += group_rows) {
    const float* a_rows[group_rows];
    for (int i = 0; i < group_rows; ++i) a_rows[i] = &a[a_offset(spec, rows[std::min(r + i, end - 1)])];
    Real sums[group_rows][panel_cols];
    multiply_panel(a_rows, panel.data(), spec.k, sums);
    for (int i = 0; i < group_rows && r + i < end; ++i) std::copy_n(sums[i], cols, &c[(r + i) * spec.n + first_col]);
  }
}

template <class Real>
std::vector<Real> multiply(const GemmSpec& spec, const GemmRows& rows, std::span<const float> a, std::span<const float> b) {
  require_valid(spec, a, b);
  require(std::is_sorted(rows.begin(), rows.end()), "rows must be in order");
  std::vector<Real> c(rows.size() * spec.n);
  const std::int64_t panels = (spec.n + panel_cols - 1) / panel_cols;
  parallel_for(spec.batch * panels, [&](std::int64_t task) {
    const std::int64_t batch = task / panels;
    const auto first = [&](std::int64_t row) { return std::lower_bound(rows.begin(), rows.end(), row) - rows.begin(); };
    const std::int64_t begin = first(batch * spec.m), end = first((batch + 1) * spec.m);
    if (begin == end) return;
    multiply_columns(spec, rows, begin, end, static_cast<int>(task % panels) * panel_cols, a, b, c.data());
  });
  return c;
}

}  // namespace

std::string row_text(const GemmSpec& spec, std::int64_t row) {
  return "batch " + std::to_string(row / spec.m) + ", row " + std::to_string(row % spec.m);
}

GemmRows all_rows(const GemmSpec& spec) {
  GemmRows rows(std::int64_t{spec.batch} * spec.m);
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  return rows;
}

GemmRows sample_rows(const GemmSpec& spec, int per_batch, std::uint64_t seed) {
  if (spec.m <= std::max(per_batch, least_sample)) return all_rows(spec);
  Sampler sampler(spec.m, per_batch, seed);
  GemmRows rows;
  for (std::int64_t batch = 0; batch < spec.batch; ++batch) {
    for (const int row : sampler.next()) rows.push_back(batch * spec.m + row);
  }
  return rows;
}

std::vector<double> product(const GemmSpec& spec, const GemmRows& rows, std::span<const float> a, std::span<const float> b) {
  return multiply<double>(spec, rows, a, b);
}

std::vector<float> product_baseline(const GemmSpec& spec, const GemmRows& rows, std::span<const float> a,
                                    std::span<const float> b, Round round) {
  std::vector<float> c = multiply<float>(spec, rows, a, b);
  for (float& x : c) x = round(x);
  return c;
}

ProductRounding product_rounding(const GemmSpec& spec, const GemmRows& rows, std::span<const float> a, std::span<const float> b,
                                 std::span<const double> truth) {
  require_valid(spec, a, b);
  const std::size_t elements = rows.size() * spec.n;
  require_size(truth, std::ssize(rows) * spec.n, "truth");
  std::vector<double> b_norms(entries_of_b(spec) * spec.n);
  parallel_for(std::ssize(b_norms), [&](std::int64_t j) { b_norms[j] = norm(&b[j * spec.k], spec.k); });
  ProductRounding result{std::vector<double>(elements), std::vector<double>(elements), std::vector<std::uint8_t>(elements)};
  parallel_for(std::ssize(rows), [&](std::int64_t r) {
    const double a_norm = norm(&a[a_offset(spec, rows[r])], spec.k);
    double largest = 0;
    for (int j = 0; j < spec.n; ++j) {
      const double c = std::abs(truth[r * spec.n + j]);
      if (std::isfinite(c)) largest = std::max(largest, c);
    }
    for (int j = 0; j < spec.n; ++j) {
      const std::int64_t at = r * spec.n + j;
      const double norms = a_norm * b_norms[spec.b_entry(rows[r] / spec.m) * spec.n + j];
      result.size[at] = std::max(std::abs(truth[at]), std::min(norms / std::sqrt(spec.k), largest));
      result.sum[at] = 0.5 * std::sqrt(spec.k) * fp32_unit * norms;
      result.may_overflow[at] = norms >= std::numeric_limits<float>::max();
    }
  });
  return result;
}

}  // namespace reference
