#include "common/run/harness/rows_buffer.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace run {
namespace {

constexpr std::uint16_t nan_half = 0x7fff;  // a NaN as fp16, as bf16, and doubled as fp32
constexpr std::uint16_t no_index = 0xffff;  // doubled, −1
constexpr auto poison_half = static_cast<std::uint16_t>(runtime::poison_word);

bool is_exact(problem::Dtype dtype, float x) { return x != x || problem::round_to(dtype, x) == x; }

// What is given is what shape asks for, or less along its first dimension where that is an upper bound.
void require_shape(const std::vector<std::int64_t>& given, std::vector<std::int64_t> expected, bool at_most) {
  if (at_most && !given.empty() && given[0] <= expected[0]) expected[0] = given[0];
  if (given == expected) return;
  throw std::invalid_argument("a tensor of shape " + problem::to_string(given) + " where " + problem::to_string(expected) +
                              " is expected");
}

void require_count(std::size_t given, const std::vector<std::int64_t>& expected, bool at_most) {
  const auto all = static_cast<std::size_t>(problem::Tensor::count(expected));
  const std::size_t entry = all / static_cast<std::size_t>(expected[0]);
  if (given == all || (at_most && given < all && given % entry == 0)) return;
  throw std::invalid_argument(std::to_string(given) + " integers where " + problem::to_string(expected) + " are expected");
}

}  // namespace

RowsBuffer::Extents RowsBuffer::dense_strides(const Extents& shape) {
  Extents strides(shape.size() - 1);
  std::int64_t stride = 1;
  for (std::size_t d = shape.size() - 1; d > 0; --d) strides[d - 1] = stride *= shape[d];
  return strides;
}

// The outermost dimension's stride covers all that belongs to one of its entries.
std::size_t RowsBuffer::bytes(const Extents& shape, const Extents& strides, Element element) {
  const std::int64_t elements = strides.empty() ? problem::Tensor::count(shape) : shape[0] * strides[0];
  return static_cast<std::size_t>(elements) * element.bytes();
}

RowsBuffer::RowsBuffer(const std::string& name, Extents shape, Extents strides, Element element)
    : shape_(std::move(shape)), strides_(std::move(strides)), element_(element) {
  buffer_ = runtime::Buffer(name, bytes(shape_, strides_, element_));
  if (strides_.empty()) strides_ = dense_strides(shape_);
}

// visit(n, at): row n of the dense tensor, in C order, starts at element `at` of the buffer.
template <class Visit>
void RowsBuffer::for_each_row(std::int64_t rows, const Visit& visit) const {
  for (std::int64_t n = 0; n < rows; ++n) {
    std::int64_t at = 0, rest = n;
    for (std::size_t d = strides_.size(); d-- > 0; rest /= shape_[d]) at += rest % shape_[d] * strides_[d];
    visit(n, at);
  }
}

void RowsBuffer::upload(const Given& given, bool at_most) {
  Halves halves(buffer_.bytes() / sizeof(std::uint16_t), element_.is_integer() ? no_index : nan_half);
  // copy(from, count, to): so many elements, the first of them element `from` of what is given.
  const auto place = [&](std::size_t elements, const auto& copy) {
    const std::size_t cols = shape_.size() == 1 ? elements : static_cast<std::size_t>(shape_.back());
    const std::int64_t rows = elements == 0 ? 0 : static_cast<std::int64_t>(elements / cols);
    for_each_row(rows, [&](std::int64_t n, std::int64_t at) { copy(n * cols, cols, &halves[at * halves_per_element()]); });
  };
  if (element_.is_integer()) {
    require_count(given.integers.size(), shape_, at_most);
    place(given.integers.size(), [&](std::size_t from, std::size_t count, void* to) {
      std::memcpy(to, &given.integers[from], count * element_.bytes());
    });
  } else {
    const std::vector<float>& values = given.values->values;
    require_shape(given.values->shape, shape_, at_most);
    const problem::Dtype dtype = element_.dtype();
    if (!std::all_of(values.begin(), values.end(), [&](float x) { return is_exact(dtype, x); })) {
      throw std::invalid_argument("inputs must be rounded to " + std::string(problem::name(dtype)) + " beforehand");
    }
    place(values.size(),
          [&](std::size_t from, std::size_t count, void* to) { problem::encode(dtype, &values[from], count, to); });
  }
  buffer_.upload(halves.data(), buffer_.bytes());
}

RowsBuffer::Halves RowsBuffer::raw() const {
  Halves halves(buffer_.bytes() / sizeof(std::uint16_t));
  buffer_.download(halves.data(), buffer_.bytes());
  return halves;
}

problem::Tensor RowsBuffer::download() const {
  if (element_.is_integer()) throw std::logic_error("a tensor of numbers was asked for, and this is one of integers");
  problem::Tensor tensor(shape_);
  const Halves halves = raw();
  const std::size_t cols = shape_.back();
  for_each_row(rows(), [&](std::int64_t n, std::int64_t at) {
    problem::decode(element_.dtype(), &halves[at * halves_per_element()], cols, &tensor.values[n * cols]);
  });
  return tensor;
}

bool RowsBuffer::surroundings_intact() const {
  if (!buffer_.guards_intact()) return false;
  if (static_cast<std::size_t>(problem::Tensor::count(shape_)) * element_.bytes() == buffer_.bytes()) return true;
  Halves halves = raw();
  for_each_row(rows(), [&](std::int64_t, std::int64_t at) {
    std::fill_n(&halves[at * halves_per_element()], shape_.back() * halves_per_element(), poison_half);
  });
  return std::all_of(halves.begin(), halves.end(), [](std::uint16_t half) { return half == poison_half; });
}

}  // namespace run
