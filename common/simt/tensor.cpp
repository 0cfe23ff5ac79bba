// ldmatrix, stmatrix and mma.sync: what the lanes of a warp do as one. Layouts are those of the PTX ISA; with lane l, g = l /
// 4, t = l % 4.
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "common/simt/access.h"
#include "common/simt/collectives.h"
#include "common/simt/cuda.h"

namespace simt {
namespace {

constexpr std::uint32_t full_warp = 0xffffffffu;

// Operands are registers, but a kernel may give an array that lies in memory: nvcc then loads or stores it, and so it counts.
void observe_operand(Lane& lane, const void* operand, std::uint32_t bytes, Kind kind, const void* pc) {
  observe(lane, {reinterpret_cast<std::uintptr_t>(operand), bytes, kind, false, pc});
}

// ---- ldmatrix and stmatrix: matrices of 8 × 8 elements of 16 bits ----

template <class Call>
void count_rows(Block& block, const Warp& warp, WarpCall* const calls[warp_size], Kind kind) {
  if (!block.run().counting) return;
  const auto call = [&](std::size_t lane) -> Call& { return *static_cast<Call*>(calls[lane]); };
  const auto count = 8 * static_cast<std::size_t>(call(0).matrices);
  std::array<std::uintptr_t, warp_size> rows;
  for (std::size_t i = 0; i < count; ++i) rows[i] = reinterpret_cast<std::uintptr_t>(call(i).row);
  const Wavefronts wavefronts = block.counters().matrices(call(0).aligned_at, kind, {rows.data(), count});
  if (warp.trace != nullptr) warp.trace->matrix_rows(block, {rows.data(), count}, wavefronts);
}

struct MatrixLoad : WarpCall {
  const std::uint8_t* row;  // of matrix m, row r, given by lane 8 m + r
  int matrices;
  bool transposed;
  std::uint32_t* registers;  // [matrices]
};

void resolve_matrix_load(Block& block, Warp& warp, WarpCall* const calls[warp_size]) {
  const auto call = [&](int lane) -> MatrixLoad& { return *static_cast<MatrixLoad*>(calls[lane]); };
  const bool races = block.run().races;
  for (int lane = 0; lane < warp_size; ++lane) {
    const int g = lane / 4, t = lane % 4;
    const MatrixLoad& mine = call(lane);
    // The reader, to whom the bytes must be visible, is the lane that gets them, whoever gave the row's address.
    const auto read = [&](const std::uint8_t* from, void* to, std::uint32_t bytes) {
      if (races) {
        observe_matrix_part(warp.lanes[lane],
                            {reinterpret_cast<std::uintptr_t>(from), bytes, Kind::read, false, mine.aligned_at});
      }
      std::memcpy(to, from, bytes);
    };
    for (int m = 0; m < mine.matrices; ++m) {
      if (mine.transposed) {  // elements [2t][g] and [2t + 1][g]
        std::uint16_t halves[2];
        for (int i = 0; i < 2; ++i) read(call(8 * m + 2 * t + i).row + 2 * g, &halves[i], 2);
        std::memcpy(&mine.registers[m], halves, 4);
      } else {  // elements [g][2t] and [g][2t + 1]
        read(call(8 * m + g).row + 4 * t, &mine.registers[m], 4);
      }
    }
  }
  count_rows<MatrixLoad>(block, warp, calls, Kind::read);
}

struct MatrixStore : WarpCall {
  std::uint8_t* row;  // of matrix m, row r, given by lane 8 m + r
  int matrices;
  bool transposed;
  const std::uint32_t* registers;  // [matrices]
};

void resolve_matrix_store(Block& block, Warp& warp, WarpCall* const calls[warp_size]) {
  const auto call = [&](int lane) -> MatrixStore& { return *static_cast<MatrixStore*>(calls[lane]); };
  const bool races = block.run().races;
  for (int lane = 0; lane < 8 * call(0).matrices; ++lane) {
    observe_matrix_row_stored(warp.lanes[lane], reinterpret_cast<std::uintptr_t>(call(lane).row));
  }
  for (int lane = 0; lane < warp_size; ++lane) {
    const int g = lane / 4, t = lane % 4;
    const MatrixStore& mine = call(lane);
    // The writer, from whom others must wait for the bytes, is the lane whose register holds them.
    const auto write = [&](std::uint8_t* to, const void* from, std::uint32_t bytes) {
      if (races) {
        observe_matrix_part(warp.lanes[lane],
                            {reinterpret_cast<std::uintptr_t>(to), bytes, Kind::write, false, mine.aligned_at});
      }
      std::memcpy(to, from, bytes);
    };
    for (int m = 0; m < mine.matrices; ++m) {
      if (mine.transposed) {  // elements [2t][g] and [2t + 1][g]
        std::uint16_t halves[2];
        std::memcpy(halves, &mine.registers[m], 4);
        for (int i = 0; i < 2; ++i) write(call(8 * m + 2 * t + i).row + 2 * g, &halves[i], 2);
      } else {  // elements [g][2t] and [g][2t + 1]
        write(call(8 * m + g).row + 4 * t, &mine.registers[m], 4);
      }
    }
  }
  count_rows<MatrixStore>(block, warp, calls, Kind::write);
}

// ---- mma.sync: D = A · B + C, with A [16, K] and B [K, 8] of 16-bit elements and C and D [16, 8] of fp32 ----

struct MatrixMultiply : WarpCall {
  int k;                   // 8 or 16
  bool bfloat;             // or half
  float* d;                // [4]
  const std::uint32_t* a;  // [k / 4]
  const std::uint32_t* b;  // [k / 8]
  const float* c;          // [4], the same as d or others
};

// Every half by its bits: converting one takes a dozen instructions, and an mma converts hundreds.
const float* all_halves() {
  static const std::vector<float> halves = [] {
    std::vector<float> all(65536);
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      const __half_raw raw{static_cast<unsigned short>(i)};
      all[i] = __half2float(__half(raw));
    }
    return all;
  }();
  return halves.data();
}

void resolve_multiply(Block& block, Warp&, WarpCall* const calls[warp_size]) {
  const auto call = [&](int lane) -> MatrixMultiply& { return *static_cast<MatrixMultiply*>(calls[lane]); };
  const int depth = call(0).k;
  const bool bfloat = call(0).bfloat;
  const float* const halves = all_halves();
  const auto value = [&](std::uint32_t bits) { return bfloat ? std::bit_cast<float>(bits << 16) : halves[bits & 0xffffu]; };
  float a[16][16], b[16][8], d[16][8];
  for (int lane = 0; lane < warp_size; ++lane) {
    const int g = lane / 4, t = lane % 4;
    const MatrixMultiply& mine = call(lane);
    for (int r = 0; r < depth / 4; ++r) {  // registers, of two elements in one row
      float* const to = &a[g + 8 * (r % 2)][2 * t + 8 * (r / 2)];
      to[0] = value(mine.a[r]);
      to[1] = value(mine.a[r] >> 16);
    }
    for (int r = 0; r < depth / 8; ++r) {  // of two elements in one column
      b[2 * t + 8 * r][g] = value(mine.b[r]);
      b[2 * t + 8 * r + 1][g] = value(mine.b[r] >> 16);
    }
    for (int i = 0; i < 4; ++i) d[g + 8 * (i / 2)][2 * t + i % 2] = mine.c[i];
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < depth; ++k) {
      for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < warp_size; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) call(lane).d[i] = d[g + 8 * (i / 2)][2 * t + i % 2];
  }
  block.counters().tensor_instruction();
}

}  // namespace

