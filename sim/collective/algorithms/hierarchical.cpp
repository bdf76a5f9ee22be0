// Two levels: each node reduces its blocks to their owners, the owners of a block AllReduce it
// between the nodes, and each node spreads it again (Cho et al., BlueConnect, SysML 2019). Block b
// of a node is owned by its local rank b, so that every NIC near an owner works; when nodes have
// different numbers of ranks, the smallest number of blocks serves all.
//
// Inside a node: a ring of n-1 steps each way, or everybody to the owner directly, or a switch that
// reduces on the way and multicasts the result (NVLink SHARP), which is NCCL's NVLS. With it and
// NCCL's double binary tree between the nodes the whole is NVLSTree. A channel's pieces follow each
// other through the levels.
#include <algorithm>
#include <numeric>

#include "collective/algorithms.hpp"

namespace stepcast {
namespace {

enum class Inside { ring, direct, in_switch };
// Connections of different levels do not wait for each other.
enum Stage : int { reduce_stage, spread_stage, stages_in_node };

int blocks_of(const CollectiveSpec& spec) {
  std::size_t fewest = spec.nodes.front().size();
  for (const auto& ranks : spec.nodes) fewest = std::min(fewest, ranks.size());
  return static_cast<int>(fewest);
}

const CollectiveAlgorithm& algorithm_between_nodes(const CollectiveSpec& spec, Inside inside) {
  const auto& known = collective_algorithms(Operation::all_reduce);
  if (inside == Inside::in_switch) return *known.find("double_binary_tree");
  return spec.between_nodes != nullptr ? *spec.between_nodes : *known.find("ring");
}

/// The AllReduce of one piece of a block between the nodes, which are its ranks.
Schedule between_nodes(const CollectiveSpec& spec, Inside inside, Bytes piece) {
  const auto count = static_cast<int>(spec.nodes.size());
  CollectiveSpec level;
  level.bytes = piece;
  level.rings.emplace_back(static_cast<std::size_t>(count));
  std::iota(level.rings.front().begin(), level.rings.front().end(), 0);
  for (int node = 0; node < count; ++node) level.nodes.push_back({node});
  if (spec.is_folded()) level.ranks_in_all = level.nodes_in_all = spec.all_nodes();
  return algorithm_between_nodes(spec, inside).generate(level);
}

/// One piece of one block on its way through a node.
class NodeLevel {
 public:
  NodeLevel(ScheduleBuilder& builder, Inside inside, const std::vector<int>& ranks, int switch_end,
            int channel, int first_stage, int first_chunk, int chunks)
      : builder_(builder),
        inside_(inside),
        ranks_(ranks),
        switch_(switch_end),
        channel_(channel),
        first_stage_(first_stage),
        first_chunk_(first_chunk),
        chunks_(chunks) {}

  /// Returns what has arrived at the owner.
  std::vector<int> reduce_to(std::size_t owner) {
    std::vector<int> arrived;
    if (ranks_.size() == 1) return arrived;
    if (inside_ == Inside::ring) {
      for (std::size_t step = 1; step < ranks_.size(); ++step)
        arrived = {add(at(owner + step), at(owner + step + 1), reduce_stage, true, arrived)};
      return arrived;
    }
    // The owner's own part passes the switch too.
    for (std::size_t from = inside_ == Inside::in_switch ? 0 : 1; from < ranks_.size(); ++from)
      arrived.push_back(add(at(owner + from), hub(owner), reduce_stage, true, {}));
    if (inside_ == Inside::in_switch)
      arrived = {add(switch_, at(owner), reduce_stage, false, arrived)};
    return arrived;
  }

  void spread_from(std::size_t owner, const std::vector<int>& complete) {
    if (ranks_.size() == 1) return;
    std::vector<int> arrived = complete;
    if (inside_ == Inside::in_switch) {
      arrived = {add(at(owner), switch_, spread_stage, false, complete)};
      add(switch_, at(owner), spread_stage, false, arrived);  // a multicast spares nobody
    }
    for (std::size_t step = 1; step < ranks_.size(); ++step) {
      if (inside_ == Inside::ring)
        arrived = {add(at(owner + step - 1), at(owner + step), spread_stage, false, arrived)};
      else
        add(hub(owner), at(owner + step), spread_stage, false, arrived);
    }
  }

