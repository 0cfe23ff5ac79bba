#include "common/run/harness/rows_buffer.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace run {
namespace {

constexpr std::uint32_t nan_word = 0x7fff7fff;  // a NaN as fp32, and each half as fp16 and as bf16
constexpr std::uint32_t no_index = 0xffffffff;  // −1, of any size

// Memory that is filled with a word, whose last one may not be whole.
std::vector<unsigned char> filled(std::size_t bytes, std::uint32_t word) {
  std::vector<unsigned char> all(bytes);
  std::memcpy(all.data(), &word, std::min(bytes, sizeof(word)));
  for (std::size_t done = sizeof(word); done < bytes; done *= 2) {
    std::memcpy(&all[done], all.data(), std::min(done, bytes - done));
  }
  return all;
}

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

// visit(from, count, at): of so many elements of the dense array, in C order, those from `from` on are a row, or what there is
// of one; it lies at byte `at` of the buffer.
template <class Visit>
void RowsBuffer::for_each_row(std::int64_t elements, const Visit& visit) const {
  const std::int64_t cols = shape_.back();
  for (std::int64_t from = 0; from < elements; from += cols) {
    std::int64_t at = 0, rest = from / cols;
    for (std::size_t d = strides_.size(); d-- > 0; rest /= shape_[d]) at += rest % shape_[d] * strides_[d];
    visit(from, std::min(cols, elements - from), static_cast<std::size_t>(at) * element_.bytes());
  }
}

void RowsBuffer::upload(const Given& given, bool at_most) {
  if (element_.is_integer() == (given.values != nullptr)) {
    throw std::invalid_argument(element_.is_integer() ? "numbers where integers are expected"
                                                      : "no tensor where numbers are expected");
  }
  Bytes all = filled(buffer_.bytes(), element_.is_integer() ? no_index : nan_word);
  const auto place = [&](const auto& values, auto type) {
    for_each_row(std::ssize(values), [&](std::int64_t from, std::int64_t count, std::size_t at) {
      problem::encode(type, &values[from], count, &all[at]);
    });
  };
  if (element_.is_integer()) {
    require_count(given.integers.size(), shape_, at_most);
    if (!std::all_of(given.integers.begin(), given.integers.end(), [&](std::int32_t x) { return fits(element_, x); })) {
      throw std::invalid_argument("an integer that does not fit " + std::string(element_.name()));
    }
    place(given.integers, element_);
  } else {
    const std::vector<float>& values = given.values->values;
    require_shape(given.values->shape, shape_, at_most);
    const problem::Dtype dtype = element_.dtype();
    if (!std::all_of(values.begin(), values.end(), [&](float x) { return is_exact(dtype, x); })) {
      throw std::invalid_argument("inputs must be rounded to " + std::string(problem::name(dtype)) + " beforehand");
    }
    place(values, dtype);
  }
  buffer_.upload(all.data(), all.size());
}

RowsBuffer::Bytes RowsBuffer::raw() const {
  Bytes all(buffer_.bytes());
  buffer_.download(all.data(), all.size());
  return all;
}

template <class Values, class Type>
Values RowsBuffer::decoded(std::int64_t entries, Type type) const {
  Extents shape = shape_;
  shape[0] = entries;
  Values values(std::move(shape));
  const Bytes all = raw();
  for_each_row(std::ssize(values.values), [&](std::int64_t from, std::int64_t count, std::size_t at) {
    problem::decode(type, &all[at], count, &values.values[from]);
  });
  return values;
}

problem::Tensor RowsBuffer::download(std::int64_t entries) const { return decoded<problem::Tensor>(entries, element_.dtype()); }

problem::Integers RowsBuffer::download_integers(std::int64_t entries) const {
  return decoded<problem::Integers>(entries, element_);
}

bool RowsBuffer::surroundings_intact() const {
  if (!buffer_.guards_intact()) return false;
  const std::int64_t elements = problem::Tensor::count(shape_);
  if (static_cast<std::size_t>(elements) * element_.bytes() == buffer_.bytes()) return true;
  const Bytes poison = filled(buffer_.bytes(), runtime::poison_word);
  Bytes found = raw();
  for_each_row(elements, [&](std::int64_t, std::int64_t count, std::size_t at) {
    std::copy_n(&poison[at], static_cast<std::size_t>(count) * element_.bytes(), &found[at]);
  });
  return found == poison;
}

}  // namespace run