void ldmatrix(std::uint32_t* registers, const void* row, int matrices, bool transposed, const std::source_location& where) {
  const void* const pc = __builtin_return_address(0);
  static constexpr const char* names[2][3] = {{"ldmatrix.x1", "ldmatrix.x2", "ldmatrix.x4"},
                                              {"ldmatrix.x1.trans", "ldmatrix.x2.trans", "ldmatrix.x4.trans"}};
  Lane& lane = lane_or_die();
  if (lane.lane() < 8 * matrices) {
    observe_matrix_row(lane, {reinterpret_cast<std::uintptr_t>(row), 16, Kind::read, true, pc});
  }
  MatrixLoad call{{names[transposed][matrices / 2], full_warp, where, pc, resolve_matrix_load, pc},
                  static_cast<const std::uint8_t*>(row),
                  matrices,
                  transposed,
                  registers};
  meet(call);
  observe_operand(lane, registers, static_cast<std::uint32_t>(4 * matrices), Kind::write, pc);
}

void stmatrix(void* row, const std::uint32_t* registers, int matrices, bool transposed, const std::source_location& where) {
  const void* const pc = __builtin_return_address(0);
  static constexpr const char* names[2][3] = {{"stmatrix.x1", "stmatrix.x2", "stmatrix.x4"},
                                              {"stmatrix.x1.trans", "stmatrix.x2.trans", "stmatrix.x4.trans"}};
  Lane& lane = lane_or_die();
  observe_operand(lane, registers, static_cast<std::uint32_t>(4 * matrices), Kind::read, pc);
  if (lane.lane() < 8 * matrices) {
    observe_matrix_row(lane, {reinterpret_cast<std::uintptr_t>(row), 16, Kind::write, true, pc});
  }
  MatrixStore call{{names[transposed][matrices / 2], full_warp, where, pc, resolve_matrix_store, pc},
                   static_cast<std::uint8_t*>(row),
                   matrices,
                   transposed,
                   registers};
  meet(call);
}

void mma(float* d, const std::uint32_t* a, const std::uint32_t* b, const float* c, int k, bool bfloat,
         const std::source_location& where) {
  const void* const pc = __builtin_return_address(0);
  static constexpr const char* names[2][2] = {{"mma.m16n8k8.f16", "mma.m16n8k16.f16"},
                                              {"mma.m16n8k8.bf16", "mma.m16n8k16.bf16"}};
  Lane& lane = lane_or_die();
  observe_operand(lane, a, static_cast<std::uint32_t>(k), Kind::read, pc);
  observe_operand(lane, b, static_cast<std::uint32_t>(k / 2), Kind::read, pc);
  observe_operand(lane, c, 16, Kind::read, pc);
  MatrixMultiply call{{names[bfloat][k / 16], full_warp, where, pc, resolve_multiply, pc}, k, bfloat, d, a, b, c};
  meet(call);
  observe_operand(lane, d, 16, Kind::write, pc);
}

}  // namespace simt