 private:
  [[nodiscard]] int at(std::size_t place) const { return ranks_[place % ranks_.size()]; }
  /// Where the parts of a block meet when they do not go round a ring.
  [[nodiscard]] int hub(std::size_t owner) const {
    return inside_ == Inside::in_switch ? switch_ : at(owner);
  }
  int add(int src, int dst, Stage stage, bool reduce, const std::vector<int>& after) {
    return builder_.add({src, dst, channel_, first_stage_ + stage}, first_chunk_, chunks_, reduce,
                        after);
  }

  ScheduleBuilder& builder_;
  Inside inside_;
  const std::vector<int>& ranks_;
  int switch_;
  int channel_;
  int first_stage_;
  int first_chunk_;
  int chunks_;
};

/// Splices the AllReduce between nodes in; `arrived` is by node what its owner has, before and
/// after.
void add_between_nodes(ScheduleBuilder& builder, const Schedule& level,
                       const std::vector<int>& owners, int channel, int first_stage,
                       int first_chunk, std::vector<std::vector<int>>& arrived) {
  std::vector<int> index_of;  // in the whole schedule
  std::vector<std::vector<int>> into = arrived;
  for (std::size_t i = 0; i < level.transfers.size(); ++i) {
    const Transfer& transfer = level.transfers[i];
    const Connection& ends = level.connections[static_cast<std::size_t>(transfer.connection)];
    const auto src = static_cast<std::size_t>(ends.src);
    const auto dst = static_cast<std::size_t>(ends.dst);
    std::vector<int> after = arrived[src];
    for (const int before : level.dependencies_of(i))
      after.push_back(index_of[static_cast<std::size_t>(before)]);
    index_of.push_back(builder.add({owners[src], owners[dst], channel, first_stage + ends.stage},
                                   first_chunk + transfer.first_chunk, transfer.chunks,
                                   transfer.reduce, after));
    into[dst].push_back(index_of.back());
  }
  arrived = std::move(into);
}

Schedule two_levels(const CollectiveSpec& spec, Inside inside) {
  const int blocks = blocks_of(spec);
  const Pieces block(spec, blocks);
  // All pieces but the last of a block are alike, and so are their ways between the nodes.
  const Schedule between = between_nodes(spec, inside, block.sizes.front());
  const Schedule between_last = between_nodes(spec, inside, block.sizes.back());
  const auto level_of = [&](int piece) -> const Schedule& {
    return piece + 1 == block.count ? between_last : between;
  };
  std::vector<Bytes> chunks;
  for (int i = 0; i < block.total_blocks; ++i)
    for (int piece = 0; piece < block.count; ++piece) {
      const std::vector<Bytes>& sizes = level_of(piece).chunk_bytes;
      chunks.insert(chunks.end(), sizes.begin(), sizes.end());
    }
  // Blocks do not wait for each other: in a ring each step takes another block over each link.
  const bool in_switch = inside == Inside::in_switch;
  ScheduleBuilder builder(spec.all_ranks(), std::move(chunks),
                          in_switch ? static_cast<int>(spec.nodes.size()) : 0);
  const auto chunks_of_block = static_cast<int>(between.chunk_bytes.size()) * (block.count - 1) +
                               static_cast<int>(between_last.chunk_bytes.size());
  for (int channel = 0; channel < spec.channels(); ++channel) {
    const std::vector<std::vector<int>> nodes = nodes_along_ring(spec, channel);
    for (int piece = 0; piece < block.count; ++piece)
      for (int b = 0; b < blocks; ++b) {
        const Schedule& level = level_of(piece);
        const int first_chunk = (channel * blocks + b) * chunks_of_block +
                                piece * static_cast<int>(between.chunk_bytes.size());
        std::vector<NodeLevel> levels;
        std::vector<std::vector<int>> arrived;
        std::vector<int> owners;
        std::vector<std::size_t> places;
        for (std::size_t node = 0; node < nodes.size(); ++node) {
          levels.emplace_back(
              builder, inside, nodes[node], spec.all_ranks() + static_cast<int>(node), channel,
              b * stages_in_node, first_chunk, static_cast<int>(level.chunk_bytes.size()));
          owners.push_back(spec.nodes[node][static_cast<std::size_t>(b)]);
          places.push_back(static_cast<std::size_t>(
              std::find(nodes[node].begin(), nodes[node].end(), owners.back()) -
              nodes[node].begin()));
          arrived.push_back(levels.back().reduce_to(places.back()));
        }
        add_between_nodes(builder, level, owners, channel, blocks * stages_in_node, first_chunk,
                          arrived);
        for (std::size_t node = 0; node < nodes.size(); ++node)
          levels[node].spread_from(places[node], arrived[node]);
      }
  }
  return builder.take();
}

double count_two_level_transfers(const CollectiveSpec& spec, Inside inside) {
  const int blocks = blocks_of(spec);
  const double nodes = static_cast<double>(spec.nodes.size());
  CollectiveSpec level;
  level.bytes = spec.bytes;
  level.rings.emplace_back(spec.nodes.size());
  level.nodes.resize(spec.nodes.size());
  if (spec.is_folded()) level.ranks_in_all = level.nodes_in_all = spec.all_nodes();
  // A transfer waits for at most what the level before brought to the owner, besides its own.
  const double own = inside == Inside::ring ? 1.0 : spec.ranks() / nodes + 1.0;
  const double between = algorithm_between_nodes(spec, inside).count_transfers(level) * (1.0 + own);
  const double in_node = 2.0 * (spec.ranks() + nodes) * (own + 2.0 * nodes);
  return spec.channels() * Pieces::count_of(spec, blocks) * blocks * (between + in_node);
}

Inside inside_of(const CollectiveSpec& spec) {
  return spec.direct_in_node ? Inside::direct : Inside::ring;
}

Schedule hierarchical(const CollectiveSpec& spec) { return two_levels(spec, inside_of(spec)); }
double count_hierarchical_transfers(const CollectiveSpec& spec) {
  return count_two_level_transfers(spec, inside_of(spec));
}

Schedule in_switch(const CollectiveSpec& spec) { return two_levels(spec, Inside::in_switch); }
double count_in_switch_transfers(const CollectiveSpec& spec) {
  return count_two_level_transfers(spec, Inside::in_switch);
}

const bool hierarchical_registered =
    collective_algorithms(Operation::all_reduce)
        .add(
            "hierarchical",
            {.generate = hierarchical,
             .turns =
                 [](const CollectiveSpec& spec) {
                   const auto turns = algorithm_between_nodes(spec, inside_of(spec)).turns;
                   return turns != nullptr && turns(CollectiveSpec{});
                 },
             .count_transfers = count_hierarchical_transfers,
             .steps = [](Shape on) { return 2.0 * (on.per_node() - 1.0) + 2.0 * (on.nodes - 1.0); },
             .critical_bytes =
                 [](Shape on) {
                   return 2.0 * (on.per_node() - 1.0) / on.per_node() +
                          2.0 * (on.nodes - 1.0) / on.nodes / on.per_node();
                 },
             .bytes_per_rank = "2(g-1)/g S + 2(N-1)/N S/g",
             .steps_taken = "2 (g-1) + 2 (N-1)",
             .time = "the sum of both levels",
             .when = "links inside a node much faster than between nodes"});
const bool nvls_registered =
    collective_algorithms(Operation::all_reduce)
        .add("nvls", {.generate = in_switch,
                      .count_transfers = count_in_switch_transfers,
                      .steps = [](Shape on) { return on.ranks > 1.0 ? 4.0 : 0.0; },
                      .critical_bytes = [](Shape on) { return (on.ranks + 1.0) / on.ranks; },
                      .default_chunk = nvls_chunk,
                      .in_nccl = true,
                      .needs_switch_sum = true,
                      .one_node_only = true,
                      .bytes_per_rank = "(n+1)/n S",
                      .steps_taken = "4",
                      .time = "~ 4 (alpha + c/B) + (n+1)/n S/B",
                      .when = "from about 2 MiB on one node of 5 or more GPUs"});
const bool nvls_tree_registered =
    collective_algorithms(Operation::all_reduce)
        .add("nvls_tree",
             {.generate = in_switch,
              .count_transfers = count_in_switch_transfers,
              .steps = [](Shape on) { return 4.0 + 2.0 * halvings(on.nodes); },
              .critical_bytes = [](Shape on) { return (on.per_node() + 1.0) / on.per_node(); },
              .default_chunk = nvls_chunk,
              .in_nccl = true,
              .needs_switch_sum = true,
              .bytes_per_rank = "(g+1)/g S + up to 2 S/g",
              .steps_taken = "4 + 2 log2 N",
              .time = "~ (4 + 2 log2 N) (alpha + c/B) + (g+1)/g S/B",
              .when = "mid and large messages on several nodes whose switches reduce"});

}  // namespace
}  // namespace stepcast
