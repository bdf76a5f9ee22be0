#include "engine/alike.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <unordered_map>

#include "base/mix.hpp"

namespace stepcast {
namespace {

/// 64 bits: that two of a million classes get the same colour has a probability of 3e-8.
using Colour = std::uint64_t;
using Colours = std::vector<Colour>;

template <class Quantity>
Colour bits_of(Quantity quantity) {
  return std::bit_cast<Colour>(quantity.value());
}

/// What a connection waits for on another one: which of its transfers for which of the other's.
struct Wait {
  int on = 0;
  Colour pattern = 0;
};

class Refinement {
 public:
  Refinement(const LoweredCollective& collective, const Schedule& schedule,
             const Groups<int>& queues, const std::vector<BytesPerSecond>& bandwidths)
      : collective_(collective),
        schedule_(schedule),
        connection_(schedule.connections.size()),
        link_(bandwidths.size()),
        end_(static_cast<std::size_t>(schedule.ends())) {
    for (std::size_t link = 0; link < link_.size(); ++link) link_[link] = bits_of(bandwidths[link]);
    for (std::size_t end = 0; end < end_.size(); ++end)
      end_[end] = static_cast<int>(end) < schedule.ranks ? 0 : 1;
    set_waits(queues);
    for (std::size_t i = 0; i < connection_.size(); ++i) {
      connection_[i] = mix(bits_of(collective.alpha[i]), bits_of(collective.latency[i]));
      for (const int transfer : queues.of(i)) {
        const auto index = static_cast<std::size_t>(transfer);
        connection_[i] = mix(connection_[i], bits_of(schedule.bytes_of(schedule.transfers[index])));
        connection_[i] = mix(connection_[i], schedule.dependencies_of(index).size());
      }
    }
  }

  /// False where hardly two connections are alike.
  bool run() {
    for (std::size_t before = 0, classes = 1; classes != before;) {
      before = classes;
      refine();
      const std::size_t of_connections = count(connection_);
      if (4 * of_connections > 3 * connection_.size()) return false;
      classes = of_connections + count(link_) + count(end_);
    }
    return true;
  }

  [[nodiscard]] Alike take() const {
    return {first_of_class(connection_), first_of_class(link_), first_of_class(end_)};
  }

 private:
  void set_waits(const Groups<int>& queues) {
    std::vector<int> place(schedule_.transfers.size());  // in its queue
    for (std::size_t i = 0; i < connection_.size(); ++i)
      for (std::size_t k = 0; k < queues.of(i).size(); ++k)
        place[static_cast<std::size_t>(queues.of(i)[k])] = static_cast<int>(k);
    std::vector<int> known(connection_.size(), -1);  // where the wait for a connection stands
    for (std::size_t i = 0; i < connection_.size(); ++i) {
      const std::size_t first = waits_.members.size();
      waits_.begin.push_back(static_cast<int>(first));
      for (const int transfer : queues.of(i))
        for (const int before : schedule_.dependencies_of(static_cast<std::size_t>(transfer))) {
          const int on = schedule_.transfers[static_cast<std::size_t>(before)].connection;
          int& at = known[static_cast<std::size_t>(on)];
          if (at < static_cast<int>(first)) {
            at = static_cast<int>(waits_.members.size());
            waits_.members.push_back({on, 0});
          }
          const Seconds heard_after = collective_.time_to_know(on, static_cast<int>(i));
          waits_.members[static_cast<std::size_t>(at)].pattern +=
              mix(mix(static_cast<Colour>(place[static_cast<std::size_t>(transfer)]),
                      static_cast<Colour>(place[static_cast<std::size_t>(before)])),
                  bits_of(heard_after));
        }
    }
    waits_.begin.push_back(static_cast<int>(waits_.members.size()));
  }

  /// Sums do not depend on the order.
  void refine() {
    Colours of_link(link_.size(), 0);
    Colours of_end(end_.size(), 0);
    for (std::size_t i = 0; i < connection_.size(); ++i) {
      for (const int link : collective_.routes[i].links)
        of_link[static_cast<std::size_t>(link)] += mix(connection_[i]);
      of_end[static_cast<std::size_t>(schedule_.connections[i].src)] += mix(connection_[i], 1);
      of_end[static_cast<std::size_t>(schedule_.connections[i].dst)] += mix(connection_[i], 2);
    }
    for (std::size_t link = 0; link < link_.size(); ++link)
      link_[link] = mix(link_[link], of_link[link]);
    for (std::size_t end = 0; end < end_.size(); ++end) end_[end] = mix(end_[end], of_end[end]);

    Colours refined(connection_.size());
    for (std::size_t i = 0; i < connection_.size(); ++i) {
      Colour links = 0;
      for (const int link : collective_.routes[i].links)
        links += mix(link_[static_cast<std::size_t>(link)]);
      Colour waits = 0;
      for (const Wait& wait : waits_.of(i))
        waits += mix(wait.pattern, connection_[static_cast<std::size_t>(wait.on)]);
      const Connection& ends = schedule_.connections[i];
      refined[i] = mix(mix(connection_[i], links), waits);
      refined[i] = mix(refined[i], end_[static_cast<std::size_t>(ends.src)]);
      refined[i] = mix(refined[i], end_[static_cast<std::size_t>(ends.dst)]);
    }
    connection_ = std::move(refined);
  }

  [[nodiscard]] static std::size_t count(Colours colours) {
    std::sort(colours.begin(), colours.end());
    return static_cast<std::size_t>(std::unique(colours.begin(), colours.end()) - colours.begin());
  }

  [[nodiscard]] static std::vector<int> first_of_class(const Colours& colours) {
    std::unordered_map<Colour, int> first;
    std::vector<int> members;
    for (const Colour colour : colours)
      members.push_back(first.try_emplace(colour, static_cast<int>(members.size())).first->second);
    return members;
  }

  const LoweredCollective& collective_;
  const Schedule& schedule_;
  Groups<Wait> waits_;  ///< by connection
  Colours connection_;
  Colours link_;
  Colours end_;
};

}  // namespace

Alike none_alike(const Schedule& schedule, std::size_t links) {
  Alike alike;
  alike.connection.resize(schedule.connections.size());
  alike.link.resize(links);
  alike.end.resize(static_cast<std::size_t>(schedule.ends()));
  for (std::vector<int>* each : {&alike.connection, &alike.link, &alike.end})
    std::iota(each->begin(), each->end(), 0);
  return alike;
}

Alike find_alike(const LoweredCollective& collective, const Schedule& schedule,
                 const Groups<int>& queues, const std::vector<BytesPerSecond>& bandwidths) {
  Refinement refinement(collective, schedule, queues, bandwidths);
  return refinement.run() ? refinement.take() : none_alike(schedule, bandwidths.size());
}

}  // namespace stepcast
