// Step 04: every variant is right at every shape, the state between two blocks of keys is what the page says, and what is
// broken is rejected.
#include <algorithm>

#include "common/run/harness/execute.h"
#include "steps/04_flash_v1/block_sizes.h"
#include "tests/catch.h"
#include "tests/steps/04_flash_v1/faulty_flash_v1.h"
#include "tests/suites/attention_suite.h"
#include "tests/suites/tiers.h"

namespace {

using problem::Attention;
using problem::AttentionInputs;
using problem::Dtype;
using problem::InputKind;

const run::AttentionVariant& variant(const std::string& name) {
  const auto& variants = run::this_step_as<run::AttentionStep>().variants;
  return *std::find_if(variants.begin(), variants.end(), [&](const auto& v) { return v.name == name; });
}

const std::vector<std::string> right_variants = {"scalar_48k", "scalar_99k", "scalar", "tensor_cores"};

// Rungs that share each of their parts with the rung before or behind them: the whole lists are those' to pass.
const std::vector<std::string> between = {"tensor_scores", "register_softmax"};

// In a dtype that the variant takes.
Attention shape_for(const run::AttentionVariant& v, int batch, int heads, int kv_heads, int seq_q, int seq_k, int dim,
                    bool causal) {
  Attention s;
  s.batch = batch;
  s.heads = heads;
  s.kv_heads = kv_heads;
  s.seq_q = seq_q;
  s.seq_k = seq_k;
  s.dim = dim;
  s.causal = causal;
  s.dtype = v.supports.dtypes.front();
  return problem::resolve(s);
}

Attention fp32_shape(int heads, int seq_q, int seq_k, int dim) {
  return shape_for(variant("scalar"), 1, heads, heads, seq_q, seq_k, dim, false);
}

// The first `keys` keys of every head.
problem::Tensor first_keys(const problem::Tensor& tensor, int keys) {
  problem::Tensor part({tensor.shape[0], tensor.shape[1], keys, tensor.shape[3]});
  const std::int64_t from = tensor.shape[2] * tensor.shape[3], to = keys * tensor.shape[3];
  for (std::int64_t head = 0; head < tensor.shape[0] * tensor.shape[1]; ++head) {
    std::copy_n(tensor.values.begin() + head * from, to, part.values.begin() + head * to);
  }
  return part;
}

// Scores that rise or fall with the key, by `step` from one to the next; V is random.
AttentionInputs graded_scores(const Attention& shape, float step) {
  AttentionInputs inputs = problem::make_inputs(shape, 5);
  std::fill(inputs.q.values.begin(), inputs.q.values.end(), 1.0f);
  for (std::size_t e = 0; e < inputs.k.values.size(); ++e) {
    const auto key = static_cast<float>(static_cast<int>(e) / shape.dim % shape.seq_k);
    inputs.k.values[e] = step * key / (*shape.scale * static_cast<float>(shape.dim));
  }
  return inputs;
}

run::Outcome outcome_of(const run::AttentionVariant& v, const Attention& shape, InputKind kind = InputKind::normal) {
  return run::execute(v, shape, problem::make_inputs(shape, 7, kind));
}

// Rejected by the values of O alone.
void is_rejected(const run::AttentionVariant& v, const Attention& shape, InputKind kind = InputKind::normal) {
  INFO(v.name << ", " << problem::to_string(shape));
  const run::Outcome outcome = outcome_of(v, shape, kind);
  CHECK(outcome.findings.empty());
  CHECK(!outcome.verdict->tensors[0].pass);
}

// The shape list in turns of two types; and how many cases have head dims that the tensor cores' variant takes.
std::vector<suite::Case> list_of_16_bits(int turn) {
  return suite::in_turns(suite::shape_list(Dtype::fp16), suite::shape_list(Dtype::bf16), turn);
}
void tensor_cores_pass(const std::vector<suite::Case>& cases, int taken) {
  CHECK(suite::passes(variant("tensor_cores"), cases) == taken);
}

}  // namespace

