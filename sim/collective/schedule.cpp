#include "collective/schedule.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "collective/algorithms.hpp"

namespace stepcast {

std::vector<Bytes> sent_bytes(const Schedule& schedule) {
  std::vector<Bytes> sent(static_cast<std::size_t>(schedule.ends()));
  for (const Transfer& transfer : schedule.transfers) {
    const Connection& connection =
        schedule.connections[static_cast<std::size_t>(transfer.connection)];
    sent[static_cast<std::size_t>(connection.src)] += schedule.bytes_of(transfer);
  }
  sent.resize(static_cast<std::size_t>(schedule.ranks));
  return sent;
}

void limit_in_flight(Schedule& schedule, int most) {
  const std::size_t count = schedule.transfers.size();
  const auto hands_on = [&](std::size_t later, std::size_t earlier) {
    const Transfer& a = schedule.transfers[earlier];
    const Transfer& b = schedule.transfers[later];
    return schedule.connection_of(earlier).dst == schedule.connection_of(later).src &&
           a.first_chunk < b.first_chunk + b.chunks && b.first_chunk < a.first_chunk + a.chunks;
  };
  // Who hands transfer i on: handed_on[handed_on_begin[i] .. handed_on_begin[i + 1]).
  std::vector<int> handed_on_begin(count + 1, 0);
  for (std::size_t i = 0; i < count; ++i)
    for (const int before : schedule.dependencies_of(i))
      if (hands_on(i, static_cast<std::size_t>(before)))
        ++handed_on_begin[static_cast<std::size_t>(before) + 1];
  std::partial_sum(handed_on_begin.begin(), handed_on_begin.end(), handed_on_begin.begin());
  std::vector<int> handed_on(static_cast<std::size_t>(handed_on_begin.back()));
  std::vector<int> next(handed_on_begin.begin(), handed_on_begin.end() - 1);
  for (std::size_t i = 0; i < count; ++i)
    for (const int before : schedule.dependencies_of(i))
      if (const auto index = static_cast<std::size_t>(before); hands_on(i, index))
        handed_on[static_cast<std::size_t>(next[index]++)] = static_cast<int>(i);

  std::vector<int> dependencies;
  std::vector<int> begin;
  std::vector<std::vector<int>> in_flight(schedule.connections.size());  // the last `most`, a ring
  std::vector<std::size_t> sent(schedule.connections.size(), 0);
  for (std::size_t i = 0; i < count; ++i) {
    begin.push_back(static_cast<int>(dependencies.size()));
    const auto own = schedule.dependencies_of(i);
    dependencies.insert(dependencies.end(), own.begin(), own.end());
    const auto connection = static_cast<std::size_t>(schedule.transfers[i].connection);
    std::vector<int>& slots = in_flight[connection];
    if (slots.empty()) slots.assign(static_cast<std::size_t>(most), -1);
    int& slot = slots[sent[connection]++ % slots.size()];
    if (slot >= 0) {
      const auto held = static_cast<std::size_t>(slot);
      dependencies.insert(dependencies.end(), handed_on.begin() + handed_on_begin[held],
                          handed_on.begin() + handed_on_begin[held + 1]);
    }
    slot = static_cast<int>(i);
  }
  begin.push_back(static_cast<int>(dependencies.size()));
  schedule.dependencies = std::move(dependencies);
  schedule.dependencies_begin = std::move(begin);
}

ScheduleBuilder::ScheduleBuilder(int ranks, std::vector<Bytes> chunk_bytes, int switches) {
  schedule_.ranks = ranks;
  schedule_.switches = switches;
  schedule_.chunk_bytes = std::move(chunk_bytes);
}

int ScheduleBuilder::add(const Connection& over, int first_chunk, int chunks, bool reduce,
                         const std::vector<int>& after) {
  const auto [known, is_new] =
      connections_.try_emplace({over.src, over.dst, over.channel, over.stage},
                               static_cast<int>(schedule_.connections.size()));
  if (is_new) schedule_.connections.push_back(over);
  schedule_.dependencies_begin.push_back(static_cast<int>(schedule_.dependencies.size()));
  schedule_.dependencies.insert(schedule_.dependencies.end(), after.begin(), after.end());
  schedule_.transfers.push_back({known->second, first_chunk, chunks, reduce});
  return static_cast<int>(schedule_.transfers.size()) - 1;
}

Schedule ScheduleBuilder::take() {
  schedule_.dependencies_begin.push_back(static_cast<int>(schedule_.dependencies.size()));
  return std::move(schedule_);
}

double Pieces::count_of(const CollectiveSpec& spec, double blocks) {
  return std::max(1.0, std::ceil(spec.bytes / (blocks * spec.channels()) / spec.largest_chunk));
}

Pieces::Pieces(const CollectiveSpec& spec, double blocks)
    : count(static_cast<int>(count_of(spec, blocks))),
      sizes(static_cast<std::size_t>(count), spec.largest_chunk),
      total_blocks(static_cast<int>(blocks) * spec.channels()) {
  sizes.back() = spec.bytes / (blocks * spec.channels());
  if (count > 1) sizes.back() -= spec.largest_chunk * static_cast<double>(count - 1);
}

std::vector<Bytes> Pieces::of_whole_buffer() const {
  std::vector<Bytes> all;
  all.reserve(sizes.size() * static_cast<std::size_t>(total_blocks));
  for (int block = 0; block < total_blocks; ++block)
    all.insert(all.end(), sizes.begin(), sizes.end());
  return all;
}

std::vector<std::vector<int>> nodes_along_ring(const CollectiveSpec& spec, int channel) {
  std::vector<std::size_t> node_of(static_cast<std::size_t>(spec.ranks()));
  for (std::size_t node = 0; node < spec.nodes.size(); ++node)
    for (const int rank : spec.nodes[node]) node_of[static_cast<std::size_t>(rank)] = node;
  std::vector<std::vector<int>> ordered(spec.nodes.size());
  for (const int rank : spec.rings[static_cast<std::size_t>(channel)])
    ordered[node_of[static_cast<std::size_t>(rank)]].push_back(rank);
  return ordered;
}

double halvings(double ranks) { return std::bit_width(static_cast<unsigned>(ranks) - 1U); }

Bytes RingChunks::chunk_of(Bytes left, double ranks) const {
  const Bytes share = left / ranks;
  if (share > chunk) return chunk;
  return grain > Bytes{0.0} ? grain * std::ceil(share / grain * (1.0 - 1e-12)) : share;
}

Registry<CollectiveAlgorithm>& collective_algorithms(Operation operation) {
  static std::array<Registry<CollectiveAlgorithm>, all_operations.size()> registries;
  return registries[static_cast<std::size_t>(operation)];
}

}  // namespace stepcast
