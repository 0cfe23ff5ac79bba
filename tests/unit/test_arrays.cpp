// common/run/harness/arrays: a program's list of arrays, and what follows from it.
#include <array>
#include <cstring>

#include "common/run/harness/arrays.h"
#include "tests/catch.h"

namespace {

using problem::Dtype;
using problem::Tensor;
using run::Arrays;
using run::DeviceArrays;
using run::Element;
using run::Given;

Tensor counting(std::vector<std::int64_t> shape) {
  Tensor tensor(std::move(shape));
  for (std::size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] = static_cast<float>(i);
  return tensor;
}

std::uint32_t word(const void* data, std::size_t index) {
  std::uint32_t bits;
  std::memcpy(&bits, static_cast<const char*>(data) + 4 * index, sizeof(bits));
  return bits;
}

}  // namespace

TEST_CASE("each role: what is uploaded, poisoned, downloaded") {
  const Tensor x = counting({2, 3});
  const Arrays list = {run::input("x", Dtype::fp32, {2, 3}), run::optional_input("mask", Dtype::fp32, {2, 3}),
                       run::output("y", Dtype::fp32, {2, 3}), run::both("z", Dtype::fp32, {2, 3}),
                       run::scratch("s", Dtype::fp16, {5})};
  DeviceArrays arrays(list, {{"x", &x}, {"z", &x}});
  CHECK(arrays.get<float>("mask") == nullptr);
  arrays.prepare();
  CHECK(arrays.get<float>("x")[4] == 4);
  CHECK(word(arrays.data("y"), 5) == runtime::poison_word);
  CHECK(word(arrays.data("s"), 1) == runtime::poison_word);

  arrays.get<float>("y")[5] = 7;
  arrays.get<float>("z")[1] = 8;
  const auto outputs = arrays.download();
  REQUIRE(outputs.size() == 2);
  CHECK((outputs[0].name == "y" && outputs[0].tensor.values[5] == 7));
  CHECK((outputs[1].name == "z" && outputs[1].tensor.values[1] == 8 && outputs[1].element == Dtype::fp32));
  arrays.prepare();  // of the next launch: z is what was given
  CHECK(arrays.get<float>("z")[1] == 1);
  CHECK(word(arrays.data("y"), 5) == runtime::poison_word);

  const DeviceArrays with_mask(list, {{"x", &x}, {"z", &x}, {"mask", &x}});
  CHECK(with_mask.get<float>("mask")[3] == 3);
  CHECK_THROWS_AS(DeviceArrays(list, {{"x", &x}}), std::invalid_argument);  // z has no values
}

TEST_CASE("integers: tables of blocks, offsets; an upper bound where data decide") {
  const std::vector<std::int32_t> offsets = {0, 5, -7, 1 << 30};
  Arrays list = {run::input("offsets", Element::int32(), {6})};
  CHECK_THROWS_AS(DeviceArrays(list, {Given{"offsets", nullptr, offsets}}), std::invalid_argument);
  list[0].at_most = true;
  const DeviceArrays arrays(list, {Given{"offsets", nullptr, offsets}});
  CHECK(arrays.get<std::int32_t>("offsets")[3] == 1 << 30);
  CHECK(arrays.get<std::int32_t>("offsets")[4] == -1);  // what is missing
  CHECK(run::bytes(list[0]) == 24);

  const Tensor rows = counting({2, 3});
  Arrays bounded = {run::input("rows", Dtype::fp32, {4, 3})};
  CHECK_THROWS_AS(DeviceArrays(bounded, {{"rows", &rows}}), std::invalid_argument);
  bounded[0].at_most = true;
  const DeviceArrays some(bounded, {{"rows", &rows}});
  CHECK(some.get<float>("rows")[5] == 5);
  CHECK(some.get<float>("rows")[6] != some.get<float>("rows")[6]);
  const Tensor too_many = counting({5, 3});
  CHECK_THROWS_AS(DeviceArrays(bounded, {{"rows", &too_many}}), std::invalid_argument);
}