TEST_CASE(
    "every dtype is right over the shape list, large shapes under one mask; the scalar variants share it, and refuse nothing") {
  constexpr const char* names[] = {"scalar", "scalar_48k", "scalar_99k"};  // one kernel, in blocks of three sizes
  const std::vector<std::vector<suite::Case>> lists = {suite::shape_list(Dtype::fp32), suite::shape_list(Dtype::bf16),
                                                       suite::shape_list(Dtype::fp16)};
  std::vector<suite::Case> by_turns;
  for (std::size_t i = 0; i < lists[0].size(); ++i) by_turns.push_back(lists[(i + i / 3) % 3][i]);
  by_turns = suite::one_mask_each(by_turns);
  for (std::size_t i = 0; i < by_turns.size(); ++i) CHECK(suite::passes(variant(names[i % 3]), {by_turns[i]}) == 1);
  tensor_cores_pass(suite::one_mask_each(list_of_16_bits(0)), 21);
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) CHECK(suite::passes(variant("scalar"), suite::small_shapes(dtype)) == 3);
}

TEST_CASE("with S alone on tensor cores, in shared memory or in registers, short shapes are right, and NaN stays in its rows") {
  for (const std::string& name : between) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      CHECK(suite::passes(variant(name), suite::small_shapes(dtype)) == 1);  // the others have head dims that they refuse
    }
    Attention edge = shape_for(variant(name), 1, 1, 1, 129, 257, 32, false);  // a query and a key beyond whole blocks
    CHECK(suite::passes(variant(name), {{edge}}) == 1);
    CHECK(suite::passes(variant(name), {{shape_for(variant(name), 2, 4, 2, 50, 40, 64, true)}}) == 1);
    suite::contains_nan(variant(name), shape_for(variant(name), 1, 2, 1, 31, 45, 32, true));
    suite::takes_infinite_scores(variant(name), shape_for(variant(name), 1, 1, 1, 17, 33, 32, false));
  }
}

TEST_CASE("every scalar variant is right over the whole shape list, and the tensor cores' in both types", "[.long]") {
  for (const auto& [name, dtype] :
       {std::pair{"scalar", Dtype::fp32}, {"scalar_48k", Dtype::bf16}, {"scalar_99k", Dtype::fp16}}) {
    const auto cases = suite::shape_list(dtype);
    CHECK(suite::passes(variant(name), cases) == static_cast<int>(cases.size()));
  }
  tensor_cores_pass(suite::other_masks(list_of_16_bits(0)), 9);
  tensor_cores_pass(list_of_16_bits(1), 30);
}

TEST_CASE("lengths of one block, one less and one more are right: no query and no key at an edge is lost") {
  // Br and Bc of scalar_48k at dim 64: 40. Of tensor_cores: 128. Of scalar at dim 128: 88.
  for (const auto& [name, tile, dim] : {std::tuple{"scalar_48k", 40, 64}, {"tensor_cores", 128, 32}, {"scalar", 88, 128}}) {
    for (const int delta : {-1, 0, 1}) {
      Attention s = shape_for(variant(name), 1, 1, 1, tile + delta, 2 * tile - delta, dim, delta != 0);
      CHECK(suite::passes(variant(name), {{s}}) == 1);
    }
  }
}

TEST_CASE("lengths around every variant's blocks are right for every variant, in both types", "[.long]") {
  std::vector<suite::Case> cases;
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16}) {
    for (const auto& [tile, dim] : {std::pair{40, 64}, {128, 32}, {88, 128}}) {
      for (const int delta : {-1, 0, 1}) {
        Attention s = fp32_shape(1, tile + delta, 2 * tile - delta, dim);
        s.causal = delta != 0;
        s.dtype = dtype;
        cases.push_back({s});
      }
    }
  }
  for (const std::string& name : right_variants) CHECK(suite::passes(variant(name), cases) >= 9);
}

