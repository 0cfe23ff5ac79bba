// Step 09: what its exercises share. An exercise is a step of its own, in fp16, whose only variant attends with warp rings.
#pragma once

#include <iostream>

#include "common/run/family/any_step.h"
#include "steps/09_decoding/03_split_kv.cuh"
#include "steps/09_decoding/host.h"

namespace decoding {

inline run::AttentionStep exercise_step(std::string name, std::string question, Attention default_shape,
                                        run::AttentionVariant variant) {
  variant.supports = {.dtypes = {problem::Dtype::fp16}, .dims = {64, 128}, .window = true, .row_alignment = 16};
  variant.shared_bytes = [](const Attention& a) {
    return device::with_at_least<64, 128>(a.dim, [](auto dim) { return sizeof(RingSmem<__half, RungTile<dim>>); });
  };
  default_shape.dtype = problem::Dtype::fp16;
  return {{.name = std::move(name),
           .question = std::move(question),
           .default_shape = default_shape,
           .default_variant = variant.name,
           .variants = {variant}}};
}

inline Work exercise_work(const Attention& a) { return Work(run::device_shape(a), RungTile<64>::keys); }

// A kernel that writes parts, and one that merges them.
inline std::vector<problem::KernelCost> costs_of(const Attention& a, const char* attends, const run::Arrays& scratch) {
  const auto parts = static_cast<double>(run::scratch_bytes(scratch));
  problem::KernelCost whole = problem::flash_cost(a, attends);
  const problem::KernelCost combine = {"combine", 0, parts, whole.bytes_written};
  whole.bytes_written = parts;
  return {whole, combine};
}

// Says why O stays unwritten, once: a program runs twice.
inline void complain(const std::string& why) {
  static std::string said;
  if (why != said) std::cerr << why << '\n';
  said = why;
}

}  // namespace decoding
