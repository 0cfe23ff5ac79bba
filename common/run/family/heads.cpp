#include "common/run/family/heads.h"

namespace run {

std::vector<std::int64_t> heads_strides(std::int64_t heads, std::int64_t rows, std::int64_t dim, Layout layout) {
  // Gaps of whole 16-byte pieces, so that rows which start at such a piece still do; or the opposite of that.
  const std::int64_t padded_dim = layout.odd ? dim + 1 + dim % 2 : layout.gaps ? dim + 16 : dim;
  const std::int64_t padded_rows = layout.gaps || layout.odd ? rows + 3 : rows;
  const std::int64_t batch = heads * padded_rows * padded_dim;
  if (layout.tokens_first) return {batch, padded_dim, heads * padded_dim};
  return {batch, padded_rows * padded_dim, padded_dim};
}

}  // namespace run
