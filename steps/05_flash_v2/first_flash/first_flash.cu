// Attention in one kernel of 60 lines: FlashAttention-2, forward, on tensor cores. O = softmax(Q K^T / sqrt(d)) V for each
// head, with d = 64, in fp16, without masks, for whole tiles of 64 queries and 64 keys. The file needs CUDA, nothing else, and
// a GPU of compute capability 8.0 or newer:
//
//     nvcc -O3 -std=c++17 -arch=sm_80 -o first_flash first_flash.cu
//     ./first_flash [HEADS QUERIES KEYS [LAUNCHES]]
//
// It compares O and LSE with double precision: every row, or a part of the rows if there are many. With LAUNCHES it launches
// the kernel that many times more, and prints the mean time of a launch.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cfloat>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

constexpr int d = 64;                  // elements of a row of Q, K, V and O
constexpr int Br = 64, Bc = 64;        // queries of a block, keys of a tile
constexpr int threads = Br / 16 * 32;  // a warp for each 16 queries
constexpr int pitch = d + 8;           // of rows in shared memory: each begins 4 banks further, so lanes meet on no bank
constexpr float log2e = 1.44269504f;   // e^x is exp2f(log2e * x)
constexpr float scale = log2e / 8;     // log2(e) / sqrt(d)

// Two neighbours in a row.
__device__ half2 pair(const half* x) { return *reinterpret_cast<const half2*>(x); }

// Two neighbours in a column of a tile in shared memory.
__device__ half2 column_pair(const half* x) {
  const half upper = x[0], lower = x[pitch];
  return __halves2half2(upper, lower);
}

// Eight neighbours in a row: one access of 16 bytes.
__device__ void copy8(half* to, const half* from) { *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from); }

// C += A B, by the tensor cores, for a whole warp: A is 16 x 16, B is 16 x 8, C is 16 x 8. Lane 4 g + t has these elements:
//   a[0], a[1]   row g, columns 2t and 2t + 1; row g + 8, the same columns      a[2], a[3]   the same, 8 columns further
//   b0, b1       column g, rows 2t and 2t + 1; the same, 8 rows further
//   c[0], c[1]   row g, columns 2t and 2t + 1                                   c[2], c[3]   row g + 8, the same columns
__device__ void mma(float (&c)[4], const half2 (&a)[4], half2 b0, half2 b1) {
  const unsigned* A = reinterpret_cast<const unsigned*>(a);
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(reinterpret_cast<unsigned&>(b0)), "r"(reinterpret_cast<unsigned&>(b1)));
}

