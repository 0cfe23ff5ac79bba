#include "common/run/heads_buffer.h"

namespace run {
namespace {

// Of batch entries, heads and rows, in elements.
std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape, HeadsLayout layout) {
  const std::int64_t heads = shape[1], rows = shape[2], dim = shape[3];
  // Gaps of whole 16-byte pieces, so that rows which start at such a piece still do; or the opposite of that.
  const std::int64_t padded_dim = layout.odd ? dim + 1 + dim % 2 : layout.gaps ? dim + 16 : dim;
  const std::int64_t padded_rows = layout.gaps || layout.odd ? rows + 3 : rows;
  const std::int64_t batch = heads * padded_rows * padded_dim;
  if (layout.tokens_first) return {batch, padded_dim, heads * padded_dim};
  return {batch, padded_rows * padded_dim, padded_dim};
}

}  // namespace

HeadsBuffer::HeadsBuffer(const std::string& name, const std::vector<std::int64_t>& shape, problem::Dtype dtype,
                         HeadsLayout layout)
    : RowsBuffer(name, shape, strides_of(shape, layout), dtype) {}

}  // namespace run
