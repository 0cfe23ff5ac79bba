// common/problem: dtypes bit by bit, visibility and costs by brute force, inputs that never change, .npy files good and bad.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "common/problem/attention.h"
#include "common/problem/cost.h"
#include "common/problem/dtype.h"
#include "common/problem/gemm.h"
#include "common/problem/npy.h"
#include "common/problem/require.h"
#include "common/problem/softmax.h"
#include "tests/catch.h"
#include "tests/unit/temporary_folder.h"

using problem::Attention;
using problem::Dtype;
using problem::Gemm;
using problem::GemmInputKind;
using problem::InputKind;
using problem::Softmax;
using problem::SoftmaxInputKind;
using problem::Tensor;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

struct Format {
  Dtype dtype;
  std::uint16_t (*bits)(float);
  float (*value)(std::uint16_t);
  std::uint16_t infinity_bits;
  int fraction_bits;
  int exponent_bias;
};
constexpr Format formats[] = {{Dtype::fp16, problem::fp16_bits, problem::fp16_value, 0x7c00, 10, 15},
                              {Dtype::bf16, problem::bf16_bits, problem::bf16_value, 0x7f80, 7, 127}};

// The value of an encoding by the definition of IEEE 754; finite encodings only.
double defined_value(const Format& format, std::uint16_t bits) {
  const int exponent = (bits & 0x7fff) >> format.fraction_bits;
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const int significand = exponent == 0 ? fraction : fraction + (1 << format.fraction_bits);
  const double magnitude = std::ldexp(significand, std::max(exponent, 1) - format.exponent_bias - format.fraction_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

Attention shape_of(int seq_q, int seq_k, bool causal, int window) {
  Attention shape;
  shape.seq_q = seq_q;
  shape.seq_k = seq_k;
  shape.causal = causal;
  shape.window = window;
  return shape;
}

// The definition of the mask.
bool sees(const Attention& shape, int i, int j) {
  const int distance = i + shape.seq_k - shape.seq_q - j;
  return (!shape.causal || distance >= 0) && (shape.window == 0 || std::abs(distance) < shape.window);
}

void write_text(const std::filesystem::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// A .npy file with any header; `version` 1 has two bytes of header length, the others four.
std::string npy_text(const std::string& header, std::size_t data_bytes, char version = 1) {
  const auto length = static_cast<std::uint32_t>(header.size());
  std::string text = std::string("\x93NUMPY") + version + '\0';
  text.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return text + header + std::string(data_bytes, '\0');
}

std::string header_text(const std::string& descr, const std::string& fortran_order, const std::string& shape) {
  return "{'descr': " + descr + ", 'fortran_order': " + fortran_order + ", 'shape': " + shape + ", }\n";
}

}  // namespace

TEST_CASE("dtype names and sizes") {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16})
    CHECK(problem::dtype_from_name(problem::name(dtype)) == dtype);
  CHECK(!problem::dtype_from_name("fp64"));
  CHECK(!problem::dtype_from_name(""));
  CHECK(problem::bytes(Dtype::fp32) == 4);
  CHECK(problem::bytes(Dtype::fp16) == 2);
  CHECK(problem::bytes(Dtype::bf16) == 2);
}

