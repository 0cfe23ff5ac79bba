#include "common/problem/gemm.h"

#include "common/problem/require.h"

namespace problem {
namespace {

double elements(int batch, int rows, int columns) { return static_cast<double>(batch) * rows * columns; }

void require_stride(const char* field, int stride, const char* extent, int least) {
  require(stride >= least, std::string(field) + " is " + std::to_string(stride) + "; it must be " + extent + ", " +
                               std::to_string(least) + ", or more");
}

}  // namespace

double Gemm::flops() const { return 2 * elements(batch, m, n) * k; }

double Gemm::compulsory_bytes() const {
  const double all = elements(batch_a == 0 ? batch : batch_a, m, k) + elements(batch, n, k) + elements(batch, m, n);
  return all * static_cast<double>(bytes(dtype));
}

Gemm resolve(Gemm shape) {
  require_positive("batch", shape.batch);
  require_extent("m", shape.m);
  require_extent("n", shape.n);
  require_extent("k", shape.k);
  if (shape.batch_a == 0) shape.batch_a = shape.batch;
  if (shape.lda == 0) shape.lda = shape.k;
  if (shape.ldb == 0) shape.ldb = shape.k;
  if (shape.ldc == 0) shape.ldc = shape.n;
  require(
      shape.batch_a == 1 || shape.batch_a == shape.batch,
      "batch-a is " + std::to_string(shape.batch_a) + "; it must be 1 (A is shared) or batch, " + std::to_string(shape.batch));
  require_stride("lda", shape.lda, "k", shape.k);
  require_stride("ldb", shape.ldb, "k", shape.k);
  require_stride("ldc", shape.ldc, "n", shape.n);
  require_countable({{"batch-a · m · lda", elements(shape.batch_a, shape.m, shape.lda)},
                     {"batch · n · ldb", elements(shape.batch, shape.n, shape.ldb)},
                     {"batch · m · ldc", elements(shape.batch, shape.m, shape.ldc)}});
  return shape;
}

std::string to_string(const Gemm& shape) {
  const auto field = [](const char* name, int value) { return std::string(", ") + name + " " + std::to_string(value); };
  return "batch " + std::to_string(shape.batch) + (shape.batch_a < shape.batch ? ", A shared" : "") + field("m", shape.m) +
         field("n", shape.n) + field("k", shape.k) + field("lda", shape.lda) + field("ldb", shape.ldb) +
         field("ldc", shape.ldc) + ", " + std::string(name(shape.dtype));
}

}  // namespace problem
