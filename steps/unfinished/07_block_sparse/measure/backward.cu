// Times the backward kernels beside step 06's, in turns; ../README.md has the command.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "common/problem/attention.h"
#include "steps/06_backward/05_fragment_order.cuh"
#include "steps/07_block_sparse/08_backward_64.cuh"
#include "steps/07_block_sparse/09_backward_128.cuh"
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
template <int dim>
struct Kernels {  // dims 32 and 64
  static constexpr auto dense = backward_tuned_64<__half, dim>;
  static constexpr auto sparse = sparse_backward_64<__half, dim>;
  static constexpr size_t shared_bytes = sizeof(Keys32Smem<__half, dim>);
  static constexpr int threads = backward::tile_threads;
};
template <int dim>
requires(dim > 64) struct Kernels<dim> {
  static constexpr auto dense = backward_tuned_128<__half, dim>;
  static constexpr auto sparse = sparse_backward_128<__half, dim>;
  static constexpr size_t shared_bytes = sizeof(RolesSmem<__half, dim>);
  static constexpr int threads = role_threads;
};
constexpr size_t SM = Kernels<D>::shared_bytes;
constexpr int TH = Kernels<D>::threads;
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
  auto *q = alloc<__half>(n), *k = alloc<__half>(n), *v = alloc<__half>(n), *d_o = alloc<__half>(n), *o = alloc<__half>(n),
       *dk = alloc<__half>(n), *dv = alloc<__half>(n), *dk2 = alloc<__half>(n), *dv2 = alloc<__half>(n), *dq = alloc<__half>(n);
  auto *lse = alloc<float>((size_t)H * S), *l2 = alloc<float>((size_t)H * S), *md = alloc<float>((size_t)H * S),
       *sums = alloc<float>(n), *flag = alloc<float>(H);
  std::mt19937 g(1);
  std::normal_distribution<float> N;
  std::vector<__half> h(n);
  for (auto* p : {q, k, v, d_o, o}) {
    for (size_t i = 0; i < n; i++) h[i] = __float2half(N(g));
    CK(cudaMemcpy(p, h.data(), 2 * n, cudaMemcpyHostToDevice));
  }
  std::vector<float> L((size_t)H * S, 10.2f);
  CK(cudaMemcpy(lse, L.data(), 4 * L.size(), cudaMemcpyHostToDevice));
  auto kd = Kernels<D>::dense;
  auto ks = Kernels<D>::sparse;
  CK(cudaFuncSetAttribute(kd, cudaFuncAttributeMaxDynamicSharedMemorySize, SM));
  CK(cudaFuncSetAttribute(ks, cudaFuncAttributeMaxDynamicSharedMemorySize, SM));
  auto hv = [&](auto* p) { return Heads<std::remove_pointer_t<decltype(p)>>{p, 0, (long)S * D, D}; };
  auto hc = [&](const __half* p) { return Heads<const __half>{p, 0, (long)S * D, D}; };
  RowStatistics st{l2, md, S, flag};
  for (int causal = 0; causal < 2; causal++) {
    AttentionShape sh{1, H, H, S, S, D, (bool)causal, 1.0f / sqrtf(D), 0};
    problem::Attention pa;
    pa.heads = pa.kv_heads = H;
    pa.seq_q = pa.seq_k = S;
    pa.dim = D;
    pa.causal = causal;
    pa.dtype = problem::Dtype::fp16;
    pa = problem::resolve(pa);
    auto pre = [&] {
      prepare_chunks<__half, (D <= 64 ? 8 : 16)>
          <<<dim3(S / (256 / (D <= 64 ? 8 : 16)), H), 256>>>(sh, hc(o), hc(d_o), lse, st, sums);
    };
    auto post = [&] { convert_blocks<__half><<<dim3((S * (D / 16) + 255) / 256, H), 256>>>(sh, sums, st, hv(dq)); };
    auto dense = [&] {
      pre();
      kd<<<dim3(S / 128, H, 1), TH, SM>>>(sh, hc(q), hc(k), hc(v), hc(d_o), st, sums, hv(dk), hv(dv));
      post();
    };
    for (const char* pat : {"random:1", "random:0.25", "random:0.1"}) {
      auto m = problem::make_pattern(pat, pa, 128, 128, 3);
      const int KB = S / 128, QT = S / 64;
      std::vector<int> ent;
      std::vector<WorkItem> items;
      std::vector<long> w(H);
      for (int hd = 0; hd < H; hd++)
        for (int kb = 0; kb < KB; kb++) {
          WorkItem it{(int)ent.size(), 0, 0, 0, hd, kb * 128, -1, -1};
          std::vector<int> full;
          for (int qb = 0; qb < KB; qb++) {
            if (causal && qb < kb) continue;
            if (!problem::is_live(*m, pa, 0, hd, qb, kb)) continue;
            for (int t = 2 * qb; t < 2 * qb + 2; t++) {
              if (causal && qb == kb) {
                ent.push_back(t << 2);
                it.right++;
              } else
                full.push_back(t << 2);
            }
          }
          it.full = full.size();
          ent.insert(ent.end(), full.begin(), full.end());
          it.entry = ent[it.first];
          items.push_back(it);
          w[hd] += it.full + it.right;
        }
      std::vector<int> ho(H);
      for (int i = 0; i < H; i++) ho[i] = i;
      std::stable_sort(ho.begin(), ho.end(), [&](int a, int b) { return w[a] > w[b]; });
      std::vector<int> place(H);
      for (int i = 0; i < H; i++) place[ho[i]] = std::min(i, std::max(0, H - TOGETHER));
      std::stable_sort(items.begin(), items.end(), [&](const WorkItem& a, const WorkItem& b) {
        if (place[a.head] != place[b.head]) return place[a.head] < place[b.head];
        return a.right + a.full > b.right + b.full;
      });
      long tot = ent.size();
      double pr = (double)tot / ((double)H * (causal ? KB * (KB + 1.0) : 2.0 * KB * KB));
      double live = pa.flops();
      pa.sparse = m;
      live = pa.flops() / live;
      pa.sparse = nullptr;
      Mask mask{up<int>(m->types.data(), 4 * m->types.size()),
                up<int>(m->streaming.data(), 8 * m->streaming.size()),
                nullptr,
                1,
                128,
                128,
                KB,
                4};
      KeyPlan plan{up<int>(ent.data(), 4 * ent.size()), up<WorkItem>(items.data(), sizeof(WorkItem) * items.size()), QT};
      auto sparse = [&] {
        pre();
        ks<<<items.size(), TH, SM>>>(sh, mask, plan, hc(q), hc(k), hc(v), hc(d_o), st, sums, hv(dk2), hv(dv2));
        post();
      };
      cudaEvent_t e0, e1;
      cudaEventCreate(&e0);
      cudaEventCreate(&e1);
      std::vector<float> rr, rt, rd;
      for (int i = 0; i < 7; i++) {
        float x, y;
        cudaEventRecord(e0);
        dense();
        cudaEventRecord(e1);
        cudaEventSynchronize(e1);
        cudaEventElapsedTime(&x, e0, e1);
        cudaEventRecord(e0);
        sparse();
        cudaEventRecord(e1);
        cudaEventSynchronize(e1);
        cudaEventElapsedTime(&y, e0, e1);
        rr.push_back(y / x);
        rt.push_back(y);
        rd.push_back(x);
      }
      std::sort(rr.begin(), rr.end());
      std::sort(rt.begin(), rt.end());
      std::sort(rd.begin(), rd.end());
      CK(cudaGetLastError());
      double F = 10.0 * D * H * (double)S * S / (1 + causal);
      printf("d%d causal%d %-12s p %.3f dense %.3f ms %.0f TF sparse %.3f ms ratio %.4f (p%+.4f) eff %.0f TF", D, causal, pat,
             pr, rd[3], F / rd[3] / 1e9, rt[3], rr[3], rr[3] - pr, F * live / rt[3] / 1e9);
      if (!strcmp(pat, "random:1")) {
        std::vector<__half> x(n), y(n);
        CK(cudaMemcpy(x.data(), dk, 2 * n, cudaMemcpyDeviceToHost));
        CK(cudaMemcpy(y.data(), dk2, 2 * n, cudaMemcpyDeviceToHost));
        double md_ = 0;
        for (size_t i = 0; i < n; i++) md_ = std::max<double>(md_, fabs(__half2float(x[i]) - __half2float(y[i])));
        printf(" max diff dK %.5f", md_);
      }
      printf("\n");
    }
  }
}
