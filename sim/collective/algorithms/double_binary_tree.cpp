// Two complementary binary trees between nodes, each with half of the data, and a chain inside each
// node, as NCCL's tree (src/graph/trees.cc, connect.cc; Sanders, Speck & Traeff, Parallel Computing
// 35(12), 2009). A node inside one tree is a leaf of the other, so up and down together each node
// sends about 2 S however many there are. Pieces follow each other: reduce up, broadcast down.
// Inside one node there is no tree, only a chain of all its ranks.
#include <algorithm>
#include <bit>

#include "collective/algorithms.hpp"

namespace stepcast {
namespace {

double count_double_tree_transfers(const CollectiveSpec& spec) {
  return spec.channels() * 2.0 * 2.0 * (spec.ranks() - 1.0) * Pieces::count_of(spec, 2);
}

/// In the in-order binary tree over 0..count-1, whose root is 0 with one child: a node whose lowest
/// set bit is b hangs below the one that has this bit cleared and the next one set, or, where there
/// is none, cleared only. -1 for the root.
int parent_in_order(int node, int count) {
  if (node == 0) return -1;
  const int bit = node & -node;
  const int above = (node ^ bit) | (bit << 1);
  return above < count ? above : node ^ bit;
}

/// The second tree is the first one mirrored, or shifted by one where a mirror would keep the
/// leaves.
int parent_in_tree(int tree, int node, int count) {
  if (tree == 0) return parent_in_order(node, count);
  const bool mirrored = count % 2 == 0;
  const int image = mirrored ? count - 1 - node : (node - 1 + count) % count;
  const int parent = parent_in_order(image, count);
  if (parent < 0) return -1;
  return mirrored ? count - 1 - parent : (parent + 1) % count;
}

/// One tree: for each node its parent and its ranks, head first.
struct Tree {
  std::vector<int> parent;
  std::vector<std::vector<int>> chain;
  std::vector<int> bottom_up;  ///< nodes, children before parents
};

Tree make_tree(int tree, const CollectiveSpec& spec, int channel) {
  const int count = static_cast<int>(spec.nodes.size());
  Tree made;
  // A chain follows the channel's ring through the node, whose links are known to be there.
  made.chain = nodes_along_ring(spec, channel);
  // The two trees meet the network at different ends of a node's chain.
  if (tree == 1)
    for (auto& chain : made.chain) std::reverse(chain.begin(), chain.end());
  std::vector<int> depth;
  for (int node = 0; node < count; ++node) {
    made.parent.push_back(parent_in_tree(tree, node, count));
    made.bottom_up.push_back(node);
  }
  for (int node = 0; node < count; ++node) {
    int hops = 0;
    for (int up = made.parent[static_cast<std::size_t>(node)]; up >= 0;
         up = made.parent[static_cast<std::size_t>(up)])
      ++hops;
    depth.push_back(hops);
  }
  std::stable_sort(made.bottom_up.begin(), made.bottom_up.end(), [&](int a, int b) {
    return depth[static_cast<std::size_t>(a)] > depth[static_cast<std::size_t>(b)];
  });
  return made;
}

void add_piece(ScheduleBuilder& builder, const Tree& tree, int channel, int stage, int chunk) {
  const auto chain_of = [&](int node) -> const std::vector<int>& {
    return tree.chain[static_cast<std::size_t>(node)];
  };
  std::vector<std::vector<int>> arrived(tree.chain.size());  // at the head of each node
  for (const int node : tree.bottom_up) {
    const std::vector<int>& chain = chain_of(node);
    std::vector<int> from_tail;
    for (std::size_t i = chain.size() - 1; i > 0; --i)
      from_tail = {
          builder.add({chain[i], chain[i - 1], channel, stage}, chunk, 1, true, from_tail)};
    std::vector<int>& at_head = arrived[static_cast<std::size_t>(node)];
    at_head.insert(at_head.end(), from_tail.begin(), from_tail.end());
    const int parent = tree.parent[static_cast<std::size_t>(node)];
    if (parent >= 0)
      arrived[static_cast<std::size_t>(parent)].push_back(builder.add(
          {chain.front(), chain_of(parent).front(), channel, stage}, chunk, 1, true, at_head));
  }
  for (auto node = tree.bottom_up.rbegin(); node != tree.bottom_up.rend(); ++node) {
    const int parent = tree.parent[static_cast<std::size_t>(*node)];
    std::vector<int>& at_head = arrived[static_cast<std::size_t>(*node)];
    const std::vector<int>& chain = chain_of(*node);
    if (parent >= 0)
      at_head = {builder.add({chain_of(parent).front(), chain.front(), channel, stage}, chunk, 1,
                             false, arrived[static_cast<std::size_t>(parent)])};
    std::vector<int> from_head = at_head;
    for (std::size_t i = 1; i < chain.size(); ++i)
      from_head = {
          builder.add({chain[i - 1], chain[i], channel, stage}, chunk, 1, false, from_head)};
  }
}

Schedule double_binary_tree(const CollectiveSpec& spec) {
  const Pieces half(spec, 2);
  ScheduleBuilder builder(spec.ranks(), half.of_whole_buffer());
  for (const int tree : {0, 1})
    for (int channel = 0; channel < spec.channels(); ++channel) {
      const Tree made = make_tree(tree, spec, channel);
      // Each tree has connections of its own, or one would wait for the other.
      for (int piece = 0; piece < half.count; ++piece)
        add_piece(builder, made, channel, tree, (2 * channel + tree) * half.count + piece);
    }
  return builder.take();
}

const bool registered =
    collective_algorithms(Operation::all_reduce)
        .add("double_binary_tree",
             {.generate = double_binary_tree,
              .count_transfers = count_double_tree_transfers,
              .steps = [](Shape on) { return 2.0 * (halvings(on.nodes) + on.per_node() - 1.0); },
              .critical_bytes = [](Shape /*on*/) { return 2.0; },  // pieces follow each other
              .default_chunk = nccl_slot,
              .in_nccl = true,
              .bytes_per_rank = "up to 2 S",
              .steps_taken = "2 (log2 N + g-1)",
              .time = "~ 2 log2 n (alpha + c/B) + 2 S/B",
              .when = "short and mid-size messages on many nodes"});

}  // namespace
}  // namespace stepcast