TEST_CASE("each array has a type of its own: numbers and integers, of 4, 2 and 1 bytes, in and out") {
  const Tensor x = counting({3, 3});
  const std::vector<std::int32_t> numbers = {1, -128, 127, 4, 5, 6, 7, 8, -9};
  const std::vector<Element> elements = {Dtype::fp32, Dtype::fp16, Dtype::bf16, Element::int32(), Element::int8()};
  Arrays list;
  std::vector<Given> given;
  for (const Element element : elements) {
    const std::string name(element.name());
    list.push_back(run::both(name, element, {3, 3}));
    list.back().strides = {5};
    given.push_back(element.is_integer() ? Given{name, nullptr, numbers} : Given{name, &x});
    list.push_back(run::output(name + " out", element, {3, 3}, {5}));
    CHECK(run::bytes(list.back()) == 15 * element.bytes());
  }
  DeviceArrays arrays(list, given);
  arrays.prepare();
  CHECK(arrays.get<std::int8_t>("int8")[1] == -128);
  CHECK(arrays.get<std::int8_t>("int8")[3] == -1);  // a gap
  CHECK(arrays.get<std::int8_t>("int8")[5 + 1] == 5);
  for (const Element element : elements) {
    const std::string name(element.name());
    for (int row = 0; row < 3; ++row) {
      const std::size_t at = 5 * row * element.bytes();
      std::memcpy(arrays.get<char>(name + " out") + at, arrays.get<char>(name) + at, 3 * element.bytes());
    }
  }
  CHECK(arrays.surroundings_intact());
  for (const run::NamedTensor& output : arrays.download()) {
    INFO(output.name);
    CHECK(output.element.name() == output.name.substr(0, output.name.find(' ')));
    CHECK((output.element.is_integer() ? output.integers.values == numbers : output.tensor.values == x.values));
  }
  for (const Element element : elements) {
    auto* const gap = arrays.get<char>(std::string(element.name()) + " out") + 4 * element.bytes() + (element.bytes() - 1);
    *gap = static_cast<char>(~*gap);
    CHECK_FALSE(arrays.surroundings_intact());
    *gap = static_cast<char>(~*gap);
    CHECK(arrays.surroundings_intact());
  }
  const std::vector<std::int32_t> too_large(9, 128);
  given.back().integers = too_large;
  CHECK_THROWS_AS(DeviceArrays(list, given), std::invalid_argument);
}

TEST_CASE("numbers for integers, and integers for numbers, are errors") {
  const Tensor x = counting({3});
  const std::vector<std::int32_t> numbers = {1, 2, 3};
  run::Array ids = run::input("a", Element::int32(), {3});
  ids.at_most = true;
  const run::Array floats = run::input("a", Dtype::fp32, {3});
  CHECK_THROWS_AS(DeviceArrays({ids}, {{"a", &x}}), std::invalid_argument);
  CHECK_THROWS_AS(DeviceArrays({floats}, {{"a", nullptr, numbers}}), std::invalid_argument);

  DeviceArrays arrays({run::output("ids", Element::int8(), {3}), run::output("x", Dtype::fp16, {3})});
  const auto outputs = arrays.download();
  CHECK_THROWS_AS(run::tensor_of(outputs, "ids"), std::logic_error);
  CHECK_THROWS_AS(run::integers_of(outputs, "x"), std::logic_error);

  std::array<std::int32_t, 4> halves = {};
  CHECK_THROWS_AS(problem::encode(Dtype::fp16, numbers.data(), 3, halves.data()), std::logic_error);
  CHECK_THROWS_AS(problem::decode(Element(Dtype::fp16), halves.data(), 1, halves.data()), std::logic_error);
}