TEST_CASE("every 16-bit encoding has the value that IEEE 754 gives it, and survives the round trip") {
  for (const Format& format : formats) {
    int wrong = 0;
    for (std::uint32_t b = 0; b <= 0xffff; ++b) {
      const auto bits = static_cast<std::uint16_t>(b);
      const std::uint16_t magnitude = bits & 0x7fff;
      const float value = format.value(bits);
      if (magnitude > format.infinity_bits) {
        const auto back = format.bits(value);
        wrong += !std::isnan(value) || (back & 0x7fff) <= format.infinity_bits || (back & 0x8000) != (bits & 0x8000);
      } else if (magnitude == format.infinity_bits) {
        wrong += value != (bits & 0x8000 ? -infinity : infinity) || format.bits(value) != bits;
      } else {
        wrong += static_cast<double>(value) != defined_value(format, bits) || format.bits(value) != bits;
        wrong += problem::round_to(format.dtype, value) != value;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("between two neighbouring 16-bit values, rounding goes to the nearer, and from the middle to the even one") {
  for (const Format& format : formats) {
    int wrong = 0;
    for (std::uint16_t low = 0; low < format.infinity_bits; ++low) {
      const auto high = static_cast<std::uint16_t>(low + 1);
      const double below = defined_value(format, low);
      const double above = defined_value(format, high);  // beyond the largest value: what would come next
      const auto middle = static_cast<float>((below + above) / 2);
      const std::uint16_t even = low % 2 == 0 ? low : high;
      for (const std::uint16_t sign : {0x0000, 0x8000}) {
        const auto rounded = [&](float x) { return format.bits(sign ? -x : x); };
        wrong += rounded(middle) != (even | sign);
        wrong += rounded(std::nextafter(middle, 0.0f)) != (low | sign);
        wrong += rounded(std::nextafter(middle, infinity)) != (high | sign);
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("rounding of special values") {
  CHECK(problem::fp16_bits(65520.0f) == 0x7c00);  // half way to the value that fp16 lacks
  CHECK(problem::fp16_bits(65519.996f) == 0x7bff);
  CHECK(problem::bf16_bits(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(problem::fp16_bits(0x1p-25f) == 0);
  CHECK(problem::fp16_bits(std::numeric_limits<float>::denorm_min()) == 0);
  CHECK(problem::fp16_bits(-0.0f) == 0x8000);
  CHECK(problem::bf16_bits(-0.0f) == 0x8000);
  const float signalling = std::bit_cast<float>(0x7f800001u);  // its payload lies in bits that go
  CHECK(std::isnan(problem::round_to(Dtype::fp16, signalling)));
  CHECK(std::isnan(problem::round_to(Dtype::bf16, signalling)));
  CHECK(bits_of(problem::round_to(Dtype::fp32, 0.1f)) == bits_of(0.1f));
}

TEST_CASE("visible keys, live pairs and FLOPs agree with the mask's definition, pair by pair") {
  for (const int seq_q : {1, 2, 5, 7, 16}) {
    for (const int seq_k : {1, 3, 5, 8, 17}) {
      for (const bool causal : {false, true}) {
        for (const int window : {0, 1, 2, 6, 100}) {
          const Attention shape = shape_of(seq_q, seq_k, causal, window);
          std::int64_t live = 0;
          bool ranges_agree = true;
          for (int i = 0; i < seq_q; ++i) {
            ranges_agree &= 0 <= shape.first_key(i) && shape.first_key(i) <= shape.last_key(i) && shape.last_key(i) <= seq_k;
            for (int j = 0; j < seq_k; ++j) {
              live += sees(shape, i, j);
              ranges_agree &= sees(shape, i, j) == (shape.first_key(i) <= j && j < shape.last_key(i));
            }
          }
          INFO(problem::to_string(shape));
          CHECK(ranges_agree);
          CHECK(shape.dense_pairs() == live);
          CHECK(shape.flops() == 4.0 * shape.dim * static_cast<double>(live));
        }
      }
    }
  }
}

TEST_CASE("FLOPs and bytes of a known problem") {
  Attention shape{.batch = 2, .heads = 4, .kv_heads = 2, .seq_q = 100, .seq_k = 300, .dim = 64};
  CHECK(shape.flops() == 4.0 * 64 * 100 * 300 * 4 * 2);
  CHECK(shape.compulsory_bytes() == 4.0 * (2 * (2 * 4 * 100 * 64) + 2 * (2 * 2 * 300 * 64) + 2 * 4 * 100));
  shape.dtype = Dtype::bf16;  // LSE stays fp32
  CHECK(shape.compulsory_bytes() == 2.0 * (2 * (2 * 4 * 100 * 64) + 2 * (2 * 2 * 300 * 64)) + 4.0 * 2 * 4 * 100);
  Attention square{.seq_q = 1000, .seq_k = 1000, .causal = true};
  CHECK(square.dense_pairs() == 1000 * 1001 / 2);
  Attention huge{.seq_q = 2147483647, .seq_k = 2147483647};
  CHECK(huge.dense_pairs() == std::int64_t{2147483647} * 2147483647);
  huge.window = 2147483647;
  CHECK(huge.dense_pairs() == std::int64_t{2147483647} * 2147483647);
  huge.causal = true;
  CHECK(huge.dense_pairs() == std::int64_t{2147483647} * 2147483648 / 2);
}

TEST_CASE("the three kernels of standard attention cost its FLOPs, and their bytes are those of their arrays") {
  const Attention shape{.batch = 2, .heads = 6, .kv_heads = 3, .seq_q = 50, .seq_k = 70, .dim = 32, .causal = true};
  const auto scores = problem::scores_cost(shape), softmax = problem::softmax_cost(shape), pv = problem::pv_cost(shape);
  const double q = 4.0 * 2 * 6 * 50 * 32, k = 4.0 * 2 * 3 * 70 * 32, s = 4.0 * 2 * 6 * 50 * 70, lse = 4.0 * 2 * 6 * 50;
  CHECK(scores.flops + pv.flops == shape.flops());
  CHECK(softmax.flops == 5.0 * static_cast<double>(shape.dense_pairs()) * 12);
  CHECK(scores.bytes_read == q + k);
  CHECK(scores.bytes_written == s);
  CHECK(softmax.bytes_read == s);
  CHECK(softmax.bytes_written == s + lse);
  CHECK(pv.bytes_read == s + k);
  CHECK(pv.bytes_written == q);
  CHECK(problem::transpose_cost(shape).bytes_read == k);
  const auto linear = problem::linear_cost("linear", 10, 20, 30);
  CHECK(linear.flops == 2.0 * 10 * 20 * 30);
  CHECK(linear.bytes_read == 4.0 * (10 * 20 + 30 * 20 + 30));
  CHECK(linear.bytes_written == 4.0 * 10 * 30);
  CHECK(problem::h200_floor_seconds({"copy", 0, 2e9, 2e9}, Dtype::fp32) == Approx(4.0 / 4250));
  CHECK(problem::h200_floor_seconds({"product", 51e12, 1, 1}, Dtype::fp32) == Approx(1));
}

TEST_CASE("resolve fills in the scale and refuses what is out of range") {
  CHECK(problem::resolve(Attention{.dim = 64}).scale == 0.125f);
  CHECK(problem::resolve(Attention{.scale = -2.0f}).scale == -2.0f);
  const Attention wrong[] = {{.batch = 0},
                             {.heads = -1},
                             {.heads = 4, .kv_heads = 3},
                             {.heads = 2, .kv_heads = 4},
                             {.seq_q = 0},
                             {.kv_heads = 0},
                             {.seq_k = -7},
                             {.dim = 0},
                             {.window = -1},
                             {.scale = infinity},
                             {.scale = std::nanf("")}};
  for (const Attention& shape : wrong) CHECK_THROWS_AS(problem::resolve(shape), std::invalid_argument);
  const int most = problem::max_extent;
  CHECK_THROWS_AS(problem::resolve(Attention{.heads = most, .seq_q = most, .seq_k = most}), std::invalid_argument);
  const auto message = [](const Attention& shape) {
    try {
      problem::resolve(shape);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (int Attention::*extent :
       {&Attention::batch, &Attention::heads, &Attention::kv_heads, &Attention::seq_q, &Attention::seq_k, &Attention::dim}) {
    for (const int beyond : {most + 1, std::numeric_limits<int>::max()}) {
      Attention shape;
      shape.*extent = beyond;
      CHECK(message(shape).find("it must be at most 1073741824") != std::string::npos);
    }
  }
  for (const auto& [seq_q, seq_k] : {std::pair(most, 1), std::pair(1, most)}) {
    CHECK(message({.seq_q = seq_q, .seq_k = seq_k, .dim = 1, .window = std::numeric_limits<int>::max()}).empty());
  }
}

TEST_CASE("a scale of 0 is a scale like any other, and its magnitude has an end") {
  for (const float scale : {0.0f, -0.0f, 1e-45f, -1e-45f, 0x1p127f, -0x1p127f}) {
    CHECK(problem::resolve(Attention{.scale = scale}).scale == scale);
  }
  for (const float scale : {std::nextafter(0x1p127f, infinity), -std::numeric_limits<float>::max()}) {
    CHECK_THROWS_AS(problem::resolve(Attention{.scale = scale}), std::invalid_argument);
  }
}

TEST_CASE("inputs never change: golden values, whatever the machine") {
  const Attention shape{.batch = 2, .heads = 2, .kv_heads = 1, .seq_q = 3, .seq_k = 4, .dim = 8};
  const auto in = problem::make_inputs(shape, 1);
  REQUIRE(in.q.shape == std::vector<std::int64_t>{2, 2, 3, 8});
  REQUIRE(in.k.shape == std::vector<std::int64_t>{2, 1, 4, 8});
  REQUIRE(in.v.shape == in.k.shape);
  const auto golden = [](const Tensor& t, std::uint32_t first, std::uint32_t second, std::uint32_t last) {
    CHECK(bits_of(t.values.front()) == first);
    CHECK(bits_of(t.values[1]) == second);
    CHECK(bits_of(t.values.back()) == last);
  };
  golden(in.q, 0xbf21f4f2, 0xbe39205b, 0x3f176ec3);
  golden(in.k, 0x3f909b8f, 0xbce01232, 0x3f1b9a5c);
  golden(in.v, 0xbfc450c6, 0xbf8aec6f, 0x3fbf188a);
}

TEST_CASE("inputs depend on the seed, and each tensor is another one") {
  const Attention shape{.seq_q = 16, .seq_k = 16, .dim = 32};
  const auto one = problem::make_inputs(shape, 1), same = problem::make_inputs(shape, 1), two = problem::make_inputs(shape, 2);
  CHECK(one.q.values == same.q.values);
  CHECK(one.q.values != two.q.values);
  CHECK(one.q.values != one.k.values);
  CHECK(problem::make_inputs(shape, 0).q.values != one.q.values);
}

TEST_CASE("inputs are rounded to the dtype, and to nothing else") {
  Attention shape{.seq_q = 64, .seq_k = 64, .dim = 64};
  const auto exact = problem::make_inputs(shape, 3);
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    shape.dtype = dtype;
    const auto rounded = problem::make_inputs(shape, 3);
    for (Tensor problem::AttentionInputs::*tensor : {&problem::AttentionInputs::q, &problem::AttentionInputs::v}) {
      const auto& from = (exact.*tensor).values;
      const auto& to = (rounded.*tensor).values;
      CHECK(std::equal(from.begin(), from.end(), to.begin(), to.end(),
                       [&](float a, float b) { return problem::round_to(dtype, a) == b; }));
    }
  }
}

TEST_CASE("inputs have the moments of a normal distribution; V is offset") {
  const Attention shape{.heads = 8, .kv_heads = 8, .seq_q = 512, .seq_k = 512, .dim = 128};
  const auto in = problem::make_inputs(shape, 7);
  const auto check_moments = [](const Tensor& tensor, double mean) {
    const double n = static_cast<double>(tensor.values.size());  // 524288: a mean's standard error is 0.0014
    double sum = 0, square = 0, cube = 0, fourth = 0;
    for (const float value : tensor.values) {
      const double x = value - mean;
      sum += x;
      square += x * x;
      cube += x * x * x;
      fourth += x * x * x * x;
    }
    CHECK(std::abs(sum / n) < 0.006);
    CHECK(square / n == Approx(1).epsilon(0.01));
    CHECK(std::abs(cube / n) < 0.03);
    CHECK(fourth / n == Approx(2.97).epsilon(0.02));
  };
  check_moments(in.q, 0);
  check_moments(in.k, 0);
  check_moments(in.v, 0.5);
  double neighbours = 0, heads = 0;  // correlations that a poor generator would have
  for (std::size_t n = 0; n + 512 * 128 < in.q.values.size(); ++n) {
    neighbours += static_cast<double>(in.q.values[n]) * in.q.values[n + 1];
    heads += static_cast<double>(in.q.values[n]) * in.q.values[n + 512 * 128];
  }
  CHECK(std::abs(neighbours / 458752) < 0.007);
  CHECK(std::abs(heads / 458752) < 0.007);
}

TEST_CASE("inputs of the special kinds do what they are for") {
  const Attention shape = problem::resolve({.heads = 4, .kv_heads = 2, .seq_q = 40, .seq_k = 60, .dim = 32, .causal = true});
  const auto scores_of_row = [&](const problem::AttentionInputs& in, int head, int i) {
    std::vector<double> scores;
    for (int j = shape.first_key(i); j < shape.last_key(i); ++j) {
      double dot = 0;
      for (int d = 0; d < shape.dim; ++d) {
        dot += static_cast<double>(in.q.values[(head * shape.seq_q + i) * shape.dim + d]) *
               in.k.values[(head / 2 * shape.seq_k + j) * shape.dim + d];
      }
      scores.push_back(*shape.scale * dot);
    }
    std::sort(scores.begin(), scores.end());
    return scores;
  };
  const auto large = problem::make_inputs(shape, 1, InputKind::large);
  const auto one_hot = problem::make_inputs(shape, 1, InputKind::one_hot);
  const auto uniform = problem::make_inputs(shape, 1, InputKind::uniform);
  int overflowing = 0, dominated = 0, rows = 0;
  for (int head = 0; head < shape.heads; ++head) {
    for (int i = 0; i < shape.seq_q; ++i, ++rows) {
      overflowing += scores_of_row(large, head, i).back() > 100;
      const auto peaked = scores_of_row(one_hot, head, i);
      dominated += peaked.back() - peaked[peaked.size() - 2] > 10;
      const auto equal = scores_of_row(uniform, head, i);
      CHECK(equal.front() == equal.back());
    }
  }
  CHECK(overflowing > rows * 9 / 10);
  CHECK(dominated > rows * 9 / 10);
}

TEST_CASE("a matrix product: defaults, FLOPs and bytes") {
  const Gemm plain = problem::resolve({.batch = 3, .m = 10, .n = 20, .k = 30});
  CHECK(plain == Gemm{3, 3, 10, 20, 30, 30, 30, 20, Dtype::fp16});
  CHECK(problem::to_string(plain) == "batch 3, m 10, n 20, k 30, lda 30, ldb 30, ldc 20, fp16");
  CHECK(plain.flops() == 2.0 * 10 * 20 * 30 * 3);
  CHECK(plain.compulsory_bytes() == 2.0 * 3 * (10 * 30 + 20 * 30 + 10 * 20));
  const Gemm shared = problem::resolve({.batch = 3, .batch_a = 1, .m = 10, .n = 20, .k = 30, .lda = 99, .dtype = Dtype::fp32});
  CHECK(problem::to_string(shared) == "batch 3, A shared, m 10, n 20, k 30, lda 99, ldb 30, ldc 20, fp32");
  const problem::KernelCost cost = problem::gemm_cost(shared, "tile");
  CHECK(cost.kernel == "tile");
  CHECK(cost.flops == shared.flops());
  CHECK(cost.bytes_read == 4.0 * (10 * 30 + 3 * 20 * 30));
  CHECK(cost.bytes_written == 4.0 * 3 * 10 * 20);
}

TEST_CASE("a matrix product that cannot be is refused, naming the field") {
  const auto message = [](const Gemm& shape) {
    try {
      problem::resolve(shape);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message({.lda = 1, .ldb = 2, .ldc = 3}).empty());
  CHECK(message({.batch = 0}).find("batch is 0") == 0);
  CHECK(message({.batch = 4, .batch_a = 2}) == "batch-a is 2; it must be 1 (A is shared) or batch, 4");
  CHECK(message({.batch = 4, .batch_a = 8}).find("batch-a is 8") == 0);
  CHECK(message({.m = 0}).find("m is 0") == 0);
  CHECK(message({.n = -1}).find("n is -1") == 0);
  CHECK(message({.k = 0}).find("k is 0") == 0);
  CHECK(message({.k = 8, .lda = 7}) == "lda is 7; it must be k, 8, or more");
  CHECK(message({.k = 8, .ldb = -8}).find("ldb is -8") == 0);
  CHECK(message({.n = 8, .ldc = 7}) == "ldc is 7; it must be n, 8, or more");
  constexpr int most = problem::max_extent;
  CHECK(message({.n = most}).empty());
  CHECK(message({.n = most + 1}) == "n is 1073741825; it must be at most 1073741824");
  CHECK(message({.batch = 100, .m = most, .k = most}).find("too large") != std::string::npos);
  CHECK(message({.batch = 100, .m = most, .ldc = std::numeric_limits<int>::max()}).find("too large") != std::string::npos);
}

TEST_CASE("inputs of a matrix product never change, and give a C close to N(1, 1.3) at every k") {
  const auto golden = problem::make_inputs(Gemm{.batch = 2, .batch_a = 1, .m = 3, .n = 4, .k = 8}, 1);
  REQUIRE(golden.a.shape == std::vector<std::int64_t>{1, 3, 8});
  REQUIRE(golden.b.shape == std::vector<std::int64_t>{2, 4, 8});
  const auto attention = problem::make_inputs(Attention{.seq_q = 3, .seq_k = 8, .dim = 8}, 1);  // the same streams
  for (std::size_t e = 0; e < golden.a.values.size(); ++e) {
    CHECK(golden.a.values[e] == problem::round_to(Dtype::fp16, attention.q.values[e] + 0.5f));
  }
  const float root = std::sqrt(8.0f);
  for (std::size_t e = 0; e < golden.b.values.size(); ++e) {
    CHECK(golden.b.values[e] == problem::round_to(Dtype::fp16, (attention.k.values[e] + 2 / root) / root));
  }
  for (const int k : {1, 10, 100, 1000}) {
    const Gemm shape{.m = 60, .n = 60, .k = k, .dtype = Dtype::fp32};
    const auto in = problem::make_inputs(shape, 3);
    double sum = 0, squares = 0;
    for (int e = 0; e < 60 * 60; ++e) {
      double c = 0;
      for (int d = 0; d < k; ++d) c += static_cast<double>(in.a.values[e / 60 * k + d]) * in.b.values[e % 60 * k + d];
      sum += c;
      squares += c * c;
    }
    const double mean = sum / 3600;
    CHECK(mean == Approx(1).margin(0.4));  // 60 rows of A that all of its rows share: a standard error of about 0.15
    CHECK(squares / 3600 - mean * mean < (k == 1 ? 12 : 3));
  }
}

TEST_CASE("sums that cancel climb to about 100, in every dtype, and end where ordinary ones do") {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    const Gemm shape{.m = 20, .n = 20, .k = 400, .dtype = dtype};
    const auto in = problem::make_inputs(shape, 5, GemmInputKind::cancelling);
    for (int e = 0; e < 20 * 20; ++e) {
      double sum = 0, highest = 0;
      for (int d = 0; d < 400; ++d) {
        sum += static_cast<double>(in.a.values[e / 20 * 400 + d]) * in.b.values[e % 20 * 400 + d];
        highest = std::max(highest, std::abs(sum));
      }
      CHECK(highest > 70);
      CHECK(std::abs(sum) < 6);
    }
    for (const Tensor* tensor : {&in.a, &in.b}) {
      CHECK(
          std::all_of(tensor->values.begin(), tensor->values.end(), [&](float x) { return problem::round_to(dtype, x) == x; }));
    }
  }
}

TEST_CASE(".npy files survive the round trip") {
  const TemporaryFolder folder;
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{}, {1}, {7}, {2, 3}, {2, 3, 4, 5}}) {
    Tensor tensor(shape);
    for (std::size_t n = 0; n < tensor.values.size(); ++n) tensor.values[n] = 0.25f * static_cast<float>(n) - 3.0f;
    tensor.values.back() = infinity;
    for (const Dtype stored : {Dtype::fp32, Dtype::fp16}) {
      problem::write_npy(folder / "a.npy", tensor, stored);
      const problem::NpyArray back = problem::read_npy(folder / "a.npy");
      CHECK(back.stored == stored);
      CHECK(back.tensor.shape == shape);
      CHECK(back.tensor.values == tensor.values);
    }
  }
}

TEST_CASE("a written .npy file is what NumPy writes, byte by byte") {
  const TemporaryFolder folder;
  Tensor tensor({2, 1});
  tensor.values = {1.0f, -2.0f};
  problem::write_npy(folder / "a.npy", tensor, Dtype::fp16);
  std::ifstream file(folder / "a.npy", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::string header = header_text("'<f2'", "False", "(2, 1)");
  header.pop_back();
  header += std::string(128 - 10 - 1 - header.size(), ' ') + '\n';
  CHECK(text == npy_text(header, 0) + std::string("\x00\x3c\x00\xc0", 4));
}

TEST_CASE("integers survive the round trip, and a file of another type is refused") {
  using problem::Element;
  const TemporaryFolder folder;
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{1}, {7}, {2, 3}}) {
    for (const Element stored : {Element::int32(), Element::int8()}) {
      problem::Integers integers(shape, -128);
      integers.values.back() = stored == Element::int8() ? 127 : std::numeric_limits<std::int32_t>::max();
      problem::write_npy(folder / "a.npy", integers, stored);
      const problem::Integers back = problem::read_npy_integer_array(folder / "a.npy", stored);
      CHECK((back.shape == shape && back.values == integers.values));
      const Element other = stored == Element::int8() ? Element::int32() : Element::int8();
      CHECK_THROWS_AS(problem::read_npy_integer_array(folder / "a.npy", other), problem::InputError);
    }
  }
}

TEST_CASE("bf16 travels as float32") {
  const TemporaryFolder folder;
  problem::write_npy(folder / "a.npy", Tensor({3}, 1.5f), Dtype::bf16);
  CHECK(problem::read_npy(folder / "a.npy").stored == Dtype::fp32);
}

TEST_CASE(".npy headers that NumPy may write are read: other versions, quotes, spacing") {
  const TemporaryFolder folder;
  const std::string good[] = {
      npy_text(header_text("'<f4'", "False", "(2, 3)"), 24, 1),
      npy_text(header_text("'<f4'", "False", "(2, 3)"), 24, 2),
      npy_text(header_text("'<f4'", "False", "(2, 3)"), 24, 3),
      npy_text("{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f4\"}", 24),
      npy_text("  { 'shape' : ( 2 , 3 , ) , 'descr' : '<f4' , 'fortran_order' : False }   \n", 24),
  };
  for (const std::string& text : good) {
    write_text(folder / "a.npy", text);
    CHECK(problem::read_npy(folder / "a.npy").tensor.shape == std::vector<std::int64_t>{2, 3});
  }
}

TEST_CASE("a malformed .npy file is refused in one line that names the file and the fault") {
  struct Malformed {
    std::string text;
    const char* says;
  };
  const std::string header = header_text("'<f4'", "False", "(2, 3)");
  const auto with_shape = [](const std::string& shape) { return npy_text(header_text("'<f4'", "False", shape), 24); };
  const auto with_descr = [](const std::string& descr) { return npy_text(header_text(descr, "False", "(2, 3)"), 24); };
  const std::string length_only = std::string("\x93NUMPY\x02\x00", 8) + std::string("\xff\xff\xff\xff", 4);
  const std::vector<Malformed> files = {
      {"", "truncated"},
      {"\x93NUM", "truncated"},
      {"this is no array at all", "magic"},
      {std::string("PK\x03\x04\0\0\0\0\0\0", 10), "magic"},
      {npy_text(header, 24, 4), "version 4"},
      {npy_text(header, 24, 0), "version 0"},
      {std::string("\x93NUMPY\x01\x00\x76", 9), "header length"},
      {std::string("\x93NUMPY\x01\x00\x76\x00{", 11), "ends within the header"},
      {length_only + header, "4294967295 bytes"},
      {npy_text("", 24), "expected {"},
      {npy_text("{}", 24), "must all be there"},
      {npy_text("{'descr': '<f4', 'fortran_order': False, }", 24), "must all be there"},
      {npy_text("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}", 24), "'more'"},
      {npy_text("{'descr': '<f4', 'descr': '<f4', 'shape': (2, 3)}", 24), "comes twice"},
      {npy_text("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} junk", 24), "follows"},
      {npy_text("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)", 24), "expected }"},
      {npy_text("{'descr': '<f4, 'fortran_order': False}", 24), "expected"},
      {npy_text("{'descr", 24), "does not end"},
      {npy_text(header_text("'<f4'", "0", "(2, 3)"), 24), "expected False"},
      {npy_text(header_text("'<f4'", "True", "(2, 3)"), 24), "Fortran order"},
      {with_descr("'>f4'"), "'>f4'"},
      {with_descr("'<f8'"), "'<f8'"},
      {with_descr("'<i4'"), "'<i4'"},
      {with_descr("'|u1'"), "'|u1'"},
      {with_descr("'|O'"), "'|O'"},
      {with_descr("[('x', '<f4')]"), "structured"},
      {with_shape("6"), "expected ("},
      {with_shape("(6)"), "(n,)"},
      {with_shape("(2, -3)"), "dimension -3"},
      {with_shape("(0, 3)"), "dimension 0"},
      {with_shape("(2.0, 3)"), "expected )"},
      {with_shape("(a, 3)"), "whole numbers"},
      {with_shape("(2 3)"), "expected )"},
      {with_shape("(99999999999999999999, 3)"), "beyond 64 bits"},
      {with_shape("(4294967296, 4294967296)"), "overflows"},
      {with_shape("(9223372036854775807,)"), "overflows"},
      {with_shape("(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)"), "32"},
      {with_shape("(1000000, 1000000)"), "truncated"},
      {npy_text(header, 23), "truncated"},
      {npy_text(header, 25), "trailing bytes"},
  };
  const TemporaryFolder folder;
  for (const Malformed& file : files) {
    write_text(folder / "bad.npy", file.text);
    std::string message;
    try {
      problem::read_npy(folder / "bad.npy");
    } catch (const problem::InputError& error) {
      message = error.what();
    }
    CAPTURE(file.text, message);
    CHECK(message.find("bad.npy: ") != std::string::npos);
    CHECK(message.find(file.says) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("what is no file is refused too") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(problem::read_npy(folder / "missing.npy"), problem::InputError);
  CHECK_THROWS_AS(problem::read_npy(folder / ""), problem::InputError);
  CHECK_THROWS_AS(problem::write_npy(folder / "missing/a.npy", Tensor({1}), Dtype::fp32), problem::InputError);
}

TEST_CASE("the defaults and costs of a row softmax") {
  const Softmax plain = problem::resolve(Softmax{.rows = 10, .cols = 30});
  CHECK(plain == Softmax{10, 30, 30, 30, Dtype::fp32});
  CHECK(problem::to_string(plain) == "rows 10, cols 30, ldx 30, ldy 30, fp32");
  CHECK(plain.flops() == 5 * 10 * 30);
  CHECK(plain.compulsory_bytes() == 2 * 10 * 30 * 4);
  const Softmax padded = problem::resolve(Softmax{.rows = 10, .cols = 30, .ldx = 99, .dtype = Dtype::fp16});
  const problem::KernelCost cost = problem::row_softmax_cost(padded, "three", 3);
  CHECK(cost.kernel == "three");
  CHECK(cost.bytes_read == 3 * 10 * 30 * 2);
  CHECK(cost.bytes_written == 10 * 30 * 2);
  const auto message = [](const Softmax& shape) {
    try {
      problem::resolve(shape);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message({.rows = 0}) == "rows is 0; it must be 1 or more");
  CHECK(message({.cols = (1 << 30) + 1}).find("cols is 1073741825; it must be at most") == 0);
  CHECK(message({.cols = 30, .ldx = 29}) == "ldx is 29; it must be cols, 30, or more");
  CHECK(message({.cols = 30, .ldy = -1}) == "ldy is -1; it must be cols, 30, or more");
  CHECK(message({.rows = 1 << 30, .cols = 1 << 30}).find("too large") != std::string::npos);
}

TEST_CASE("the scores of a row softmax are of the kind that was asked for") {
  const Softmax shape{.rows = 40, .cols = 500, .dtype = Dtype::fp16};
  const auto x = [&](SoftmaxInputKind kind) { return problem::make_inputs(shape, 3, kind).values; };
  const std::vector<float> normal = x(SoftmaxInputKind::normal), large = x(SoftmaxInputKind::large);
  double squares = 0;
  for (const float score : normal) {
    squares += score * score;
    CHECK(problem::round_to(Dtype::fp16, score) == score);
  }
  CHECK(std::abs(squares / 20000 - 1) < 0.05);
  const std::vector<float> uniform = x(SoftmaxInputKind::uniform), one_hot = x(SoftmaxInputKind::one_hot);
  const std::vector<float> descending = x(SoftmaxInputKind::descending);
  for (std::size_t n = 0; n < normal.size(); ++n) {
    CHECK(std::abs(large[n] - 100 * normal[n]) <= 0.1f * std::abs(normal[n]));
    CHECK(uniform[n] == normal[n / 500 * 500]);
    CHECK(std::abs(descending[n] - normal[n] + 120.0f * (n % 500) / 500) < 0.1f);
  }
  for (int row = 0; row < 40; ++row) {
    CHECK(std::count_if(&one_hot[row * 500], &one_hot[row * 500] + 500, [](float score) { return score > 9; }) == 1);
  }
  CHECK(problem::make_inputs(shape, 4).values != normal);
}
