#include "common/run/family/backward.h"

#include <algorithm>

#include "common/run/family/heads.h"

namespace run {

using problem::Dtype;

std::optional<std::string> refusal(const AttentionSupport& supports, const BackwardLaunch& l) {
  const auto element = static_cast<std::int64_t>(problem::bytes(l.shape.dtype));
  const auto fits = [&](const auto& x) { return has_rows_at(x, supports.row_alignment, element); };
  return refusal_of_rows(
      supports, fits(l.q) && fits(l.k) && fits(l.v) && fits(l.o) && fits(l.d_o) && fits(l.dq) && fits(l.dk) && fits(l.dv));
}

Arrays BackwardFamily::arrays(const Problem& a, Layout layout) {
  const std::vector<std::int64_t> query_rows = {a.batch, a.heads, a.seq_q, a.dim},
                                  key_rows = {a.batch, a.kv_heads, a.seq_k, a.dim};
  const auto queries = heads_strides(a.heads, a.seq_q, a.dim, layout), keys = heads_strides(a.kv_heads, a.seq_k, a.dim, layout);
  return Arrays{input("q", a.dtype, query_rows, queries),
                input("k", a.dtype, key_rows, keys),
                input("v", a.dtype, key_rows, keys),
                input("o", a.dtype, query_rows, queries),
                input("lse", Dtype::fp32, {a.batch, a.heads, a.seq_q}),
                input("do", a.dtype, query_rows, queries),
                output("dq", a.dtype, query_rows, queries),
                output("dk", a.dtype, key_rows, keys),
                output("dv", a.dtype, key_rows, keys)} +
         packed_arrays(a) + sparse_arrays(a) + mask_arrays(a);
}

std::vector<Given> BackwardFamily::given(const Problem& a, const Inputs& in) {
  std::vector<Given> given = given_packed(a);
  for (Given& array : given_sparse(a)) given.push_back(std::move(array));
  given.insert(given.begin(), {{"q", &in.q}, {"k", &in.k}, {"v", &in.v}, {"o", &in.o}, {"lse", &in.lse}, {"do", &in.d_o}});
  return given;
}

BackwardLaunch BackwardFamily::bind(const Problem& a, const DeviceArrays& arrays) {
  return {.shape = a,
          .q = heads_of<true>(arrays, "q"),
          .k = heads_of<true>(arrays, "k"),
          .v = heads_of<true>(arrays, "v"),
          .o = heads_of<true>(arrays, "o"),
          .d_o = heads_of<true>(arrays, "do"),
          .lse = arrays.get<float>("lse"),
          .dq = heads_of<false>(arrays, "dq"),
          .dk = heads_of<false>(arrays, "dk"),
          .dv = heads_of<false>(arrays, "dv"),
          .arrays = arrays};
}

std::vector<check::TensorVerdict> BackwardFamily::judge(const Truth& truth, const std::vector<NamedTensor>& outputs) {
  auto verdicts = truth.judge(outputs[0].tensor, outputs[1].tensor, outputs[2].tensor);
  for (check::TensorVerdict& mask : judge_mask(truth.shape(), outputs)) verdicts.push_back(std::move(mask));
  return verdicts;
}

void run_forward(const BackwardStep& step, const problem::Backward& shape, problem::BackwardInputs& in) {
  const auto& variants = step.forward->variants;
  const auto serves = [&](const AttentionVariant& v) { return !refusal(v.supports, shape) && v.demonstration.empty(); };
  auto chosen = std::find_if(variants.begin(), variants.end(),
                             [&](const AttentionVariant& v) { return v.name == step.forward->default_variant && serves(v); });
  if (chosen == variants.end()) chosen = std::find_if(variants.begin(), variants.end(), serves);
  if (chosen == variants.end()) {
    const AttentionVariant& last = variants.back();
    throw std::invalid_argument("O and LSE cannot be made: " + step.forward->name + "'s " + last.name + " " +
                                refusal(last.supports, shape).value_or("is a demonstration"));
  }
  const problem::AttentionInputs forward{in.q, in.k, in.v};
  problem::Attention without_mask = shape;
  without_mask.writes_mask = false;
  Outcome outcome = execute(*chosen, without_mask, forward, {.check = false});
  if (!outcome.pass())
    throw std::logic_error(step.forward->name + ": " + chosen->name + " is at fault; its own tests say more");
  in.o = outcome.output("o");
  in.lse = outcome.output("lse");
}

}  // namespace run
