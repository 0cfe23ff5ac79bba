// Which element of a matrix lies where in the registers of a warp: for ldmatrix and for mma.sync, found by asking them. Prints
// JSON, from which the book draws its picture (tools/measure/traces.py). A GPU must print the same.
//
// ldmatrix loads a tile whose elements are numbers, so each register says what it got. mma.sync is given one register element
// that is 1, all others 0, and numbers in the other operand: where the product is not zero, and which number it is, say which
// element that was.
#include <array>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/device/dialect.h"
#include "common/device/ptx/arithmetic.cuh"
#include "common/device/ptx/shared_memory.cuh"
#include "common/runtime/launch.h"

namespace {

using runtime::Buffer;

constexpr int lanes = 32;
constexpr int side = 16;  // of the tile

struct Smem {
  alignas(16) std::uint16_t tile[side][side];
};

struct Element {
  int row, column;
  bool operator==(const Element&) const = default;
};

// Where the 8 elements begin whose address a lane gives: lanes 0 to 15 take the left halves of the rows, the others the right
// ones.
__host__ __device__ inline Element given_by(int lane) { return {lane % 16, lane / 16 * 8}; }

__global__ void load_tile(const std::uint16_t* tile,    // [16, 16]
                          std::uint32_t* plain,         // [32, 4]
                          std::uint32_t* transposed) {  // [32, 4]
  auto& smem = device::shared_storage<Smem>();
  const int lane = threadIdx.x;
  for (int i = lane; i < side * side; i += lanes) device::store(&smem.tile[i / side][i % side], device::load(&tile[i]));
  __syncwarp();  // the tile is written before it is read
  const Element first = given_by(lane);
  const void* const row = &smem.tile[first.row][first.column];
  std::uint32_t r[4], t[4];
  ptx::ldmatrix_x4(r, row);
  ptx::ldmatrix_x4_trans(t, row);
  for (int i = 0; i < 4; ++i) {
    plain[4 * lane + i] = r[i];
    transposed[4 * lane + i] = t[i];
  }
}

// One product for each block, of a warp.
__global__ void multiply_fragments(const std::uint32_t* a,  // [blocks, 32, 4]
                                   const std::uint32_t* b,  // [blocks, 32, 2]
                                   float* c) {              // [blocks, 32, 4]
  const int lane = blockIdx.x * lanes + threadIdx.x;
  const std::uint32_t a_piece[4] = {a[4 * lane], a[4 * lane + 1], a[4 * lane + 2], a[4 * lane + 3]};
  const std::uint32_t b_piece[2] = {b[2 * lane], b[2 * lane + 1]};
  float sums[4] = {};
  ptx::mma_m16n8k16<__half>(sums, a_piece, b_piece);
  for (int i = 0; i < 4; ++i) c[4 * lane + i] = sums[i];
}

// Elements of all lanes: element e of lane l, that is half e % 2 of register e / 2, is at [l * (elements of a lane) + e].
using Fragment = std::vector<Element>;

template <class T>
std::vector<T> downloaded(const Buffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  runtime::synchronize();
  buffer.download(values.data(), buffer.bytes());
  return values;
}

// What ldmatrix.x4 gives, of the tile whose element [r][c] is the number 16 r + c; plain, and transposed.
std::array<Fragment, 2> loaded() {
  std::vector<std::uint16_t> tile(side * side);
  for (std::size_t i = 0; i < tile.size(); ++i) tile[i] = static_cast<std::uint16_t>(i);
  Buffer in("tile", tile.size() * 2), plain("plain", lanes * 4 * 4), transposed("transposed", lanes * 4 * 4);
  in.upload(tile.data(), in.bytes());
  runtime::launch(load_tile, {1, lanes, sizeof(Smem)}, in.as<std::uint16_t>(), plain.as<std::uint32_t>(),
                  transposed.as<std::uint32_t>());
  std::array<Fragment, 2> fragments;
  for (int form = 0; form < 2; ++form) {
    for (const std::uint16_t number : downloaded<std::uint16_t>(form == 0 ? plain : transposed)) {
      fragments[static_cast<std::size_t>(form)].push_back({number / side, number % side});
    }
  }
  return fragments;
}

using Values = std::vector<float>;  // of all elements, in the order of a Fragment

// The products of registers that hold these values; [a.size(), 128].
std::vector<Values> products(const std::vector<Values>& a, const std::vector<Values>& b) {
  const auto on_device = [](const char* name, const std::vector<Values>& all) {
    std::vector<__half> halves;
    for (const Values& values : all) {
      for (const float value : values) halves.push_back(__float2half(value));
    }
    Buffer buffer(name, halves.size() * 2);
    buffer.upload(halves.data(), buffer.bytes());
    return buffer;
  };
  const Buffer a_buffer = on_device("a", a), b_buffer = on_device("b", b);
  Buffer c_buffer("c", a.size() * lanes * 4 * sizeof(float));
  runtime::launch(multiply_fragments, {static_cast<unsigned>(a.size()), lanes}, a_buffer.as<std::uint32_t>(),
                  b_buffer.as<std::uint32_t>(), c_buffer.as<float>());
  const Values c = downloaded<float>(c_buffer);
  std::vector<Values> all;
  for (auto from = c.begin(); from != c.end(); from += lanes * 4) all.emplace_back(from, from + lanes * 4);
  return all;
}

template <class Value>
Values filled(const Fragment& fragment, Value value) {
  Values values;
  for (const Element& element : fragment) values.push_back(static_cast<float>(value(element.row, element.column)));
  return values;
}

// For each register element the one whose product with the numbers 16 row + column + 1 this is; `number_at` takes a number of
// the other operand and where in C it appeared.
template <class NumberAt>
Fragment identified(const std::vector<Values>& products, const Fragment& c, NumberAt number_at) {
  Fragment fragment;
  for (const Values& product : products) {
    std::vector<Element> seen;
    for (std::size_t i = 0; i < product.size(); ++i) {
      if (product[i] != 0) seen.push_back(number_at(static_cast<int>(product[i]) - 1, c[i]));
    }
    for (const Element& element : seen) {
      if (!(element == seen.front())) throw std::runtime_error("one register element acts as two elements of a matrix");
    }
    fragment.push_back(seen.at(0));
  }
  return fragment;
}

std::vector<Values> one_at_each_place(std::size_t count) {
  std::vector<Values> all(count, Values(count));
  for (std::size_t i = 0; i < count; ++i) all[i][i] = 1;
  return all;
}

void print(const std::string& name, const Fragment& fragment, bool last = false) {
  const std::size_t each = fragment.size() / lanes;
  std::cout << " \"" << name << "\": [\n";
  for (std::size_t i = 0; i < fragment.size(); ++i) {
    std::cout << (i % each == 0 ? "  [" : ", ") << '[' << fragment[i].row << ", " << fragment[i].column << ']';
    if (i % each == each - 1) std::cout << (i == fragment.size() - 1 ? "]\n" : "],\n");
  }
  std::cout << (last ? " ]\n" : " ],\n");
}

}  // namespace

