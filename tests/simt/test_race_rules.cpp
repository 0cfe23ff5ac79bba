// The race rules (races.h, rows.h) against a model that is too slow for kernels and too simple to be wrong: it keeps every
// access, and for each thread how much of whom it has seen. Both get the same random accesses and meetings, and must
// agree on each access: does it race?
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/simt/memory.h"
#include "common/simt/races.h"
#include "common/simt/rows.h"
#include "tests/catch.h"

namespace simt {

// The rules ask of a flag whether it lies in device memory. Here nothing does.
std::uintptr_t Heap::base = std::uintptr_t{1} << 40;
std::uint8_t* Heap::shadows = nullptr;

}  // namespace simt

namespace {

using simt::Halves;
using simt::Kind;
using simt::Scope;

constexpr unsigned threads = 96;       // of a block: three warps
constexpr unsigned memory_bytes = 32;  // two rows
const std::array<const char*, 3> places = {reinterpret_cast<const char*>(0x1000), reinterpret_cast<const char*>(0x2000),
                                           reinterpret_cast<const char*>(0x3000)};

struct Event {
  unsigned block = 0;
  unsigned first = 0, bytes = 0;
  Kind kind = Kind::read;
  Scope scope = Scope::thread;
};

// ---- the model ----

constexpr unsigned actors = 43;  // more than a warp has lanes
constexpr unsigned everyone = 2 * threads + actors;
using Seen = std::array<unsigned, everyone>;  // of each, how many of its accesses

void join(Seen& into, const Seen& other) {
  for (unsigned who = 0; who < everyone; ++who) into[who] = std::max(into[who], other[who]);
}

class Model {
 public:
  static unsigned thread(unsigned block, unsigned t) { return block * threads + t; }
  static unsigned actor(unsigned a) { return 2 * threads + a; }

  bool races(unsigned who, const Event& e) {
    return std::any_of(events_.begin(), events_.end(), [&](const Kept& earlier) {
      if (earlier.who == who || (earlier.e.kind == Kind::read && e.kind == Kind::read)) return false;
      if ((earlier.bytes & mask(e.first, e.bytes)) == 0) return false;
      const bool whole = earlier.e.first == e.first && earlier.e.bytes == e.bytes;
      const Scope both = earlier.e.block == e.block ? Scope::block : Scope::device;
      if (whole && std::min(earlier.e.scope, e.scope) >= both) return false;
      return seen[who][earlier.who] < earlier.count;
    });
  }
  void add(unsigned who, const Event& e) { events_.push_back({e, who, ++seen[who][who], mask(e.first, e.bytes)}); }
  // The last `accesses` were the beginning of a copy that is over: it was the actor's, and what came before counts no more.
  void give_to_actor(unsigned who, std::size_t accesses, const Event& copy) {
    events_.resize(events_.size() - accesses);
    for (Kept& kept : events_) kept.bytes &= ~mask(copy.first, copy.bytes);
    add(who, copy);
  }

  std::vector<Seen> seen = std::vector<Seen>(everyone);

 private:
  struct Kept {
    Event e;
    unsigned who;
    unsigned count;
    std::uint32_t bytes;
  };
  static std::uint32_t mask(unsigned first, unsigned bytes) {
    return static_cast<std::uint32_t>(((std::uint64_t{1} << bytes) - 1) << first);
  }
  std::vector<Kept> events_;
};

// ---- one random sequence, until something races ----

class Sequence {
 public:
  explicit Sequence(std::uint64_t seed) : state_(seed) {
    blocks_ = 1 + below(2);
    active_lanes_ = 1 + below(8);
    span_ = below(2) == 0 ? 8 : memory_bytes;
    places_ = 1 + below(3);
    care_ = 8 + below(80);
    stores_in_ten_ = 1 + below(10);
    races_.reserve(memory_bytes);
    races_.forget();
    for (unsigned b = 0; b < blocks_; ++b) order_[b].begin_block(b + 5, threads, nullptr, &flags_);
    active_actors_ = below(4) == 0 ? actors : 3;
    for (unsigned a = 0; a < active_actors_; ++a) order_[0].new_actor();
  }

  void run() {
    for (int step = 0; step < 200 && !raced_ && !differs_; ++step) {
      const unsigned block = below(blocks_), dice = below(100);
      if (dice < 52) {
        access(block);
      } else if (dice < 59) {
        matrix_row(block);
      } else if (dice < 70) {
        warp_barrier(block);
      } else if (dice < 76) {
        arrive();
      } else if (dice < 82) {
        wait();
      } else if (dice < 88) {
        copy();
      } else if (dice < 92) {
        full_barrier(block);
      } else if (blocks_ == 2) {
        cluster_barrier();
      }
    }
  }
  bool raced() const { return raced_; }
  bool differs() const { return differs_; }
  const std::string& log() const { return log_; }

