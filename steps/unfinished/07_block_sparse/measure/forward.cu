// Times the forward kernels and the plan beside step 05's, in turns; ../README.md has the command.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "common/problem/attention.h"
#include "steps/07_block_sparse/07_balanced.cuh"
#include "steps/07_block_sparse/lists.cuh"
#include "steps/07_block_sparse/order.cuh"
using namespace block_sparse;
#define CK(x)                                             \
  do {                                                    \
    auto e = (x);                                         \
    if (e != cudaSuccess) {                               \
      printf("%s %d\n", cudaGetErrorString(e), __LINE__); \
      exit(1);                                            \
    }                                                     \
  } while (0)
constexpr int D = DIM;
struct Tile : TunedTile<D> {
  using Shape = AttentionShape;
};
template <class F>
float timeit(F f) {
  cudaEvent_t a, b;
  cudaEventCreate(&a);
  cudaEventCreate(&b);
  for (int i = 0; i < 2; i++) f();
  std::vector<float> t;
  for (int i = 0; i < 9; i++) {
    cudaEventRecord(a);
    f();
    cudaEventRecord(b);
    cudaEventSynchronize(b);
    float ms;
    cudaEventElapsedTime(&ms, a, b);
    t.push_back(ms);
  }
  std::sort(t.begin(), t.end());
  CK(cudaGetLastError());
  return t[4];
}
template <class T>
T* alloc(size_t n) {
  T* p;
  CK(cudaMalloc(&p, sizeof(T) * n));
  return p;
}
template <class T>
T* up(const void* d, size_t bytes) {
  char* p;
  CK(cudaMalloc(&p, bytes + 16));
  CK(cudaMemcpy(p, d, bytes, cudaMemcpyHostToDevice));
  return (T*)p;
}
int main() {
  const int S = 16384, H = 2048 / D;
  const size_t n = (size_t)H * S * D;
  auto *q = alloc<__half>(n), *k = alloc<__half>(n), *v = alloc<__half>(n), *o = alloc<__half>(n), *o2 = alloc<__half>(n);
  auto* lse = alloc<float>((size_t)H * S);
  std::mt19937 g(1);
  std::normal_distribution<float> N;
  std::vector<__half> h(n);
  for (auto* p : {q, k, v}) {
    for (size_t i = 0; i < n; i++) h[i] = __float2half(N(g));
    CK(cudaMemcpy(p, h.data(), 2 * n, cudaMemcpyHostToDevice));
  }
  const size_t smem = sizeof(SparseSmem<__half, Tile>), smemd = sizeof(TunedSmem<__half, Tile>);
  auto kd = flash_v2::flash_tuned<__half, TunedTile<D>>;
  auto ks = sparse_balanced<__half, Tile>;
  CK(cudaFuncSetAttribute(kd, cudaFuncAttributeMaxDynamicSharedMemorySize, smemd));
  CK(cudaFuncSetAttribute(ks, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
  Heads<const __half> Q{q, 0, (long)S * D, D}, K{k, 0, (long)S * D, D}, V{v, 0, (long)S * D, D};
  Heads<__half> O{o, 0, (long)S * D, D}, O2{o2, 0, (long)S * D, D};
  const int QT = S / 128, R = H * QT;
  for (int causal = 0; causal < 2; causal++) {
    AttentionShape sh{1, H, H, S, S, D, (bool)causal, 1.0f / sqrtf(D), 0};
    problem::Attention pa;
    pa.heads = pa.kv_heads = H;
    pa.seq_q = pa.seq_k = S;
    pa.dim = D;
    pa.causal = causal;
    pa.dtype = problem::Dtype::fp16;
    pa = problem::resolve(pa);
    auto fd = [&] { kd<<<dim3(QT, H, 1), 128, smemd>>>(sh, Q, K, V, O, lse); };
    float dense = timeit(fd);
    printf("d%d causal%d dense %.3f ms %.0f TF\n", D, causal, dense, 4.0 * D * H * (double)S * S / (1 + causal) / dense / 1e9);
    for (const char* pat : {"random:1", "random:0.25", "random:0.1", "full-row:0.1"})
      for (int splits = 0; splits < 2; splits++) {
        auto m = problem::make_pattern(pat, pa, 128, 128, 3);
        Mask mask{up<int>(m->types.data(), 4 * m->types.size()),
                  up<int>(m->streaming.data(), 8 * m->streaming.size()),
                  m->live.empty() ? nullptr : up<int>(m->live.data(), 4 * m->live.size()),
                  1,
                  128,
                  128,
                  QT,
                  problem::words_of_row(*m, pa)};
        PlanSizes sz{QT, R, 128, 64, false, R + (splits ? R / 4 : 0), TOGETHER, (bool)splits};
        auto* lists = alloc<TileList>(R);
        auto* ranks = alloc<Rank>(R);
        auto* work = alloc<WorkItem>(sz.items);
        auto* tiles = alloc<int>((size_t)R * (S / 64));
        auto* w = alloc<HeadOrder>(H);
        auto* sr = alloc<int>(R);
        Parts<> parts{alloc<float>((size_t)R / 2 * 128 * D), alloc<SoftmaxState>((size_t)R / 2 * 128)};
        auto plan = [&] {
          count_tiles<QueryRow, AttentionShape><<<R / 8, 256>>>(sh, mask, sz, lists);
          add_up<1024><<<1, 1024, sizeof(AddUpSmem)>>>(sz, H, lists, w, ranks, sr);
          write_lists<QueryRow, AttentionShape><<<R / 8, 256>>>(sh, mask, sz, lists, tiles);
          order_work<order_threads>
              <<<dim3(QT / order_rows, H), order_threads, sizeof(OrderSmem)>>>(sz, H, tiles, lists, ranks, w, work);
        };
        auto main_ = [&] {
          ks<<<sz.items, 128, smem>>>(sh, mask, Plan{tiles, lists, work}, Q, K, V, O2, lse, parts);
          if (splits) merge_parts<__half, Tile><<<sz.most_splits(), 32 * merge_warps>>>(sh, sz, sr, ranks, parts, O2, lse);
        };
        float tk[4];
        tk[0] = timeit([&] { count_tiles<QueryRow, AttentionShape><<<R / 8, 256>>>(sh, mask, sz, lists); });
        tk[1] = timeit([&] { add_up<1024><<<1, 1024, sizeof(AddUpSmem)>>>(sz, H, lists, w, ranks, sr); });
        tk[2] = timeit([&] { write_lists<QueryRow, AttentionShape><<<R / 8, 256>>>(sh, mask, sz, lists, tiles); });
        tk[3] = timeit([&] {
          order_work<order_threads>
              <<<dim3(QT / order_rows, H), order_threads, sizeof(OrderSmem)>>>(sz, H, tiles, lists, ranks, w, work);
        });
        cudaEvent_t e0, e1;
        cudaEventCreate(&e0);
        cudaEventCreate(&e1);
        std::vector<float> rr, rt;
        for (int i = 0; i < 8; i++) {
          float x, y;
          cudaEventRecord(e0);
          fd();
          cudaEventRecord(e1);
          cudaEventSynchronize(e1);
          cudaEventElapsedTime(&x, e0, e1);
          cudaEventRecord(e0);
          plan();
          main_();
          cudaEventRecord(e1);
          cudaEventSynchronize(e1);
          cudaEventElapsedTime(&y, e0, e1);
          rr.push_back(y / x);
          rt.push_back(y);
        }
        std::sort(rr.begin(), rr.end());
        std::sort(rt.begin(), rt.end());
        float tp = timeit(plan), tm = timeit(main_), t = timeit([&] {
                                                       plan();
                                                       main_();
                                                     }),
              again = (rr[3] + rr[4]) / 2;
        std::vector<TileList> L(R);
        CK(cudaMemcpy(L.data(), lists, 16 * R, cudaMemcpyDeviceToHost));
        long tot = 0;
        for (auto& l : L) tot += l.count();
        double pr = (double)tot / ((double)H * (causal ? QT * (QT + 1.0) : 2.0 * QT * QT));
        double live = pa.flops();
        pa.sparse = m;
        live = pa.flops() / live;
        pa.sparse = nullptr;
        printf(
            "  %-24s split%d p %.3f (pairs %.3f) plan %.1f us (%.1f %.1f %.1f %.1f) main %.3f ms, all %.3f ms ratio %.4f "
            "(p%+.4f) eff %.0f TF interleaved ratio %.4f (p%+.4f)",
            pat, splits, pr, live, tp * 1e3, tk[0] * 1e3, tk[1] * 1e3, tk[2] * 1e3, tk[3] * 1e3, tm, t, t / dense,
            t / dense - pr, 4.0 * D * H * (double)S * S / (1 + causal) * live / t / 1e9, again, again - pr);
        if (!strcmp(pat, "random:1")) {
          std::vector<__half> x(n), y(n);
          CK(cudaMemcpy(x.data(), o, 2 * n, cudaMemcpyDeviceToHost));
          CK(cudaMemcpy(y.data(), o2, 2 * n, cudaMemcpyDeviceToHost));
          printf(" bits %s", memcmp(x.data(), y.data(), 2 * n) ? "DIFFER" : "same");
        }
        printf("\n");
        cudaFree(parts.o);
        cudaFree(parts.states);
      }
  }
}
