#include "common/problem/linear.h"

#include <algorithm>

#include "common/problem/linear_fields.h"
#include "common/problem/require.h"

namespace problem {
namespace {

double elements(std::int64_t entries, int rows, int columns) { return static_cast<double>(entries) * rows * columns; }

std::string text(const char* field, int value) { return std::string(field) + " is " + std::to_string(value); }

void require_stride(const char* field, int stride, const char* extent, int least) {
  require_extent(field, stride);
  require(stride >= least, text(field, stride) + "; it must be " + extent + ", " + std::to_string(least) + ", or more");
}

// So many entries of weights, by their number's field, for so many entries of tokens.
void require_ratio(const char* weights_field, int weights, const char* field, int count) {
  require_extent(field, count);
  require_extent(weights_field, weights);
  require(count % weights == 0,
          text(weights_field, weights) + "; it must divide " + field + ", " + std::to_string(count) + ", without a rest");
}

// Of experts, which are the channels of the weights.
void require_routing(const Linear& shape) {
  require(shape.top >= 1, text("top", shape.top) + "; a token must name 1 expert or more");
  require(shape.top <= shape.experts,
          text("top", shape.top) + "; it must be at most experts, " + std::to_string(shape.experts));
  require_extent("experts", shape.experts);
  require_extent("top", shape.top);
  require(shape.pairs() <= max_extent, "the problem is too large: m · top is " + std::to_string(shape.pairs()) +
                                           "; it must be at most " + std::to_string(max_extent));
  require(shape.samples == 1, text("samples", shape.samples) + "; with experts it must be 1");
  require(shape.channels == 1, text("channels", shape.channels) + "; with experts it must be 1");
  require(shape.weight_samples == 1, text("weight_samples", shape.weight_samples) + "; with experts it must be 1");
  require(shape.weight_channels == shape.experts, text("weight_channels", shape.weight_channels) +
                                                      "; experts are the channels of the weights, and there are " +
                                                      std::to_string(shape.experts));
}

}  // namespace

std::string_view activation_name(Activation activation) { return activation_names[static_cast<std::size_t>(activation)]; }

std::optional<Activation> activation_from_name(std::string_view name) {
  const auto at = std::find(activation_names.begin(), activation_names.end(), name);
  if (at == activation_names.end()) return std::nullopt;
  return static_cast<Activation>(at - activation_names.begin());
}

std::int64_t Linear::weights_of(std::int64_t entry) const {
  const std::int64_t sample = entry / channels / (samples / weight_samples);
  return sample * weight_channels + entry % channels / (channels / weight_channels);
}

double Linear::flops() const { return 2 * elements(entries(), m, n) * k * std::max(top, 1); }

double Linear::compulsory_bytes() const {
  const auto size = [](const std::optional<Dtype>& type) { return static_cast<double>(bytes(type.value())); };
  const std::int64_t matrices = is_routed() ? std::min(weight_entries(), pairs()) : weight_entries();
  const double slots = is_routed() ? 2.0 * sizeof(float) * static_cast<double>(pairs()) : 0;  // an id and a weight each
  return size(dtype_a) * elements(entries(), m, k) +
         size(dtype) * (elements(matrices, n, k) + (bias ? elements(matrices, n, 1) : 0)) +
         size(dtype_c) * elements(entries(), m, n) + slots;
}

Linear resolve(Linear shape) {
  if (shape.weight_samples == 0) shape.weight_samples = shape.samples;
  if (shape.weight_channels == 0) shape.weight_channels = shape.is_routed() ? shape.experts : shape.channels;
  if (shape.lda == 0) shape.lda = shape.k;
  if (shape.ldb == 0) shape.ldb = shape.k;
  if (shape.ldc == 0) shape.ldc = shape.n;
  if (!shape.dtype_a) shape.dtype_a = shape.dtype;
  if (!shape.dtype_c) shape.dtype_c = shape.dtype;
  require(shape.experts >= 0, text("experts", shape.experts) + "; it must be 0 or more");
  require(shape.is_routed() || shape.top == 0, text("top", shape.top) + "; without experts it must be 0");
  require_extent("m", shape.m);
  if (shape.is_routed()) {
    require_routing(shape);
  } else {
    require_ratio("weight_samples", shape.weight_samples, "samples", shape.samples);
    require_ratio("weight_channels", shape.weight_channels, "channels", shape.channels);
  }
  require_extent("n", shape.n);
  require_extent("k", shape.k);
  require_stride("lda", shape.lda, "k", shape.k);
  require_stride("ldb", shape.ldb, "k", shape.k);
  require_stride("ldc", shape.ldc, "n", shape.n);
  require(shape.dtype != Dtype::fp32, "dtype is fp32; weights must be fp16 or bf16");
  require(shape.dtype_a == shape.dtype || shape.dtype_a == Dtype::fp32, "dtype_a is " + std::string(name(*shape.dtype_a)) +
                                                                            "; tokens must be fp32 or of the weights' type, " +
                                                                            std::string(name(shape.dtype)));
  require_countable({{"samples · channels · m · lda", elements(shape.entries(), shape.m, shape.lda)},
                     {"weight_samples · weight_channels · n · ldb", elements(shape.weight_entries(), shape.n, shape.ldb)},
                     {"samples · channels · m · ldc", elements(shape.entries(), shape.m, shape.ldc)}});
  return shape;
}

std::string to_string(const Linear& shape) {
  std::string all;
  for (const LinearField& field : linear_fields) {
    if (shape.*field.value == 0) continue;  // no experts
    all += std::string(field.name) + " " + std::to_string(shape.*field.value) + ", ";
  }
  all += "tokens " + std::string(name(shape.dtype_a.value())) + ", weights " + std::string(name(shape.dtype)) + ", C " +
         std::string(name(shape.dtype_c.value()));
  if (shape.bias) all += ", bias";
  if (shape.activation != Activation::none) all += ", " + std::string(activation_name(shape.activation));
  return all;
}

}  // namespace problem
