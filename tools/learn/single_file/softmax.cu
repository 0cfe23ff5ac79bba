// A softmax of each row: y[i, j] = exp(x[i, j]) / Σ exp(x[i, k]).
#include <limits>

#include "tools/learn/single_file/host.cuh"

namespace host {

struct Softmax {
  int rows, cols;
  int ldx, ldy;  // elements from one row to the next
  Dtype dtype;   // of x and y; sums are fp32
};

// What a launch takes: everything in device memory.
struct SoftmaxLaunch {
  Softmax shape;
  const void* x;  // [rows, ldx]
  void* y;        // [rows, ldy]
  // [if scratch]
  const DeviceArrays& arrays;  // scratch memory
  // [end]
};

// What a variant can compute.
struct SoftmaxSupport {
  std::vector<Dtype> dtypes = {Dtype::fp32, Dtype::fp16};
  std::int64_t max_row_bytes = std::numeric_limits<std::int64_t>::max();
};

}  // namespace host

// [the step]

namespace host {

bool run(int argc, char** argv) {
  CommandLine line(argc, argv);
  Softmax s{};
  s.rows = line.number("--rows", 16384);
  s.cols = s.ldx = s.ldy = line.number("--cols", 4096);
  s.dtype = line.dtype(supports.dtypes);
  const int seed = line.number("--seed", 1), repeat = line.number("--repeat", 20);
  line.end();
  require(static_cast<std::int64_t>(s.cols * bytes(s.dtype)) <= supports.max_row_bytes,
          "rows of this kernel have at most " + std::to_string(supports.max_row_bytes) + " bytes");
  std::printf("%s: rows %d, cols %d, %s\n", variant_name, s.rows, s.cols, name(s.dtype));

  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  std::vector<float> x = random_values(random, std::int64_t{s.rows} * s.cols);
  const DeviceArray x_array(s.dtype, x), y_array(s.dtype, x.size());
  // [if scratch]
  const DeviceArrays arrays(scratch_of(s));
  // [end]
  const SoftmaxLaunch l{
      .shape = s,
      .x = x_array.data(),
      .y = y_array.data(),
      // [if scratch]
      .arrays = arrays,
      // [end]
  };
  launch_variant(l);
  CUDA_CHECK(cudaDeviceSynchronize());

  const std::vector<float> y = y_array.values();
  std::vector<double> y_row(static_cast<std::size_t>(s.cols));
  double error = 0;
  for (const std::int64_t row : some_rows(random, s.rows, 256)) {
    const float* const x_row = &x[row * s.cols];
    const double largest = *std::max_element(x_row, x_row + s.cols);
    double sum = 0;
    for (int j = 0; j < s.cols; ++j) sum += y_row[j] = std::exp(x_row[j] - largest);
    for (double& p : y_row) p /= sum;
    error = std::max(error, row_error(&y[row * s.cols], y_row));
  }
  const bool right = passes("y", error, tolerance(s.dtype));
  print_time(repeat, 5.0 * s.rows * s.cols, [&] { launch_variant(l); });
  return right;
}

}  // namespace host

int main(int argc, char** argv) {
  return host::exit_status([&] { return host::run(argc, argv); });
}
