#include "common/simt/proxies.h"

#include <algorithm>

namespace simt {

void Proxies::begin_block(bool on, std::size_t bytes, std::size_t threads) {
  halves_.assign(on ? (bytes + 1) / 2 : 0, {});
  fences_.assign(on ? threads : 0, {});
  of_mbarriers_ = fences_;
}

void Proxies::stored(std::size_t offset, std::size_t bytes, const Store& store) {
  for (std::size_t half = offset / 2; half <= (offset + bytes - 1) / 2; ++half) halves_[half] = store;
}

void Proxies::fence(Order& order, std::uint32_t thread) { fences_[thread].push_back(order.tick()); }

void Proxies::fence_mbarriers(Order& order, std::uint32_t thread) { of_mbarriers_[thread].push_back(order.tick()); }

// The last fence of `whose` that the thread has seen, 0 if there is none.
Time Proxies::last_seen(Order& order, std::uint32_t thread, std::uint16_t whose, const std::vector<Times>& fences) const {
  const Times& all = fences[whose];
  const auto found = std::find_if(all.rbegin(), all.rend(), [&](Time time) {
    return order.before({order.block(), time, nullptr, whose, 0, Scope::thread, false}, thread);
  });
  return found == all.rend() ? 0 : *found;
}

std::optional<Proxies::Store> Proxies::unfenced(Order& order, std::uint32_t thread, std::size_t offset,
                                                std::size_t bytes) const {
  Store last;  // neighbours are mostly one thread's
  Time fence = 0;
  std::optional<Time> last_of_any;
  const auto of_any = [&] {
    Time latest = 0;
    for (std::size_t whose = 0; whose < fences_.size(); ++whose) {
      latest = std::max(latest, last_seen(order, thread, static_cast<std::uint16_t>(whose), fences_));
    }
    return latest;
  };
  for (std::size_t half = offset / 2; half <= (offset + bytes - 1) / 2; ++half) {
    const Store& store = halves_[half];
    if (store.time == 0) continue;
    if ((store.time & asynchronous) != 0) {  // a thread fences for it that has waited for it, whichever that is
      if (!last_of_any) last_of_any = of_any();
      fence = *last_of_any;
    } else if (last.time == 0 || (last.time & asynchronous) != 0 || last.thread != store.thread) {
      fence = last_seen(order, thread, store.thread, fences_);
    }
    last = store;
    if ((store.time & ~asynchronous) <= fence) continue;
    if (order.before({order.block(), store.time, nullptr, store.thread, 0, Scope::thread, false}, thread)) return store;
  }
  return {};
}

bool Proxies::fenced(Order& order, std::uint32_t thread, const AccessRecord& made) const {
  return made.time() <= last_seen(order, thread, made.thread(), fences_) ||
         made.time() <= last_seen(order, thread, made.thread(), of_mbarriers_);
}

}  // namespace simt