 private:
  unsigned below(unsigned n) {
    state_ += 0x9e3779b97f4a7c15u;  // SplitMix64
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<unsigned>((z ^ (z >> 31)) % n);
  }
  unsigned any_thread() { return 32 * below(below(3) == 0 ? 3 : 2) + below(active_lanes_); }
  Kind any_kind() { return below(10) < stores_in_ten_ ? Kind::write : Kind::read; }
  const void* any_place() { return places[below(places_)]; }
  bool mostly() { return below(care_) != 0; }  // else a sequence would seldom get far
  void say(const std::string& what) { log_ += what + '\n'; }

  void compare(bool model, bool rules, const std::string& what) {
    say(what + (model ? ", races" : ""));
    raced_ |= model && rules;
    differs_ |= model != rules;
  }

  void make(unsigned t, const Event& e, const void* pc) {
    const unsigned who = Model::thread(e.block, t);
    const bool wide = e.scope != Scope::thread && e.bytes == 8;
    const bool model = model_.races(who, e);
    const bool rules =
        races_.access(order_[e.block], {static_cast<std::uint16_t>(t), pc}, e.first, e.bytes, e.kind, e.scope, wide)
            .has_value();
    model_.add(who, e);
    compare(model, rules,
            std::string(e.kind == Kind::write ? "store" : "load") + " of " + std::to_string(e.bytes) + " at " +
                std::to_string(e.first) + " by " + std::to_string(who) + ", scope " +
                std::to_string(static_cast<int>(e.scope)));
  }

  void access(unsigned block) {
    static constexpr unsigned sizes[] = {4, 4, 4, 2, 1, 8, 16, 16};
    const unsigned bytes = std::min(sizes[below(8)], span_);
    Event e{block, below(span_ / bytes) * bytes, bytes, any_kind()};
    if ((bytes == 4 || bytes == 8) && below(5) == 0) e.scope = below(2) == 0 ? Scope::block : Scope::device;
    unsigned t = any_thread();
    if (mostly()) {
      for (int tries = 0; model_.races(Model::thread(block, t), e); ++tries) {
        if (tries == 20) return;
        t = any_thread();
      }
    }
    make(t, e, any_place());
  }

  void matrix_row(unsigned block) {
    const bool pairs = below(2) == 0;
    const unsigned first = 32 * below(3) + (pairs ? 4 * below(2) : below(2)), at = 16 * below(2);
    const unsigned parts = pairs ? 4 : 8, bytes = 16 / parts, step = pairs ? 1 : 4;
    const Kind kind = any_kind();
    const void* const pc = any_place();
    const auto part = [&](unsigned p) { return Event{block, at + p * bytes, bytes, kind}; };
    bool model = false;
    for (unsigned p = 0; p < parts; ++p) model |= model_.races(Model::thread(block, first + step * p), part(p));
    if (model && mostly()) return;
    const Halves halves = pairs ? Halves::of_pairs : Halves::of_columns;
    if (races_.touch_row(order_[block], {static_cast<std::uint16_t>(first), pc}, at, kind, halves)) {
      for (unsigned p = 0; p < parts; ++p) model_.add(Model::thread(block, first + step * p), part(p));
      compare(model, false, "row at " + std::to_string(at) + " by " + std::to_string(Model::thread(block, first)));
      return;
    }
    for (unsigned p = 0; p < parts && !raced_ && !differs_; ++p) make(first + step * p, part(p), pc);
  }

  // All of them see what any of them saw.
  void join_all(const std::vector<unsigned>& whos) {
    Seen all{};
    for (const unsigned who : whos) join(all, model_.seen[who]);
    for (const unsigned who : whos) model_.seen[who] = all;
  }

  void warp_barrier(unsigned block) {
    const unsigned warp = below(threads / 32);
    std::vector<std::uint32_t> lanes;
    std::vector<unsigned> whos;
    for (unsigned lane = 32 * warp; lane < 32 * warp + 32; ++lane) {
      if (below(3) == 0) continue;
      lanes.push_back(lane);
      whos.push_back(Model::thread(block, lane));
    }
    order_[block].meet(lanes);
    join_all(whos);
    say("__syncwarp of some of warp " + std::to_string(warp) + " of block " + std::to_string(block));
  }

  // At one of two mbarriers, in block 0.
  void arrive() {
    const unsigned t = any_thread(), which = below(2);
    order_[0].release(meetings_[which], t);
    join(released_[which], model_.seen[Model::thread(0, t)]);
    say(std::to_string(t) + " arrives at " + std::to_string(which));
  }
  void wait() {
    const unsigned t = any_thread(), which = below(2);
    if (meetings_[which].clocks.empty()) return;
    order_[0].acquire(t, order_[0].released(meetings_[which]));
    join(model_.seen[Model::thread(0, t)], released_[which]);
    say(std::to_string(t) + " has waited at " + std::to_string(which));
  }

