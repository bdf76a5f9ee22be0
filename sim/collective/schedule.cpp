#include "collective/schedule.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "collective/algorithms.hpp"

namespace stepcast {
namespace {

/// What each place of a channel sends of one loop of a ring. It forwards every block but one while
/// they are reduced and every block but one while they are gathered.
void add_loop_of_ring(const Schedule& schedule, int channel, int loop, std::vector<Bytes>& bytes) {
  const RingSteps& ring = *schedule.ring;
  const auto block_at = [&](int place) {
    Bytes sum;
    // The block that bears the place's rank is sent in step n - 1, were there such a one.
    const std::size_t first =
        schedule.first_chunk_of(channel, loop, ring.places - 1, place % ring.places);
    for (int piece = 0; piece < ring.pieces; ++piece)
      sum += schedule.chunk_bytes[first + static_cast<std::size_t>(piece)];
    return sum;
  };
  // A sum of equal blocks is a product, or it would depend on how many places there are.
  std::vector<Bytes> own;
  for (int place = 0; place < ring.places; ++place) own.push_back(block_at(place));
  Bytes all = own.front() * ring.blocks;
  if (std::any_of(own.begin(), own.end(), [&](Bytes size) { return size != own.front(); }))
    all = std::accumulate(own.begin(), own.end(), Bytes{});
  for (int place = 0; place < ring.places; ++place) {
    const int connection = channel * ring.places + place;
    Bytes& sent = bytes[static_cast<std::size_t>(connection)];
    if (ring.first < ring.reducing) sent += all - own[static_cast<std::size_t>(place)];
    if (ring.last > ring.reducing)
      sent += all - own[static_cast<std::size_t>((place + 1) % ring.places)];
  }
}

void list_loop_of_ring(Schedule& schedule, int channel, int loop, int& last_step_begin) {
  const RingSteps& ring = *schedule.ring;
  const int per_step = ring.places * ring.pieces;
  for (int step = ring.first; step < ring.last; ++step) {
    const int step_begin = static_cast<int>(schedule.transfers.size());
    for (int place = 0; place < ring.places; ++place) {
      const int before = (place - 1 + ring.places) % ring.places;
      const auto chunk = static_cast<int>(schedule.first_chunk_of(channel, loop, step, place));
      for (int piece = 0; piece < ring.pieces; ++piece) {
        schedule.dependencies_begin.push_back(static_cast<int>(schedule.dependencies.size()));
        if (step > ring.first)
          schedule.dependencies.push_back(step_begin - per_step + before * ring.pieces + piece);
        else if (last_step_begin >= 0)
          schedule.dependencies.push_back(last_step_begin + (before + 1) * ring.pieces - 1);
        schedule.transfers.push_back({.connection = channel * ring.places + place,
                                      .first_chunk = chunk + piece,
                                      .reduce = step < ring.reducing});
      }
    }
    last_step_begin = step_begin;
  }
}

}  // namespace

double RingSteps::transfers() const {
  return static_cast<double>(places) * loops * steps() * pieces;
}

std::size_t Schedule::first_chunk_of(int channel, int loop, int step, int place) const {
  const int n = ring->places;
  const int sends = ((place - 1 - step) % n + n) % n;
  const int connection = channel * n + sends;
  const int owner = ring->blocks > n ? 0 : connections[static_cast<std::size_t>(connection)].src;
  const auto run = static_cast<std::size_t>(channel) * static_cast<std::size_t>(ring->loops) +
                   static_cast<std::size_t>(loop);
  return (run * static_cast<std::size_t>(ring->blocks) + static_cast<std::size_t>(owner)) *
         static_cast<std::size_t>(ring->pieces);
}

Schedule listed(Schedule schedule) {
  if (!schedule.ring) return schedule;
  const RingSteps ring = *schedule.ring;
  const auto channels = static_cast<int>(schedule.connections.size()) / std::max(1, ring.places);
  if (const double count = channels * ring.transfers(); count > most_listed_transfers)
    throw SimulationError(
        fmt::format("{:.3g} transfers of a ring whose links are shared; at most {:.0e} are "
                    "simulated",
                    count, most_listed_transfers));
  for (int channel = 0; channel < channels; ++channel) {
    int last_step_begin = -1;  // of the loop before
    for (int loop = 0; loop < ring.loops; ++loop)
      list_loop_of_ring(schedule, channel, loop, last_step_begin);
  }
  schedule.dependencies_begin.push_back(static_cast<int>(schedule.dependencies.size()));
  schedule.ring.reset();
  if (ring.in_flight > 0) limit_in_flight(schedule, ring.in_flight);
  return schedule;
}

std::vector<Bytes> bytes_of_connections(const Schedule& schedule) {
  std::vector<Bytes> bytes(schedule.connections.size());
  if (!schedule.ring) {
    for (const Transfer& transfer : schedule.transfers)
      bytes[static_cast<std::size_t>(transfer.connection)] += schedule.bytes_of(transfer);
    return bytes;
  }
  if (schedule.is_empty()) return bytes;
  const auto channels = static_cast<int>(schedule.connections.size()) / schedule.ring->places;
  for (int channel = 0; channel < channels; ++channel)
    for (int loop = 0; loop < schedule.ring->loops; ++loop)
      add_loop_of_ring(schedule, channel, loop, bytes);
  return bytes;
}

Bytes largest_transfer(const Schedule& schedule) {
  Bytes largest;
  if (schedule.ring) {
    if (schedule.is_empty()) return largest;
    return *std::max_element(schedule.chunk_bytes.begin(), schedule.chunk_bytes.end());
  }
  for (const Transfer& transfer : schedule.transfers)
    largest = std::max(largest, schedule.bytes_of(transfer));
  return largest;
}

std::vector<Bytes> sent_bytes(const Schedule& schedule) {
  std::vector<Bytes> sent(static_cast<std::size_t>(schedule.ends()));
  const std::vector<Bytes> bytes = bytes_of_connections(schedule);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    sent[static_cast<std::size_t>(schedule.connections[i].src)] += bytes[i];
  sent.resize(static_cast<std::size_t>(schedule.ranks));
  return sent;
}

void limit_in_flight(Schedule& schedule, int most) {
  if (schedule.ring) {
    schedule.ring->in_flight = most;
    return;
  }
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
  std::vector<std::size_t> node_of(static_cast<std::size_t>(spec.all_ranks()));
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