TEST_CASE("a block of queries is not skipped where the diagonal enters it at its last row") {
  // Blocks of 40 queries and 40 keys. Key 0 lies beside query 39 = 90 − 51: the last of the first block.
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    Attention s = shape_for(variant("scalar_48k"), 1, 2, 2, 90, 51, 64, true);
    s.dtype = dtype;
    CHECK(suite::passes(variant("scalar_48k"), {{s}}) == 1);
  }
}

TEST_CASE("keys and values after a position do not change the rows before it, by a bit") {
  for (const std::string& name : right_variants) {
    suite::is_causal(variant(name), shape_for(variant(name), 1, 2, 1, 41, 41, 32, true));
    suite::is_causal(variant(name),
                     shape_for(variant(name), 1, 1, 1, 20, 150, 64, true));  // several blocks of keys, but for the largest
  }
}

TEST_CASE("batch entries and heads do not influence each other, by a bit") {
  for (const std::string& name : right_variants) {
    suite::heads_are_independent(variant(name), shape_for(variant(name), 2, 4, 2, 19, 37, 64, false));
  }
}

TEST_CASE("the order of the keys does not matter") {
  for (const std::string& name : right_variants) {
    suite::ignores_key_order(variant(name), shape_for(variant(name), 1, 3, 3, 65, 197, 64, false));
  }
}

TEST_CASE("scores of −∞ add nothing and hide nothing; +∞ and NaN make their row NaN") {
  for (const std::string& name : right_variants) {
    suite::takes_infinite_scores(variant(name), shape_for(variant(name), 1, 1, 1, 33, 150, 32, false));
  }
}

TEST_CASE("scores of any size, alone in their rows") {
  for (const std::string& name : right_variants) {
    suite::takes_scores_far_from_zero(variant(name), shape_for(variant(name), 1, 1, 1, 33, 150, 32, false));
    suite::takes_scores_far_from_zero(variant(name), shape_for(variant(name), 1, 1, 1, 33, 64, 64, true));
  }
}

TEST_CASE("a scale of 0 gives uniform rows") {
  for (const std::string& name : right_variants) {
    Attention s = shape_for(variant(name), 1, 2, 1, 33, 145, 64, true);
    s.scale = 0.0f;
    REQUIRE(suite::passes(variant(name), {{s}}) == 1);
  }
}

TEST_CASE("NaN and infinity reach the rows that see them, and no others") {
  for (const std::string& name : right_variants) {
    suite::contains_nan(variant(name), shape_for(variant(name), 2, 2, 1, 31, 45, 32, true));
    suite::contains_nan(variant(name),
                        shape_for(variant(name), 1, 1, 1, 40, 150, 64, true));  // several blocks of keys, but for the largest
  }
}

TEST_CASE("… and after a position, and where a NaN is seen, over several blocks of queries and keys", "[.long]") {
  for (const std::string& name : right_variants) {
    suite::is_causal(variant(name), shape_for(variant(name), 1, 2, 2, 50, 150, 64, true));
    suite::contains_nan(variant(name), shape_for(variant(name), 1, 2, 1, 150, 150, 64, true));
  }
}

TEST_CASE("a negative scale is a scale like any other") {
  for (const std::string& name : right_variants) {
    Attention s = shape_for(variant(name), 1, 2, 1, 33, 145, 64, true);
    s.scale = -0.5f;
    CHECK(outcome_of(variant(name), s).pass());
  }
}

TEST_CASE("only the row block is updated: more queries do not change a bit of those before") {
  const Attention both = fp32_shape(1, 80, 90, 64);  // of scalar_48k: two row blocks, three blocks of keys
  AttentionInputs inputs = problem::make_inputs(both, 3);
  const run::Outcome all = run::execute(variant("scalar_48k"), both, inputs);
  Attention one = both;
  one.seq_q = 40;
  inputs.q = first_keys(inputs.q, one.seq_q);
  const run::Outcome first = run::execute(variant("scalar_48k"), one, inputs);
  REQUIRE((all.pass() && first.pass()));
  CHECK(!check::first_difference(first_keys(all.output("o"), one.seq_q).values, first.output("o").values));
}

