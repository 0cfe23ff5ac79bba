// The rows of common/problem/attention_options.h: what follows from them holds for every option, also for one to come.
#include <cmath>
#include <limits>

#include "common/problem/attention_options.h"
#include "common/run/family/attention.h"
#include "tests/catch.h"

namespace {

using problem::Attention;
using problem::OptionKind;

// A value that is not the default.
template <class Option>
Attention with(Option option) {
  Attention shape;
  option.field(shape) = 1;
  return shape;
}

std::string words_against(const Attention& shape) {
  try {
    problem::resolve(shape);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every option of attention is taken at both ends of its range, and refused by name and with the range beyond") {
  int with_range = 0;
  problem::each(problem::attention_options, [&](auto option) {
    if constexpr (option.kind != OptionKind::on_off && option.kind != OptionKind::seed) {
      ++with_range;
      INFO(option.name);
      const auto against = [&](double value) {
        Attention shape;
        option.field(shape) = static_cast<decltype(problem::plain(option.field(shape)))>(value);
        return words_against(shape);
      };
      const double step = option.kind == OptionKind::number ? 0x1p105 : 1;  // more than fp32 rounds off at 2^127
      CHECK(against(option.least).empty());
      CHECK(against(option.most).empty());
      for (const double beyond : {option.least - step, option.most + step}) {
        if (option.kind == OptionKind::whole_number && std::abs(beyond) > std::numeric_limits<int>::max()) continue;
        CHECK_THAT(against(beyond), ContainsSubstring(std::string(option.name) + " is "));
        CHECK_THAT(against(beyond), ContainsSubstring("; it must be " + std::string(option.range)));
      }
      if (option.kind == OptionKind::number) CHECK(!against(std::nan("")).empty());
    }
  });
  CHECK(with_range >= 3);  // window, dropout, scale
}

TEST_CASE("a variant that takes no option refuses each of them by its name, and lists none") {
  run::AttentionSupport none, all;
  problem::each(problem::attention_options, [&](auto option) {
    if constexpr (option.some_variants) {
      option.field(none) = false;
      option.field(all) = true;
    }
  });
  int refused = 0;
  problem::each(problem::attention_options, [&](auto option) {
    if constexpr (option.some_variants) {
      ++refused;
      const auto why = run::refusal(none, problem::resolve(with(option)));
      CHECK_THAT(why.value_or("served"), ContainsSubstring("does not support " + std::string(option.refused) + ";"));
      CHECK(!run::refusal(all, problem::resolve(with(option))));
      CHECK_THAT(to_string(all), ContainsSubstring(option.listed));
    }
  });
  CHECK(refused >= 3);  // causal, window, dropout
  CHECK(to_string(none) == "fp32; any dim up to 256; not causal; any length; grouped heads");
}
