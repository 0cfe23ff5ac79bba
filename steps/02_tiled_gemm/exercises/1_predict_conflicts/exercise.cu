// Exercise 1 of step 02: what its answers are counted with. A matrix product whose rows in shared memory are as long as asked.
#include "../exercise.h"

namespace exercise {

using namespace tiled_gemm;

constexpr int tile = 16;  // rows, columns and step along k
constexpr int largest_stride = 272;

struct Rows {
  int stride;  // bytes from one row to the next
  int places;  // chunk c of row r lies at place c ^ r % places; 1: nothing moves
};

struct Smem {
  alignas(16) __half a[tile * largest_stride / 2];
  alignas(16) __half b[tile * largest_stride / 2];
};

// Grid: x over tiles of C, y over the batch. One warp. k is a multiple of 8, and so are the row strides of A and B.
__global__ void gemm(Shape shape,
                     Matrix<const __half> a,  // [batch, m, k]
                     Matrix<const __half> b,  // [batch, n, k]
                     Matrix<__half> c,        // [batch, m, n]
                     Rows rows) {
  auto& smem = device::shared_storage<Smem>();
  const TileOrigin origin = tile_origin(shape, tile, tile);
  const int batch = blockIdx.y;
  const int lane = threadIdx.x;
  const auto place = [&](int row, int index) { return (row * rows.stride + (index ^ row % rows.places) * 16) / 2; };

  float acc[2][4] = {};
  for (int first = 0; first < shape.k; first += tile) {
    const int row = lane / 2, index = lane % 2, t = first + index * chunk;
    store(reinterpret_cast<uint4*>(&smem.a[place(row, index)]), chunk_or_zero(a, batch, origin.row + row, t, shape.m, shape.k));
    store(reinterpret_cast<uint4*>(&smem.b[place(row, index)]),
          chunk_or_zero(b, batch, origin.column + row, t, shape.n, shape.k));
    __syncwarp();  // both tiles are written before any lane reads them
    std::uint32_t a_frag[4], b_frag[4];
    ptx::ldmatrix_x4(a_frag, &smem.a[place(lane % 16, lane / 16)]);
    ptx::ldmatrix_x4(b_frag, &smem.b[place(lane / 16 * 8 + lane % 8, lane / 8 % 2)]);
    for (int q = 0; q < 2; ++q) ptx::mma_m16n8k16<__half>(acc[q], a_frag, {b_frag[2 * q], b_frag[2 * q + 1]});
    __syncwarp();  // every lane has its fragments before the next tiles overwrite them
  }
  for (int q = 0; q < 2; ++q) {
    for (int e = 0; e < 4; ++e) {  // element e of a fragment of C: row g + 8 (e / 2), column 2t + e % 2
      const int i = origin.row + lane / 4 + e / 2 * 8;
      const int j = origin.column + 8 * q + lane % 4 * 2 + e % 2;
      if (i < shape.m && j < shape.n) store(&c.row(batch, i)[j], __float2half(acc[q][e]));
    }
  }
}

run::GemmVariant variant(const std::string& name, Rows rows) {
  return exercise_variant(
      name, "rows of " + std::to_string(rows.stride) + " bytes", sizeof(Smem),
      [rows](const run::GemmLaunch& l) { launch_tiles<__half>(l, gemm, tile, tile, 32, sizeof(Smem), rows); });
}

}  // namespace exercise

run::AnyStep run::this_step() {
  static const GemmStep step = [] {
    std::vector<GemmVariant> variants;
    for (int stride = 32; stride <= exercise::largest_stride; stride += 16) {
      variants.push_back(exercise::variant("stride_" + std::to_string(stride), {stride, 1}));
    }
    variants.push_back(exercise::variant("swizzled_64", {64, 4}));
    variants.push_back(exercise::variant("half_swizzled_128", {128, 4}));
    variants.push_back(exercise::variant("swizzled_128", {128, 8}));
    return tiled_gemm::exercise_step("exercise_02_1", "How many wavefronts does an ldmatrix take?", 16, 16, 16, variants);
  }();
  return &step;
}