// ---- the state between two blocks of keys ----

TEST_CASE("after each block of keys O and LSE are exact over the keys seen so far") {
  const Attention shape = fp32_shape(2, 45, 130, 64);
  const AttentionInputs inputs = problem::make_inputs(shape, 2);
  for (int keys = faulty::block_keys(64); keys < shape.seq_k; keys += faulty::block_keys(64)) {
    Attention seen = shape;
    seen.seq_k = keys;
    const run::AttentionTruth truth(seen, {inputs.q, first_keys(inputs.k, keys), first_keys(inputs.v, keys)});
    const run::Outcome stopped = run::execute(faulty::stopped_after(keys), shape, inputs, {}, &truth);
    INFO("after " << keys << " keys: " << stopped.verdict->reason());
    CHECK(stopped.pass());
    // And not of all keys: the truth of these rejects it.
    CHECK(!run::execute(faulty::stopped_after(keys), shape, inputs).pass());
  }
}

TEST_CASE("O, l and m are all that goes from one block of keys to the next: stopped and continued, the bits are the same") {
  const Attention shape = fp32_shape(2, 45, 130, 64);
  const AttentionInputs inputs = problem::make_inputs(shape, 2);
  const run::Outcome whole = run::execute(variant("scalar_48k"), shape, inputs);
  const run::Outcome parts = run::execute(faulty::stopped_and_continued(2 * faulty::block_keys(64)), shape, inputs);
  REQUIRE((whole.pass() && parts.pass()));
  for (const char* name : {"o", "lse"}) {
    CHECK(!check::first_difference(whole.output(name).values, parts.output(name).values));
  }
}

// ---- what is broken ----

TEST_CASE("without the factor on P·V the checker rejects O wherever a block's maximum is not the row's, and LSE is right") {
  const run::AttentionVariant& wrong = variant("wrong_update");
  for (const Attention& shape : {fp32_shape(2, 64, 64, 64), fp32_shape(1, 97, 203, 32), fp32_shape(1, 33, 41, 64),
                                 fp32_shape(3, 5, 217, 128), shape_for(wrong, 1, 4, 2, 90, 120, 64, true)}) {
    is_rejected(wrong, shape);
    CHECK(outcome_of(wrong, shape).verdict->tensors[1].pass);
  }
  const Attention two_blocks = fp32_shape(1, 9, 80, 64);
  CHECK(!run::execute(wrong, two_blocks, graded_scores(two_blocks, -0.05f)).pass());  // the second block's maximum is lower
}

TEST_CASE("without the factor on P·V the result happens to be right where each block brings the maximum, or there is one") {
  const run::AttentionVariant& wrong = variant("wrong_update");
  const Attention blocks = fp32_shape(2, 9, 130, 64);
  CHECK(run::execute(wrong, blocks, graded_scores(blocks, 0.05f)).pass());
  CHECK(outcome_of(wrong, blocks, InputKind::uniform).pass());
  CHECK(outcome_of(wrong, fp32_shape(2, 64, faulty::block_keys(64), 64)).pass());
}

TEST_CASE("without the rescale of O the checker rejects O wherever a later block brings a larger maximum") {
  for (const Attention& shape :
       {fp32_shape(2, 64, 64, 64), fp32_shape(1, 97, 203, 32), fp32_shape(1, 33, 81, 64), fp32_shape(3, 5, 217, 128)}) {
    is_rejected(faulty::without_rescale(), shape);
    is_rejected(faulty::without_rescale(), shape, InputKind::large);
  }
}