  // Asked for by one thread of block 0; then another one has waited for it.
  void copy() {
    static constexpr unsigned sizes[] = {4, 8, 16, 32};
    const unsigned issuer = any_thread(), waiter = any_thread(), bytes = std::min(sizes[below(4)], span_);
    const Event e{0, below(span_ / bytes) * bytes, bytes, Kind::write};
    if (mostly() && model_.races(Model::thread(0, issuer), e)) return;
    const void* const pc = any_place();
    const unsigned row = std::min(bytes, 16u);
    for (unsigned at = 0; at < bytes; at += row) {
      make(issuer, {0, e.first + at, row, Kind::write}, pc);
      if (raced_ || differs_) return;
    }
    const auto actor = static_cast<std::uint16_t>(below(active_actors_));
    const simt::Time time = order_[0].tick();
    races_.stored(order_[0], {actor, pc}, time, e.first, e.bytes);
    simt::Past past;
    order_[0].add(past, actor, time);
    order_[0].acquire(waiter, past);
    model_.give_to_actor(Model::actor(actor), bytes / row, e);
    Seen& seen = model_.seen[Model::thread(0, waiter)];
    seen[Model::actor(actor)] = model_.seen[Model::actor(actor)][Model::actor(actor)];
    say("that was a copy, by actor " + std::to_string(actor) + "; " + std::to_string(waiter) + " has waited for it");
  }

  std::vector<unsigned> all_of(unsigned block) const {
    std::vector<unsigned> whos(threads);
    for (unsigned t = 0; t < threads; ++t) whos[t] = Model::thread(block, t);
    return whos;
  }

  void full_barrier(unsigned block) {
    order_[block].full_barrier();
    if (blocks_ == 1) races_.forget();
    join_all(all_of(block));
    say("__syncthreads of block " + std::to_string(block));
  }

  // Of each block, all threads wait at once; or some come, and of these some let others see what they did.
  void cluster_barrier() {
    simt::Past all;
    std::array<simt::Past, 2> own;
    std::array<bool, 2> full{};
    std::array<std::vector<std::uint32_t>, 2> who_come, who_release;
    Seen released{};
    for (unsigned b = 0; b < 2; ++b) {
      full[b] = below(2) == 0;
      for (std::uint32_t t = 0; t < threads; ++t) {
        if (!full[b] && below(2) == 0) continue;
        who_come[b].push_back(t);
        if (!full[b] && below(4) == 0) continue;
        who_release[b].push_back(t);
        join(released, model_.seen[Model::thread(b, t)]);
      }
    }
    for (unsigned b = 0; b < 2; ++b) {
      if (full[b]) {
        order_[b].full_barrier();
        order_[b].hand_on(all);
      } else {
        simt::Meeting meeting;
        order_[b].arrive(meeting, who_release[b], true);
        order_[b].hand_on(meeting, own[b], all);
      }
    }
    for (unsigned b = 0; b < 2; ++b) {
      if (full[b]) {
        order_[b].acquire(all);
      } else {
        order_[b].acquire(who_come[b], own[b], all);
      }
    }
    if (full[0] && full[1]) races_.forget();
    for (unsigned b = 0; b < 2; ++b) {
      for (const std::uint32_t t : who_come[b]) join(model_.seen[Model::thread(b, t)], released);
    }
    say(std::string("barrier of the cluster, by ") + (full[0] ? "all" : "some") + " and by " + (full[1] ? "all" : "some"));
  }

  std::uint64_t state_;
  unsigned blocks_, active_lanes_, span_, stores_in_ten_, places_, care_, active_actors_;
  std::array<simt::Order, 2> order_;
  simt::SharedRaces races_;
  simt::Flags flags_;
  std::array<simt::Meeting, 2> meetings_;
  std::array<Seen, 2> released_{};
  Model model_;
  bool raced_ = false, differs_ = false;
  std::string log_;
};

}  // namespace

TEST_CASE("the rules call a race what a plain model calls one, in random sequences of accesses and meetings") {
  constexpr std::uint64_t sequences = 4000;
  std::uint64_t raced = 0;
  for (std::uint64_t seed = 1; seed <= sequences; ++seed) {
    Sequence sequence(seed);
    sequence.run();
    INFO("seed " << seed << "\n" << sequence.log());
    REQUIRE(!sequence.differs());
    raced += sequence.raced();
  }
  CHECK(raced > sequences / 10);  // both ends are often reached
  CHECK(raced < sequences * 9 / 10);
}

TEST_CASE("an atomic store replaces only those atomic loads of a warp that come before it") {
  simt::Flags flags;
  simt::Order order;
  simt::SharedRaces races;
  order.begin_block(0, threads, nullptr, &flags);
  races.reserve(memory_bytes);
  races.forget();
  const auto races_with_others = [&](std::uint16_t thread, const char* place, Kind kind, Scope scope) {
    return races.access(order, {thread, place}, 0, 4, kind, scope).has_value();
  };
  CHECK(!races_with_others(0, places[0], Kind::read, Scope::block));
  CHECK(!races_with_others(1, places[0], Kind::read, Scope::block));
  order.tick();
  CHECK(!races_with_others(0, places[0], Kind::read, Scope::block));
  order.meet({0, 2});
  CHECK(!races_with_others(2, places[1], Kind::write, Scope::block));
  CHECK(races_with_others(2, places[2], Kind::write, Scope::thread));  // with the load by thread 1
}
