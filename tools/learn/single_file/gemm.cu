// A matrix product: C[m, n] = A[m, k] · B[n, k]ᵀ, of each batch entry.
#include <limits>

#include "tools/learn/single_file/host.cuh"

namespace host {

struct Gemm {
  int batch;
  int batch_a;  // batch, or 1: A is shared by all batch entries
  int m, n, k;
  int lda, ldb, ldc;  // elements from one row to the next
  Dtype dtype;        // of A, B and C; sums are fp32
};

// What a launch takes: everything in device memory. Strides count elements.
struct GemmLaunch {
  Gemm shape;
  const void* a;                // [batch_a, m, lda]
  const void* b;                // [batch, n, ldb]
  void* c;                      // [batch, m, ldc]
  std::int64_t a_batch_stride;  // 0 where A is shared
  std::int64_t b_batch_stride;
  std::int64_t c_batch_stride;
  // [if scratch]
  const DeviceArrays& arrays;  // scratch memory
  // [end]
};

// What a variant can compute.
struct GemmSupport {
  std::vector<Dtype> dtypes = {Dtype::fp16, Dtype::bf16};
  int k_multiple = 1;
  int ld_multiple = 1;   // of rows of A and B
  int ldc_multiple = 1;  // of rows of C
  bool batch = true;     // batches of 2 and more
  int max_batch = 65535;
  int max_m = std::numeric_limits<int>::max();
  int max_n = std::numeric_limits<int>::max();
  int max_k = std::numeric_limits<int>::max();
  int max_ld = std::numeric_limits<int>::max();  // of rows of A and B
};

}  // namespace host

// [the step]

namespace host {

void require_supported(const GemmSupport& supports, const Gemm& g) {
  const auto within = [](const char* flag, int value, int most, int multiple = 1) {
    require(value <= most && value % multiple == 0, std::string(flag) + " is " + std::to_string(value) +
                                                        "; this kernel takes multiples of " + std::to_string(multiple) +
                                                        " up to " + std::to_string(most));
  };
  within("--batch", g.batch, supports.batch ? supports.max_batch : 1);
  within("--m", g.m, supports.max_m);
  within("--n", g.n, supports.max_n, supports.ldc_multiple);
  within("--k", g.k, std::min(supports.max_k, supports.max_ld), std::max(supports.k_multiple, supports.ld_multiple));
}

bool run(int argc, char** argv) {
  CommandLine line(argc, argv);
  Gemm g{};
  g.batch = g.batch_a = line.number("--batch", 1);
  g.m = line.number("--m", 4096);
  g.n = g.ldc = line.number("--n", 4096);
  g.k = g.lda = g.ldb = line.number("--k", 4096);
  g.dtype = line.dtype(supports.dtypes);
  const int seed = line.number("--seed", 1), repeat = line.number("--repeat", 20);
  line.end();
  require_supported(supports, g);
  std::printf("%s: batch %d, m %d, n %d, k %d, %s\n", variant_name, g.batch, g.m, g.n, g.k, name(g.dtype));

  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  const std::int64_t a_size = std::int64_t{g.m} * g.k, b_size = std::int64_t{g.n} * g.k, c_size = std::int64_t{g.m} * g.n;
  std::vector<float> a = random_values(random, g.batch * a_size);
  std::vector<float> b = random_values(random, g.batch * b_size, 1 / std::sqrt(static_cast<float>(g.k)));
  const DeviceArray a_array(g.dtype, a), b_array(g.dtype, b), c_array(g.dtype, g.batch * c_size);
  // [if scratch]
  const DeviceArrays arrays(scratch_of(g));
  // [end]
  const GemmLaunch l{
      .shape = g,
      .a = a_array.data(),
      .b = b_array.data(),
      .c = c_array.data(),
      .a_batch_stride = a_size,
      .b_batch_stride = b_size,
      .c_batch_stride = c_size,
      // [if scratch]
      .arrays = arrays,
      // [end]
  };
  launch_variant(l);
  CUDA_CHECK(cudaDeviceSynchronize());

  const std::vector<float> c = c_array.values();
  std::vector<double> c_row(static_cast<std::size_t>(g.n));
  double error = 0;
  for (const std::int64_t row : some_rows(random, std::int64_t{g.batch} * g.m, 64)) {
    for (int j = 0; j < g.n; ++j) {
      const float *a_row = &a[row * g.k], *b_row = &b[(row / g.m * g.n + j) * g.k];
      c_row[j] = 0;
      for (int i = 0; i < g.k; ++i) c_row[j] += double{a_row[i]} * b_row[i];
    }
    error = std::max(error, row_error(&c[row * g.n], c_row));
  }
  const bool right = passes("C", error, tolerance(g.dtype));
  print_time(repeat, 2.0 * g.batch * g.m * g.n * g.k, [&] { launch_variant(l); });
  return right;
}

}  // namespace host

int main(int argc, char** argv) {
  return host::exit_status([&] { return host::run(argc, argv); });
}