TEST_CASE("⌊N / Bc⌋ blocks instead of ⌈N / Bc⌉ lose the keys of the last, and the checker rejects O") {
  for (const int keys : {41, 79, 121, 203}) is_rejected(faulty::whole_blocks_only(), fp32_shape(2, 17, keys, 64));
  CHECK(outcome_of(faulty::whole_blocks_only(), fp32_shape(2, 17, 120, 64)).pass());  // no test of multiples would see it
}

TEST_CASE("without the last block of keys the checker rejects O") {
  for (const int keys : {41, 80, 121, 203}) is_rejected(faulty::without_last_block(), fp32_shape(2, 17, keys, 64));
}

TEST_CASE("--variant all leaves a demonstration out, and only demonstrations") {
  for (const run::AttentionVariant& v : run::this_step_as<run::AttentionStep>().variants) {
    const auto in = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), v.name) != names.end();
    };
    const bool right = in(right_variants) || in(between);
    CHECK(v.demonstration.empty() == right);
  }
}

// ---- block sizes and bytes ----

TEST_CASE("the paper's block sizes do not fit one multiprocessor at fp32 and d = 128: not even without S") {
  constexpr int m = 227 * 1024 / 4;
  const flash_v1::BlockSizes sizes = flash_v1::papers_sizes(m, 128);
  CHECK(m == 58112);
  CHECK(sizes.keys == 114);
  CHECK(sizes.rows == 114);
  CHECK(flash_v1::qkvo_words(sizes, 128) == 58368);
  CHECK(flash_v1::s_words(sizes) == 12996);
  CHECK(flash_v1::papers_sizes(m, 64).rows == 64);
}

TEST_CASE("the budget with S in it is kept, and 8 keys more would break it") {
  for (const int kib : {48, 99, 227}) {
    for (const int dim : {32, 64, 128, 256}) {
      const int m = kib * 256;
      const flash_v1::BlockSizes sizes = flash_v1::sizes_that_fit(m, dim);
      INFO(kib << " KiB, d " << dim << ": " << sizes.rows << " x " << sizes.keys);
      CHECK(sizes.rows == std::min(sizes.keys, dim));
      CHECK(flash_v1::all_words(sizes, dim) <= m);
      CHECK(flash_v1::all_words({std::min(sizes.keys + 8, dim), sizes.keys + 8}, dim) > m);
    }
  }
}

TEST_CASE("M is one multiprocessor's, in elements: taken as 132 of them, or in bytes, the blocks do not fit") {
  constexpr int m = 227 * 1024 / 4;
  CHECK(flash_v1::all_words(flash_v1::papers_sizes(132 * m, 64), 64) > 99 * m);
  CHECK(flash_v1::all_words(flash_v1::papers_sizes(4 * m, 64), 64) > 3 * m);
}

TEST_CASE("the predicted bytes are 2 Sk d e + Tc Sq (d e + 8 d + 16) a head, and a causal mask saves row blocks") {
  for (const char* name : {"scalar_48k", "scalar_99k", "scalar", "tensor_scores", "register_softmax", "tensor_cores"}) {
    Attention s = shape_for(variant(name), 1, 3, 3, 1024, 2048, 64, false);
    const double e = static_cast<double>(problem::bytes(s.dtype));
    const std::string_view memory = name;
    const int words = memory == "scalar_48k" ? 48 * 256 : memory == "scalar_99k" ? 99 * 256 : 227 * 256;
    const int block = memory.starts_with("scalar") ? flash_v1::sizes_that_fit(words, 64).keys : 128;
    const double passes = (2048 + block - 1) / block;
    const auto bytes = [&] {
      const problem::KernelCost cost = variant(name).cost(s)[1];
      return cost.bytes_read + cost.bytes_written;
    };
    const double dense = bytes();
    CHECK(dense == 3 * (2 * 2048 * 64 * e + passes * 1024 * (64 * e + 8 * 64 + 16)));
    s.causal = true;
    CHECK(bytes() < dense);
    CHECK(bytes() > dense / 2);
  }
}
