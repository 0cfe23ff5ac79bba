// Which variants of a step a request runs.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/problem/npy.h"

namespace run {

struct Skipped {
  std::string variant;
  std::string reason;
};

template <class Variant>
struct Selection {
  std::vector<const Variant*> chosen;
  std::vector<Skipped> skipped;  // only where all were asked for
};

// `requested` is a name or "all". refusal(variant) says why a variant cannot serve the request, or nothing. Throws InputError
// for an unknown name, for a named variant that refuses, and where all refuse.
template <class Variant, class Refusal>
Selection<Variant> select(const std::vector<Variant>& variants, const std::string& requested, const Refusal& refusal) {
  Selection<Variant> selection;
  std::string names;
  for (const Variant& variant : variants) {
    names += variant.name + ", ";
    if (requested != "all" && requested != variant.name) continue;
    if (const std::optional<std::string> reason = refusal(variant)) {
      selection.skipped.push_back({variant.name, *reason});
    } else {
      selection.chosen.push_back(&variant);
    }
  }
  if (!selection.chosen.empty()) return selection;
  if (selection.skipped.empty()) throw problem::InputError("--variant: '" + requested + "' is unknown; " + names + "or all");
  const Skipped& first = selection.skipped.front();
  throw problem::InputError(std::string(requested == "all" ? "no variant supports this; " : "") + first.variant + " " +
                            first.reason);
}

}  // namespace run
