// Calls `row_maxima` with a matrix of ROWS × COLUMNS and compares: check ROWS COLUMNS
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int rows = std::atoi(argv[1]), cols = std::atoi(argv[2]);
  std::vector<float> x(size_t(rows) * cols), maxima(rows, 12345);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) {
      // One row of negative numbers, one of -infinity, and the largest element anywhere in the others.
      const float value = float((i * 7919 + j * 104729) % 1009) - 504;
      x[size_t(i) * cols + j] = i % 3 == 1 ? -1000 - value : i % 3 == 2 ? -INFINITY : value;
    }
  }
  row_maxima(rows, cols, x.data(), maxima.data());
  for (int i = 0; i < rows; ++i) {
    float right = -INFINITY;
    for (int j = 0; j < cols; ++j) right = std::fmax(right, x[size_t(i) * cols + j]);
    if (maxima[i] == right) continue;
    std::printf("the maximum of row %d of %d, of %d columns, is %g; it must be %g\n", i, rows, cols, maxima[i], right);
    return 1;
  }
}
