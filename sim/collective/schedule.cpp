#include "collective/schedule.hpp"

#include "collective/algorithms.hpp"

namespace stepcast {

std::vector<Bytes> sent_bytes(const Schedule& schedule) {
  std::vector<Bytes> sent(static_cast<std::size_t>(schedule.ranks));
  for (const Transfer& transfer : schedule.transfers) {
    const Connection& connection =
        schedule.connections[static_cast<std::size_t>(transfer.connection)];
    sent[static_cast<std::size_t>(connection.src)] += schedule.bytes_of(transfer);
  }
  return sent;
}

Registry<AllReduceAlgorithm>& all_reduce_algorithms() {
  static Registry<AllReduceAlgorithm> registry;
  return registry;
}

}  // namespace stepcast