int main() {
  const auto [plain, transposed] = loaded();
  // How matrices get into registers: A as the tile was loaded; B, which is stored as [n, k], as the tile's first 8 rows were.
  Fragment b_loaded;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (plain[i].row < 8) b_loaded.push_back(plain[i]);
  }

  // Element [r][c] of this product is 8 r + c.
  const Values numbers = products({filled(plain, [](int row, int k) { return k == 0 ? 8 * row : k == 1; })},
                                  {filled(b_loaded, [](int column, int k) { return k == 0   ? 1
                                                                                   : k == 1 ? column
                                                                                            : 0; })})[0];
  Fragment c;
  for (const float number : numbers) c.push_back({static_cast<int>(number) / 8, static_cast<int>(number) % 8});

  const auto number = [](int row, int k) { return side * row + k + 1; };
  const std::vector<Values> a_ones = one_at_each_place(plain.size()), b_ones = one_at_each_place(b_loaded.size());
  const Fragment a =
      identified(products(a_ones, std::vector<Values>(a_ones.size(), filled(b_loaded, number))), c, [](int found, Element at) {
        return Element{at.row, found % side};
      });
  const Fragment b =
      identified(products(std::vector<Values>(b_ones.size(), filled(plain, number)), b_ones), c, [](int found, Element at) {
        return Element{found % side, at.column};
      });

  Fragment given;
  for (int lane = 0; lane < lanes; ++lane) given.push_back(given_by(lane));

  std::cout << "{\n";
  print("addresses", given);
  print("ldmatrix.x4", plain);
  print("ldmatrix.x4.trans", transposed);
  print("mma.m16n8k16 A", a);
  print("mma.m16n8k16 B", b);
  print("mma.m16n8k16 C", c, true);
  std::cout << "}\n";
  for (const runtime::Finding& finding : runtime::take_findings()) {
    std::cerr << finding.text << '\n';
    return 1;
  }
}
