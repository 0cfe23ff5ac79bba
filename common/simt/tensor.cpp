// ldmatrix and stmatrix: what the lanes of a warp do as one. Layouts are those of the PTX ISA; with lane l, g = l / 4,
// t = l % 4.
#include <array>
#include <cstring>

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

// Whole rows are looked at first: a lane's part of a row only where that does not do. True for the rows whose parts must be.
template <class Call>
std::array<bool, warp_size> touch_rows(Block& block, const Warp& warp, WarpCall* const calls[warp_size], Kind kind) {
  const auto call = [&](int lane) -> Call& { return *static_cast<Call*>(calls[lane]); };
  std::array<bool, warp_size> by_part = {};
  if (!block.run().races) return by_part;
  const Call& all = call(0);
  const SharedArena& arena = block.arena();
  const std::uint8_t wrong = kind == Kind::read ? being_written : being_read | being_written;
  for (int row = 0; row < 8 * all.matrices; ++row) {
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(call(row).row) - arena.begin();
    const int first = all.transposed ? row % 8 / 2 : 4 * (row % 8);  // of the lanes that have a part
    const SharedRaces::Who who{static_cast<std::uint16_t>(warp.lanes[first].index), all.aligned_at};
    const bool inside = offset < arena.bytes() && offset + 16 <= arena.bytes() && offset % 16 == 0;
    by_part[static_cast<std::size_t>(row)] =
        !inside || !all_marked(block.arena().shadow(arena.begin() + offset), 16, 0, wrong) ||
        !block.races().touch_row(block.order(), who, offset, kind, all.transposed ? Halves::of_columns : Halves::of_pairs);
  }
  return by_part;
}

void resolve_matrix_load(Block& block, Warp& warp, WarpCall* const calls[warp_size]) {
  const auto call = [&](int lane) -> MatrixLoad& { return *static_cast<MatrixLoad*>(calls[lane]); };
  const std::array<bool, warp_size> by_part = touch_rows<MatrixLoad>(block, warp, calls, Kind::read);
  for (int lane = 0; lane < warp_size; ++lane) {
    const int g = lane / 4, t = lane % 4;
    const MatrixLoad& mine = call(lane);
    // The reader, to whom the bytes must be visible, is the lane that gets them, whoever gave the row's address.
    const auto read = [&](int row, int at, void* to, std::uint32_t bytes) {
      const std::uint8_t* const from = call(row).row + at;
      if (by_part[static_cast<std::size_t>(row)]) [[unlikely]] {
        observe_matrix_part(warp.lanes[lane],
                            {reinterpret_cast<std::uintptr_t>(from), bytes, Kind::read, false, mine.aligned_at});
      }
      std::memcpy(to, from, bytes);
    };
    for (int m = 0; m < mine.matrices; ++m) {
      if (mine.transposed) {  // elements [2t][g] and [2t + 1][g]
        std::uint16_t halves[2];
        for (int i = 0; i < 2; ++i) read(8 * m + 2 * t + i, 2 * g, &halves[i], 2);
        std::memcpy(&mine.registers[m], halves, 4);
      } else {  // elements [g][2t] and [g][2t + 1]
        read(8 * m + g, 4 * t, &mine.registers[m], 4);
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
  const std::array<bool, warp_size> by_part = touch_rows<MatrixStore>(block, warp, calls, Kind::write);
  for (int lane = 0; lane < 8 * call(0).matrices; ++lane) {
    observe_matrix_row_stored(warp.lanes[lane], reinterpret_cast<std::uintptr_t>(call(lane).row));
  }
  for (int lane = 0; lane < warp_size; ++lane) {
    const int g = lane / 4, t = lane % 4;
    const MatrixStore& mine = call(lane);
    // The writer, from whom others must wait for the bytes, is the lane whose register holds them.
    const auto write = [&](int row, int at, const void* from, std::uint32_t bytes) {
      std::uint8_t* const to = call(row).row + at;
      if (by_part[static_cast<std::size_t>(row)]) [[unlikely]] {
        observe_matrix_part(warp.lanes[lane],
                            {reinterpret_cast<std::uintptr_t>(to), bytes, Kind::write, false, mine.aligned_at});
      } else {
        note_generic_store(warp.lanes[lane],
                           {reinterpret_cast<std::uintptr_t>(to), bytes, Kind::write, false, mine.aligned_at});
      }
      std::memcpy(to, from, bytes);
    };
    for (int m = 0; m < mine.matrices; ++m) {
      if (mine.transposed) {  // elements [2t][g] and [2t + 1][g]
        std::uint16_t halves[2];
        std::memcpy(halves, &mine.registers[m], 4);
        for (int i = 0; i < 2; ++i) write(8 * m + 2 * t + i, 2 * g, &halves[i], 2);
      } else {  // elements [g][2t] and [g][2t + 1]
        write(8 * m + g, 4 * t, &mine.registers[m], 4);
      }
    }
  }
  count_rows<MatrixStore>(block, warp, calls, Kind::write);
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

}  // namespace simt