TEST_CASE("an output whose length only the launch knows") {
  const run::Array count = run::output("count", Element::int32(), {1});
  const Arrays list = {count, run::output_up_to("ids", Element::int32(), {4}, count),
                       run::output_up_to("rows", Dtype::fp32, {4, 2}, count)};
  DeviceArrays arrays(list);
  const auto lengths = [&](std::int32_t counted) {
    *arrays.get<std::int32_t>("count") = counted;
    const auto outputs = arrays.download();
    CHECK(run::integers_of(outputs, "count").values[0] == counted);
    CHECK(std::ssize(run::tensor_of(outputs, "rows").values) == 2 * run::tensor_of(outputs, "rows").shape[0]);
    return std::pair(run::integers_of(outputs, "ids").shape[0], run::tensor_of(outputs, "rows").shape[0]);
  };
  arrays.get<float>("rows")[5] = 7;
  CHECK(lengths(3) == std::pair(std::int64_t{3}, std::int64_t{3}));
  CHECK(run::tensor_of(arrays.download(), "rows").values[5] == 7);
  CHECK(lengths(0) == std::pair(std::int64_t{0}, std::int64_t{0}));
  CHECK(lengths(5) == std::pair(std::int64_t{4}, std::int64_t{4}));  // the count is judged, and wrong
  CHECK(lengths(-1) == std::pair(std::int64_t{0}, std::int64_t{0}));
}

TEST_CASE("rows with gaps: NaN in an input's, none may be written in an output's") {
  const Tensor x = counting({2, 2, 3});
  const Arrays list = {run::input("x", Dtype::fp32, {2, 2, 3}, {10, 4}), run::output("y", Dtype::fp32, {2, 2, 3}, {10, 4})};
  DeviceArrays arrays(list, {{"x", &x}});
  CHECK(arrays.get<float>("x")[10 + 4 + 2] == 11);
  CHECK(arrays.get<float>("x")[3] != arrays.get<float>("x")[3]);
  CHECK(run::bytes(list[0]) == 80);
  arrays.prepare();
  for (const int at : {0, 4, 10, 14}) std::fill_n(arrays.get<float>("y") + at, 3, 1.0f);
  CHECK(arrays.surroundings_intact());
  arrays.get<float>("y")[8] = 1;
  CHECK_FALSE(arrays.surroundings_intact());
}

TEST_CASE("a view is a part of another array") {
  const run::Array qkv = run::scratch("qkv", Dtype::fp32, {4, 3, 2});
  const Arrays list = {qkv, run::view("k", qkv, 2, {4, 2}, {6})};
  const DeviceArrays arrays(list);
  CHECK(arrays.get<float>("k") == arrays.get<float>("qkv") + 2);
  CHECK(arrays.strides("k") == std::vector<std::int64_t>{6});
  CHECK(run::bytes(list[1]) == 0);
  CHECK(run::scratch_bytes(list) == 96);
}

TEST_CASE("a list that cannot be is an error of its author") {
  const run::Array whole = run::scratch("whole", Dtype::fp32, {8});
  CHECK_THROWS_AS(DeviceArrays({whole, whole}), std::logic_error);
  CHECK_THROWS_AS(DeviceArrays({run::view("part", whole, 0, {4, 1}, {2})}), std::logic_error);         // not listed before
  CHECK_THROWS_AS(DeviceArrays({whole, run::view("part", whole, 1, {4, 2}, {2})}), std::logic_error);  // ends at 9
  CHECK_THROWS_AS(DeviceArrays({whole, run::view("part", whole, -1, {4, 2}, {2})}), std::logic_error);
  Arrays output_within = {whole, run::view("part", whole, 0, {4, 2}, {2})};
  output_within[1].role = run::Role::output;
  CHECK_THROWS_AS(DeviceArrays(output_within), std::logic_error);
  CHECK_THROWS_AS(DeviceArrays({whole}).data("hole"), std::logic_error);
  const run::Array count = run::output("count", Element::int32(), {1});
  CHECK_NOTHROW(DeviceArrays({count, run::output_up_to("y", Dtype::fp32, {8}, count)}));
  CHECK_THROWS_AS(DeviceArrays({run::output_up_to("y", Dtype::fp32, {8}, count), count}), std::logic_error);
  for (const run::Array& none : {run::output("count", Dtype::fp32, {1}), run::output("count", Element::int32(), {2}),
                                 run::scratch("count", Element::int32(), {1})}) {
    CHECK_THROWS_AS(DeviceArrays({none, run::output_up_to("y", Dtype::fp32, {8}, none)}), std::logic_error);
  }
}