// Grid: tiles of queries x heads. Q and O are [heads, queries, d], K and V [heads, keys, d], LSE is [heads, queries].
__global__ void __launch_bounds__(threads)
    flash(const half* Q, const half* K, const half* V, half* O, float* LSE, int queries, int keys) {
  // [doc: flash_queries]
  __shared__ alignas(16) half k_tile[Bc][pitch];
  __shared__ alignas(16) half v_tile[Bc][pitch];
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const size_t row = size_t(blockIdx.y) * queries + blockIdx.x * Br + 16 * warp + g;  // this lane works on row and row + 8
  K += size_t(blockIdx.y) * keys * d;                                                 // this head's
  V += size_t(blockIdx.y) * keys * d;

  half2 q[d / 16][4];  // Q, as A of mma: 16 columns in each q[k]
  for (int k = 0; k < d / 16; ++k)
    for (int i = 0; i < 4; ++i) q[k][i] = pair(&Q[(row + i % 2 * 8) * d + 16 * k + i / 2 * 8 + 2 * t]);
  float acc[d / 8][4] = {}, l[2] = {};
  float m[2] = {-FLT_MAX, -FLT_MAX};  // not -infinity: where all scores of a tile are that, m - m_new would be NaN
  // [/doc: flash_queries]

  // [doc: flash_scores]
  for (int j = 0; j < keys; j += Bc) {
    __syncthreads();  // all warps have read the tile before, which this one overwrites
    for (int i = threadIdx.x * 8; i < Bc * d; i += threads * 8) {
      copy8(&k_tile[i / d][i % d], &K[j * d + i]);
      copy8(&v_tile[i / d][i % d], &V[j * d + i]);
    }
    __syncthreads();  // all threads have written their parts, and all warps read them

    // S = Q K^T: a column of B is a key
    float s[Bc / 8][4] = {};
    for (int n = 0; n < Bc / 8; ++n)
      for (int k = 0; k < d / 16; ++k) {
        const half* key = &k_tile[8 * n + g][16 * k + 2 * t];
        mma(s[n], q[k], pair(key), pair(key + 8));
      }
    // [/doc: flash_scores]

    // [doc: flash_softmax]
    for (int r = 0; r < 2; ++r) {  // rows g and g + 8: four lanes have the scores of a row
      float m_new = m[r];
      for (int n = 0; n < Bc / 8; ++n) m_new = fmaxf(m_new, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
      for (int other = 1; other <= 2; other *= 2) m_new = fmaxf(m_new, __shfl_xor_sync(~0u, m_new, other));
      const float factor = exp2f(scale * (m[r] - m_new));
      m[r] = m_new;
      l[r] *= factor;
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        for (int n = 0; n < d / 8; ++n) acc[n][i] *= factor;
        for (int n = 0; n < Bc / 8; ++n) {
          s[n][i] = exp2f(scale * (s[n][i] - m_new));  // P, at most 1, takes the place of S
          l[r] += s[n][i];                             // of this lane's keys; the other three lanes come at the end
        }
      }
    }
    // [/doc: flash_softmax]

    // [doc: flash_values]
    // O += P V: what a lane has of S as C is what it needs of P as A
    for (int k = 0; k < Bc / 16; ++k) {
      half2 p[4];
      for (int i = 0; i < 4; ++i) p[i] = __floats2half2_rn(s[2 * k + i / 2][i % 2 * 2], s[2 * k + i / 2][i % 2 * 2 + 1]);
      for (int n = 0; n < d / 8; ++n) {
        const half* v = &v_tile[16 * k + 2 * t][8 * n + g];
        mma(acc[n], p, column_pair(v), column_pair(v + 8 * pitch));
      }
    }
  }
  for (int r = 0; r < 2; ++r) {
    for (int other = 1; other <= 2; other *= 2) l[r] += __shfl_xor_sync(~0u, l[r], other);
    for (int n = 0; n < d / 8; ++n) {
      half* o = &O[(row + 8 * r) * d + 8 * n + 2 * t];
      *reinterpret_cast<half2*>(o) = __floats2half2_rn(acc[n][2 * r] / l[r], acc[n][2 * r + 1] / l[r]);
    }
    if (t == 0) LSE[row + 8 * r] = (scale * m[r] + log2f(l[r])) / log2e;
  }
  // [/doc: flash_values]
}

// ---- the host's side ----

// Every call of CUDA's runtime can fail, and says so by its result alone.
void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(3);
}

// Normally distributed numbers that fp16 can hold.
std::vector<half> random_numbers(size_t count, float deviation, unsigned seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<half> numbers(count);
  for (half& x : numbers) x = __float2half(normal(bits));
  return numbers;
}

// Attention of one query in double precision; returns the query's LSE.
double attention(const half* q, const half* K, const half* V, int keys, double (&o)[d]) {
  std::vector<double> s(keys);
  for (int j = 0; j < keys; ++j) {
    for (int c = 0; c < d; ++c) s[j] += double(__half2float(q[c])) * __half2float(K[size_t(j) * d + c]);
    s[j] /= std::sqrt(d);
  }
  const double m = *std::max_element(s.begin(), s.end());
  double l = 0;
  std::fill(o, o + d, 0);
  for (int j = 0; j < keys; ++j) {
    const double p = std::exp(s[j] - m);
    l += p;
    for (int c = 0; c < d; ++c) o[c] += p * __half2float(V[size_t(j) * d + c]);
  }
  for (double& x : o) x /= l;
  return m + std::log(l);
}

int argument(const char* text, const char* name, int least, int multiple_of) {
  char* end;
  const long value = std::strtol(text, &end, 10);
  if (end != text && *end == '\0' && value >= least && value <= 10'000'000 && value % multiple_of == 0) return int(value);
  std::fprintf(stderr, "%s is '%s'; it must be a whole number from %d to 10000000", name, text, least);
  std::fprintf(stderr, multiple_of > 1 ? ", and a multiple of %d\n" : "\n", multiple_of);
  std::exit(2);
}

