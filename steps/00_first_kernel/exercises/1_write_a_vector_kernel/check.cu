// Calls `axpy` with N elements and compares: check N
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int n = std::atoi(argv[1]);
  const float a = n % 2 == 0 ? 1.5f : -0.75f;
  std::vector<float> x(n), y(n);
  for (int i = 0; i < n; ++i) {
    x[i] = float(i % 513) - 256;
    y[i] = 0.25f * float(i % 7);
  }
  std::vector<float> right = y;
  for (int i = 0; i < n; ++i) right[i] += a * x[i];
  axpy(n, a, x.data(), y.data());
  for (int i = 0; i < n; ++i) {
    if (y[i] == right[i]) continue;  // every product and sum here is exact in fp32
    std::printf("y[%d] of %d is %g; it must be %g\n", i, n, y[i], right[i]);
    return 1;
  }
}
