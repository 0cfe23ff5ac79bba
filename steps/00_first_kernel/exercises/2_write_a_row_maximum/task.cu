// Exercise 2 of step 00: the largest element of each row of a matrix. Yours to write: the kernel and its launch.
//
// A block has a row: its threads look at neighbouring elements, keep the largest that they have seen, and reduce through
// __shared__ memory, as `row_sum` does. A row may have any number of columns from 1 on, fewer than the block has threads among
// them, and its elements may all be −infinity. The grader counts the bytes that are asked for: each element is to be read once.
#include <cuda_runtime.h>

void row_maxima(int rows, int cols, const float* x, float* maxima) {  // x: [rows, cols], maxima: [rows], on the host
  // Yours to write.
  maxima[0] = x[0];
  (void)rows;
  (void)cols;
}
