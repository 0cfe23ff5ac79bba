// Races in shared memory, by rows of 16 bytes: most accesses there touch whole ones. A copy or a vector of 16 bytes is one, and
// a row of a matrix, of which lanes of one warp get a part each. While all accesses of a row are of this kind, one record says
// what would take a record for each word. What else comes, and what may race, is looked at word by word, with the records that
// the row has.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/simt/races.h"

namespace simt {

// Which threads touch the eight halves (of 16 bits) of a row, if `first` touches the first one. With half h:
enum class Halves : std::uint8_t {
  of_one,      // first
  of_pairs,    // first + h / 2: a matrix
  of_columns,  // first + 4 h: a transposed one
};

class SharedRaces {
 public:
  using Words = Races<DenseWords>;  // offsets count from the start of the block's shared memory
  using Who = Words::Who;
  using Conflict = Words::Conflict;
  static constexpr std::size_t row_bytes = 16;

  void reserve(std::size_t bytes);
  void forget() { ++words_.words.generation; }  // all that comes now races with nothing before

  // As Races::access(). (A word that has records of this generation is of a row that is kept by words.)
  [[gnu::always_inline]] std::optional<Conflict> access(Order& order, const Who& who, std::size_t offset, std::size_t bytes,
                                                        Kind kind, Scope scope, bool wide = false) {
    if (bytes == 4 && offset % 4 == 0 && scope == Scope::thread && words_.sure_access(order, who, offset / 4, kind)) return {};
    return any_access(order, who, offset, bytes, kind, scope, wide);
  }
  // As Races::done(), of a store.
  void stored(Order& order, const Who& actor, Time time, std::size_t offset, std::size_t bytes);
  // A whole row, at a multiple of 16. `first`: the thread of the first half. False: it is not recorded, since it may race, or
  // must be kept by word; then each thread's part is an access of its own.
  bool touch_row(Order& order, const Who& first, std::size_t offset, Kind kind, Halves halves);

 private:
  struct Row {
    // What a warp reads of a tile is one record; more warps than that seldom read a row between two barriers.
    static constexpr std::size_t most_reads = 8;

    std::uint64_t generation = 0;  // of shared memory: what is older races with nothing
    std::uint8_t reads = 0;
    bool was_written = false;
    bool by_word = false;  // the words' records count, and none of these
    AccessRecord write;    // before all reads. Of these records, the mask is Halves, and the thread the first half's
    std::array<AccessRecord, most_reads> read;
  };
  static Halves halves_of(const AccessRecord& record) { return static_cast<Halves>(record.bytes_mask()); }
  std::optional<Conflict> any_access(Order& order, const Who& who, std::size_t offset, std::size_t bytes, Kind kind,
                                     Scope scope, bool wide);
  static bool may_race(Order& order, const AccessRecord& earlier, const AccessRecord& record);
  void keep_by_word(std::size_t index);

  std::vector<Row> rows_;
  Words words_;
};

}  // namespace simt
