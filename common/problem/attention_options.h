// The options of attention that are a switch or a number, a row each. From its row follow an option's flag and help, its place
// in JSON and in what is printed, and the refusal of what is out of range or of what a variant does not take.
//
// Each side has a field of the option's name: problem::Attention holds its value; run::AttentionSupport says whether a variant
// takes it; a C structure of the library holds its value as C has it. So a row has one function that finds the field in any of
// them. CONTRIBUTING.md says how to add an option.
#pragma once

#include <climits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "common/problem/attention.h"

namespace problem {

// What the value is, and how people type it.
enum class OptionKind {
  on_off,        // the flag alone
  whole_number,  // 0: off; people type 1 or more
  number,        // fp32
  of_256,        // n of 256; people type a probability
  seed,          // 64 bits
};

enum class TakenBy {
  all_variants,
  some_variants,  // AttentionSupport has a bool
};

enum class InJson { always, if_on, elsewhere };  // elsewhere: within the entry of another option

struct OptionWords {
  std::string_view name;  // in JSON, in the library's structure and in Python; the flag has - for each _
  const char* help;       // of the flag
  double least = 0, most = 0;
  const char* range = nullptr;  // the same in words: "0 (none) to 7"; null: every value of the type
  InJson json = InJson::if_on;
  bool printed = true;            // with the problem, if it is on: ", window 5"
  const char* refused = nullptr;  // what a variant does not support: "a window"
  const char* listed = "";        // in the list of what a variant supports, with what separates it: ", window"
  const char* not_listed = "";    // there, of a variant that does not take the option
};

template <OptionKind Kind, TakenBy By, class Field>
struct Option : OptionWords {
  static constexpr OptionKind kind = Kind;
  static constexpr bool some_variants = By == TakenBy::some_variants;
  Field field;

  bool is_on(const Attention& shape) const { return field(shape) != field(Attention()); }
};

template <OptionKind Kind, TakenBy By, class Field>
constexpr Option<Kind, By, Field> option(const OptionWords& words, Field field) {
  // A row that lacks its words is no constant, and does not compile.
  if (Kind != OptionKind::on_off && Kind != OptionKind::seed && words.range == nullptr) throw "its range is missing";
  if (By == TakenBy::some_variants && words.refused == nullptr) throw "what a variant does not support is missing";
  return {words, field};
}

inline constexpr auto causal_option = option<OptionKind::on_off, TakenBy::some_variants>(
    {.name = "causal",
     .help = "query i sees the keys j ≤ i + seq_k − seq_q",
     .json = InJson::always,
     .refused = "causal",
     .listed = "causal",
     .not_listed = "not causal"},
    [](auto&& x) -> auto& { return x.causal; });

inline constexpr auto window_option = option<OptionKind::whole_number, TakenBy::some_variants>(
    {.name = "window",
     .help = "query i sees the keys j with |i + seq_k − seq_q − j| < N",
     .most = INT_MAX,
     .range = "0 (none) to 2^31 − 1",
     .json = InJson::always,
     .refused = "a window",
     .listed = ", window"},
    [](auto&& x) -> auto& { return x.window; });

inline constexpr auto dropout_option = option<OptionKind::of_256, TakenBy::some_variants>(
    {.name = "dropout",
     .help = "leave out a pair of a query and a key with this probability, rounded to n/256",
     .most = 255,
     .range = "0 to 255, so that something is left",
     .json = InJson::elsewhere,
     .printed = false,
     .refused = "dropout",
     .listed = "; dropout"},
    [](auto&& x) -> auto& { return x.dropout; });

inline constexpr auto dropout_seed_option = option<OptionKind::seed, TakenBy::all_variants>(
    {.name = "dropout_seed", .help = "of dropout: which pairs (default 1)", .json = InJson::elsewhere, .printed = false},
    [](auto&& x) -> auto& { return x.dropout_seed; });

inline constexpr auto scale_option = option<OptionKind::number, TakenBy::all_variants>(
    {.name = "scale",
     .help = "factor on Q·Kᵀ (default: 1/√dim)",
     .least = -0x1p127,
     .most = 0x1p127,
     .range = "a number from −2^127 to 2^127",
     .json = InJson::always,
     .printed = false},
    [](auto&& x) -> auto& { return x.scale; });

inline constexpr auto softcap_option = option<OptionKind::number, TakenBy::some_variants>(
    {.name = "softcap",
     .help = "a scaled score s becomes C · tanh(s / C)",
     .most = 0x1p127,
     .range = "0 (none) to 2^127",
     .refused = "a softcap",
     .listed = "; softcap"},
    [](auto&& x) -> auto& { return x.softcap; });

inline constexpr auto alibi_option = option<OptionKind::number, TakenBy::some_variants>(
    {.name = "alibi",
     .help = "add −slope · |i + seq_k − seq_q − j| to scores; head h of n has the slope 2^(−M · (h + 1) / n) (M: 8 as a rule)",
     .most = 1024,
     .range = "0 (none) to 1024",
     .refused = "ALiBi",
     .listed = "; ALiBi"},
    [](auto&& x) -> auto& { return x.alibi; });

// Which pairs of a query and a key there are; packed sequences and sparse masks, which are arrays, say that, too.
inline constexpr std::tuple visibility_options{causal_option, window_option};
// What becomes of probabilities.
inline constexpr std::tuple dropout_options{dropout_option, dropout_seed_option};
// What becomes of scores.
inline constexpr std::tuple score_options{scale_option, softcap_option, alibi_option};

inline constexpr auto attention_options = std::tuple_cat(visibility_options, dropout_options, score_options);

// visit(option) for each of them.
template <class Options, class Visit>
constexpr void each(const Options& options, const Visit& visit) {
  std::apply([&](const auto&... option) { (visit(option), ...); }, options);
}

std::string flag_of(const OptionWords& option);  // "--dropout-seed"

// A value, which is there once a problem is resolved.
template <class Value>
Value plain(Value value) {
  return value;
}
template <class Value>
Value plain(const std::optional<Value>& value) {
  return value.value();
}

// As people read it.
std::string text(int value);
std::string text(float value);

// Those that are on and printed with the problem: ", causal, window 5".
template <class Options>
std::string printed(const Options& options, const Attention& shape) {
  std::string all;
  each(options, [&](auto option) {
    if (!option.printed || !option.is_on(shape)) return;
    all += ", " + std::string(option.name);
    if constexpr (option.kind != OptionKind::on_off) all += " " + text(plain(option.field(shape)));
  });
  return all;
}

// Throws std::invalid_argument, naming the option, where one is out of its range.
void require_ranges(const Attention& shape);

}  // namespace problem
