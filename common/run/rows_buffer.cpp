#include "common/run/rows_buffer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace run {
namespace {

constexpr std::uint16_t nan_half = 0x7fff;  // a NaN as fp16, as bf16, and doubled as fp32
constexpr auto poison_half = static_cast<std::uint16_t>(device::poison_word);

bool is_exact(problem::Dtype dtype, float x) { return x != x || problem::round_to(dtype, x) == x; }

}  // namespace

RowsBuffer::RowsBuffer(const std::string& name, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides,
                       problem::Dtype dtype)
    : shape_(std::move(shape)), strides_(std::move(strides)), dtype_(dtype) {
  // The outermost dimension's stride covers all that belongs to one of its entries.
  buffer_ = device::Buffer(name, static_cast<std::size_t>(shape_[0] * strides_[0]) * problem::bytes(dtype));
}

// visit(n, at): row n of the dense tensor, in C order, starts at element `at` of the buffer.
template <class Visit>
void RowsBuffer::for_each_row(const Visit& visit) const {
  const std::int64_t rows = problem::Tensor::count(shape_) / shape_.back();
  for (std::int64_t n = 0; n < rows; ++n) {
    std::int64_t at = 0, rest = n;
    for (std::size_t d = strides_.size(); d-- > 0; rest /= shape_[d]) at += rest % shape_[d] * strides_[d];
    visit(n, at);
  }
}

void RowsBuffer::upload(const problem::Tensor& tensor) {
  if (tensor.shape != shape_) {
    throw std::invalid_argument("a tensor of shape " + problem::to_string(tensor.shape) + " where " +
                                problem::to_string(shape_) + " is expected");
  }
  if (!std::all_of(tensor.values.begin(), tensor.values.end(), [&](float x) { return is_exact(dtype_, x); })) {
    throw std::invalid_argument("inputs must be rounded to " + std::string(problem::name(dtype_)) + " beforehand");
  }
  Halves halves(buffer_.bytes() / sizeof(std::uint16_t), nan_half);
  const std::size_t cols = shape_.back();
  for_each_row([&](std::int64_t n, std::int64_t at) {
    problem::encode(dtype_, &tensor.values[n * cols], cols, &halves[at * halves_per_element()]);
  });
  buffer_.upload(halves.data(), buffer_.bytes());
}

RowsBuffer::Halves RowsBuffer::raw() const {
  Halves halves(buffer_.bytes() / sizeof(std::uint16_t));
  buffer_.download(halves.data(), buffer_.bytes());
  return halves;
}

problem::Tensor RowsBuffer::download() const {
  problem::Tensor tensor(shape_);
  const Halves halves = raw();
  const std::size_t cols = shape_.back();
  for_each_row([&](std::int64_t n, std::int64_t at) {
    problem::decode(dtype_, &halves[at * halves_per_element()], cols, &tensor.values[n * cols]);
  });
  return tensor;
}

bool RowsBuffer::surroundings_intact() const {
  if (!buffer_.guards_intact()) return false;
  if (static_cast<std::size_t>(problem::Tensor::count(shape_)) * problem::bytes(dtype_) == buffer_.bytes()) return true;
  Halves halves = raw();
  for_each_row([&](std::int64_t, std::int64_t at) {
    std::fill_n(&halves[at * halves_per_element()], shape_.back() * halves_per_element(), poison_half);
  });
  return std::all_of(halves.begin(), halves.end(), [](std::uint16_t half) { return half == poison_half; });
}

}  // namespace run
