#include "common/run/family/backward.h"

#include <algorithm>

#include "common/run/family/heads.h"
#include "common/run/harness/device.h"

namespace run {

using problem::Dtype;

std::optional<std::string> refusal(const AttentionSupport& supports, const BackwardLaunch& l) {
  const auto element = static_cast<std::int64_t>(problem::bytes(l.shape.dtype));
  const auto fits = [&](const auto& x) { return has_rows_at(x, supports.row_alignment, element); };
  const int seq_q = l.shape.seq_q, seq_k = l.shape.seq_k;
  return refusal_of_rows(
      supports, fits(l.q) && fits(l.k) && fits(l.v) && fits(l.o) && fits(l.d_o) && fits(l.dq) && fits(l.dk) && fits(l.dv),
      std::max({row_distance(l.q, seq_q), row_distance(l.k, seq_k), row_distance(l.v, seq_k), row_distance(l.o, seq_q),
                row_distance(l.d_o, seq_q), row_distance(l.dq, seq_q), row_distance(l.dk, seq_k), row_distance(l.dv, seq_k)}));
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
  auto verdicts = truth.judge(tensor_of(outputs, "dq"), tensor_of(outputs, "dk"), tensor_of(outputs, "dv"));
  for (check::TensorVerdict& mask : judge_mask(truth.shape(), outputs)) verdicts.push_back(std::move(mask));
  return verdicts;
}

void run_forward(const BackwardStep& step, const problem::Backward& shape, problem::BackwardInputs& in) {
  const std::vector<AttentionVariant>& variants = step.forward->variants;
  std::string why_not;  // of the last
  const auto serves = [&](const AttentionVariant& v) {
    const std::optional<std::string> reason = refusal(v.supports, shape);
    why_not = v.name + " " + reason.value_or(device_refusal(runtime::properties(), v, shape).value_or("is a demonstration"));
    return !reason && !device_refusal(runtime::properties(), v, shape) && v.demonstration.empty();
  };
  const AttentionVariant* chosen = best_variant(*step.forward, serves);
  if (chosen == nullptr) {
    const auto any = std::find_if(variants.begin(), variants.end(), serves);
    if (any == variants.end()) throw std::invalid_argument("O and LSE cannot be made: " + step.forward->name + "'s " + why_not);
    chosen = &*any;
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