int main(int argc, char** argv) {
  if (argc != 1 && argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: %s [HEADS QUERIES KEYS [LAUNCHES]]\n", argv[0]);
    return 2;
  }
  const int heads = argc > 1 ? argument(argv[1], "HEADS", 1, 1) : 2;
  const int queries = argc > 1 ? argument(argv[2], "QUERIES", Br, Br) : 128;
  const int keys = argc > 1 ? argument(argv[3], "KEYS", Bc, Bc) : 192;
  const int launches = argc > 4 ? argument(argv[4], "LAUNCHES", 1, 1) : 0;
  if (heads > 65'535 || double(heads) * std::max(queries, keys) > 10'000'000) {
    std::fprintf(stderr, "HEADS must be at most 65535, and HEADS x QUERIES and HEADS x KEYS at most 10000000\n");
    return 2;
  }
  const size_t rows = size_t(heads) * queries, of_queries = rows * d, of_keys = size_t(heads) * keys * d;
  const std::vector<half> q = random_numbers(of_queries, 2, 1), k = random_numbers(of_keys, 2, 2),
                          v = random_numbers(of_keys, 1, 3);
  half *Q, *K, *V, *O;
  float* LSE;
  check(cudaMalloc(&Q, of_queries * sizeof(half)), "cudaMalloc");
  check(cudaMalloc(&K, of_keys * sizeof(half)), "cudaMalloc");
  check(cudaMalloc(&V, of_keys * sizeof(half)), "cudaMalloc");
  check(cudaMalloc(&O, of_queries * sizeof(half)), "cudaMalloc");
  check(cudaMalloc(&LSE, rows * sizeof(float)), "cudaMalloc");
  check(cudaMemcpy(Q, q.data(), of_queries * sizeof(half), cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaMemcpy(K, k.data(), of_keys * sizeof(half), cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaMemcpy(V, v.data(), of_keys * sizeof(half), cudaMemcpyHostToDevice), "cudaMemcpy");

  const dim3 grid(queries / Br, heads);
  flash<<<grid, threads>>>(Q, K, V, O, LSE, queries, keys);
  check(cudaGetLastError(), "flash");
  std::vector<half> o(of_queries);
  std::vector<float> lse(rows);
  check(cudaMemcpy(o.data(), O, of_queries * sizeof(half), cudaMemcpyDeviceToHost), "cudaMemcpy");
  check(cudaMemcpy(lse.data(), LSE, rows * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");

  if (launches > 0) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; ++i) flash<<<grid, threads>>>(Q, K, V, O, LSE, queries, keys);
    check(cudaGetLastError(), "flash");
    check(cudaDeviceSynchronize(), "flash");
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / launches;
    std::printf("%.3f ms for a launch: %.1f TFLOP/s\n", 1e3 * seconds, 4e-12 * rows * keys * d / seconds);
  }
  check(cudaFree(Q), "cudaFree");
  check(cudaFree(K), "cudaFree");
  check(cudaFree(V), "cudaFree");
  check(cudaFree(O), "cudaFree");
  check(cudaFree(LSE), "cudaFree");

  // Every row, or every n-th of many. n is odd, so that all places in a tile have their turn.
  const size_t step = rows * keys / 10'000'000 | 1;
  int checked = 0, wrong = 0;
  double worst = 0;
  for (size_t i = 0; i < rows; i += step) {
    const size_t head = i / queries * keys * d;
    double truth[d], size = 0, off = 0;
    const double lse_truth = attention(&q[i * d], &k[head], &v[head], keys, truth);
    for (int c = 0; c < d; ++c) {
      size += truth[c] * truth[c];
      const double difference = __half2float(o[i * d + c]) - truth[c];
      off += difference * difference;
    }
    const double error = std::sqrt(off / size), lse_error = std::fabs(lse[i] - lse_truth) / (1 + std::fabs(lse_truth));
    wrong += !(error <= 2e-3 && lse_error <= 1e-5);
    worst = std::max(worst, error);
    ++checked;
  }
  std::printf("%d heads, %d queries, %d keys: %d of %zu rows checked, %d wrong, largest error of a row %.2g of its length\n",
              heads, queries, keys, checked, rows, wrong, worst);
  return wrong == 0 ? 0 : 1;
}
