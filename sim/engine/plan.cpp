#include "engine/plan.hpp"

#include <algorithm>
#include <utility>

#include "engine/alike.hpp"

namespace stepcast {
namespace {

Groups<int> queues_of(const Schedule& schedule) {
  return group<int>(schedule.connections.size(), [&](auto add) {
    for (std::size_t i = 0; i < schedule.transfers.size(); ++i)
      add(static_cast<std::size_t>(schedule.transfers[i].connection), static_cast<int>(i));
  });
}

/// For the first connection of each class, the first link of each class that it passes, as often as
/// its class passes that link: all of them together get what one gets.
std::vector<std::vector<int>> links_of_classes(const LoweredCollective& collective,
                                               const Alike& alike) {
  std::vector<std::vector<int>> links(collective.routes.size());
  for (std::size_t i = 0; i < links.size(); ++i)
    for (const int link : collective.routes[i].links)
      if (alike.link[static_cast<std::size_t>(link)] == link)
        links[static_cast<std::size_t>(alike.connection[i])].push_back(link);
  return links;
}

}  // namespace

Plan::Plan(const LoweredCollective& collective, const Cluster& cluster,
           std::optional<int> first_channel_link)
    : schedule(listed(collective.schedule)) {
  const Groups<int> all_queues = queues_of(schedule);
  const Alike alike = collective.may_fold
                          ? find_alike(collective, schedule, all_queues, cluster.bandwidths())
                          : none_alike(schedule, cluster.bandwidths().size());
  std::vector<std::vector<int>> all_links = links_of_classes(collective, alike);

  std::vector<Connection> connections;
  std::vector<int> index_of(schedule.connections.size(), -1);  // of the first one of a class
  for (std::size_t i = 0; i < schedule.connections.size(); ++i) {
    if (alike.connection[i] != static_cast<int>(i)) continue;
    index_of[i] = static_cast<int>(connections.size());
    const Connection& connection = connections.emplace_back(schedule.connections[i]);
    src.push_back(alike.end[static_cast<std::size_t>(connection.src)]);
    dst.push_back(alike.end[static_cast<std::size_t>(connection.dst)]);
    links.push_back(std::move(all_links[i]));
    if (first_channel_link) links.back().push_back(*first_channel_link + static_cast<int>(i));
    alpha.push_back(collective.alpha[i]);
    latency.push_back(collective.latency[i]);
  }

  std::vector<Transfer> transfers;
  std::vector<int> transfer_of(schedule.transfers.size());  // the one that stands for it
  for (std::size_t i = 0; i < schedule.transfers.size(); ++i) {
    Transfer transfer = schedule.transfers[i];
    transfer.connection = index_of[static_cast<std::size_t>(transfer.connection)];
    if (transfer.connection < 0) continue;
    transfer_of[i] = static_cast<int>(transfers.size());
    transfers.push_back(transfer);
    dependencies.push_back(static_cast<int>(schedule.dependencies_of(i).size()));
  }
  for (std::size_t i = 0; i < schedule.connections.size(); ++i) {
    const auto first = static_cast<std::size_t>(alike.connection[i]);
    for (std::size_t place = 0; first != i && place < all_queues.of(i).size(); ++place)
      transfer_of[static_cast<std::size_t>(all_queues.of(i)[place])] =
          transfer_of[static_cast<std::size_t>(all_queues.of(first)[place])];
  }
  dependents = group<Dependent>(transfers.size(), [&](auto add) {
    for (std::size_t i = 0; i < schedule.transfers.size(); ++i) {
      const int connection = schedule.transfers[i].connection;
      if (index_of[static_cast<std::size_t>(connection)] < 0) continue;
      for (const int before : schedule.dependencies_of(i)) {
        const auto index = static_cast<std::size_t>(before);
        add(static_cast<std::size_t>(transfer_of[index]),
            Dependent{transfer_of[i],
                      collective.time_to_know(schedule.transfers[index].connection, connection)});
      }
    }
  });

  schedule.connections = std::move(connections);
  schedule.transfers = std::move(transfers);
  schedule.dependencies = {};
  schedule.dependencies_begin = {};
  queues = queues_of(schedule);
  transfers_of_end.assign(static_cast<std::size_t>(schedule.ends()), 0);
  for (std::size_t i = 0; i < schedule.connections.size(); ++i) {
    const auto count = static_cast<int>(queues.of(i).size());
    transfers_of_end[static_cast<std::size_t>(src[i])] += count;
    transfers_of_end[static_cast<std::size_t>(dst[i])] += count;
  }

  const auto ranks = static_cast<std::size_t>(schedule.ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const int folded = collective.representative(static_cast<int>(rank), cluster);
    const int first = alike.end[static_cast<std::size_t>(folded)];
    // One without a transfer may be alike to one that is not in the schedule.
    representative.push_back(transfers_of_end[static_cast<std::size_t>(first)] > 0 ? first
                                                                                   : folded);
  }
  followers = group<int>(ranks, [&](auto add) {
    for (std::size_t rank = 0; rank < ranks; ++rank)
      if (representative[rank] != static_cast<int>(rank))
        add(static_cast<std::size_t>(representative[rank]), static_cast<int>(rank));
  });
}

}  // namespace stepcast
