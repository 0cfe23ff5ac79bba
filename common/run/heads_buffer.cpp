#include "common/run/heads_buffer.h"

#include <algorithm>
#include <stdexcept>

namespace run {
namespace {

constexpr std::uint16_t nan_half = 0x7fff;  // a NaN as fp16, as bf16, and doubled as fp32
constexpr auto poison_half = static_cast<std::uint16_t>(device::poison_word);

bool is_exact(problem::Dtype dtype, float x) { return x != x || problem::round_to(dtype, x) == x; }

}  // namespace

HeadsBuffer::HeadsBuffer(const std::string& name, const std::vector<std::int64_t>& shape, problem::Dtype dtype,
                         HeadsLayout layout)
    : shape_(shape), dtype_(dtype), layout_(layout) {
  const std::int64_t heads = shape[1], rows = shape[2], dim = shape[3];
  // Gaps of whole 16-byte pieces, so that rows which start at such a piece still do.
  const std::int64_t padded_dim = layout.gaps ? dim + 16 : dim;
  const std::int64_t padded_rows = layout.gaps ? rows + 3 : rows;
  row_stride_ = layout.tokens_first ? heads * padded_dim : padded_dim;
  head_stride_ = layout.tokens_first ? padded_dim : padded_rows * padded_dim;
  batch_stride_ = heads * padded_rows * padded_dim;
  buffer_ = device::Buffer(name, static_cast<std::size_t>(shape[0] * batch_stride_) * problem::bytes(dtype));
}

// visit(n, at): row n of the dense tensor, in C order, starts at element `at` of the buffer.
template <class Visit>
void HeadsBuffer::for_each_row(const Visit& visit) const {
  std::int64_t n = 0;
  for (std::int64_t batch = 0; batch < shape_[0]; ++batch) {
    for (std::int64_t head = 0; head < shape_[1]; ++head) {
      for (std::int64_t row = 0; row < shape_[2]; ++row) {
        visit(n++, batch * batch_stride_ + head * head_stride_ + row * row_stride_);
      }
    }
  }
}

void HeadsBuffer::upload(const problem::Tensor& tensor) {
  if (tensor.shape != shape_) {
    throw std::invalid_argument("a tensor of shape " + problem::to_string(tensor.shape) + " where " +
                                problem::to_string(shape_) + " is expected");
  }
  if (!std::all_of(tensor.values.begin(), tensor.values.end(), [&](float x) { return is_exact(dtype_, x); })) {
    throw std::invalid_argument("inputs must be rounded to " + std::string(problem::name(dtype_)) + " beforehand");
  }
  Halves halves(buffer_.bytes() / sizeof(std::uint16_t), nan_half);
  const std::size_t dim = shape_[3];
  for_each_row([&](std::int64_t n, std::int64_t at) {
    problem::encode(dtype_, &tensor.values[n * dim], dim, &halves[at * halves_per_element()]);
  });
  buffer_.upload(halves.data(), buffer_.bytes());
}

HeadsBuffer::Halves HeadsBuffer::raw() const {
  Halves halves(buffer_.bytes() / sizeof(std::uint16_t));
  buffer_.download(halves.data(), buffer_.bytes());
  return halves;
}

problem::Tensor HeadsBuffer::download() const {
  problem::Tensor tensor(shape_);
  const Halves halves = raw();
  const std::size_t dim = shape_[3];
  for_each_row([&](std::int64_t n, std::int64_t at) {
    problem::decode(dtype_, &halves[at * halves_per_element()], dim, &tensor.values[n * dim]);
  });
  return tensor;
}

bool HeadsBuffer::surroundings_intact() const {
  if (!buffer_.guards_intact()) return false;
  if (!layout_.gaps) return true;
  Halves halves = raw();
  for_each_row([&](std::int64_t, std::int64_t at) {
    std::fill_n(&halves[at * halves_per_element()], shape_[3] * halves_per_element(), poison_half);
  });
  return std::all_of(halves.begin(), halves.end(), [](std::uint16_t half) { return half == poison_half; });
}

}  // namespace run
