#include "common/problem/softmax.h"

#include "common/problem/require.h"

namespace problem {
namespace {

double elements(int rows, int columns) { return static_cast<double>(rows) * columns; }

void require_stride(const char* field, int stride, int cols) {
  require(stride >= cols,
          std::string(field) + " is " + std::to_string(stride) + "; it must be cols, " + std::to_string(cols) + ", or more");
}

}  // namespace

double Softmax::flops() const { return 5 * elements(rows, cols); }

double Softmax::compulsory_bytes() const { return 2 * elements(rows, cols) * static_cast<double>(bytes(dtype)); }

Softmax resolve(Softmax shape) {
  require_extent("rows", shape.rows);
  require_extent("cols", shape.cols);
  if (shape.ldx == 0) shape.ldx = shape.cols;
  if (shape.ldy == 0) shape.ldy = shape.cols;
  require_stride("ldx", shape.ldx, shape.cols);
  require_stride("ldy", shape.ldy, shape.cols);
  require_countable({{"rows · ldx", elements(shape.rows, shape.ldx)}, {"rows · ldy", elements(shape.rows, shape.ldy)}});
  return shape;
}

std::string to_string(const Softmax& shape) {
  return "rows " + std::to_string(shape.rows) + ", cols " + std::to_string(shape.cols) + ", ldx " + std::to_string(shape.ldx) +
         ", ldy " + std::to_string(shape.ldy) + ", " + std::string(name(shape.dtype));
}

}  // namespace problem
