#include "engine/finished.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mix.hpp"

namespace stepcast {
namespace {

/// Two hashes of the same words. Each step is a bijection of the hash before, so what differs in
/// one word only never collides, and anything else with a probability of 2^-64 in each.
class Hash {
 public:
  void add(std::uint64_t word) {
    high_ = mix(high_ ^ word);
    low_ = mix(low_ + word);
  }
  void add(int one, int other) {
    add((std::uint64_t{static_cast<std::uint32_t>(one)} << 32) | static_cast<std::uint32_t>(other));
  }
  void add(double value) { add(std::bit_cast<std::uint64_t>(value)); }
  template <class Quantity>
  void add(const std::vector<Quantity>& values) {
    add(std::uint64_t{values.size()});
    for (const Quantity& value : values) add(value.value());
  }
  void add(const std::vector<int>& values) {
    add(std::uint64_t{values.size()});
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) add(values[i], values[i + 1]);
    if (values.size() % 2 == 1) add(values.back(), 0);
  }
  [[nodiscard]] CollectiveKey key() const {
    return {high_, std::max(low_, std::uint64_t{1})};  // 0 is a free slot
  }

 private:
  std::uint64_t high_ = 0x9e3779b97f4a7c15;  // the golden ratio and pi, to have two that differ
  std::uint64_t low_ = 0x243f6a8885a308d3;
};

// Members are named by structured bindings, which do not compile when there is a new one: somebody
// has to think whether it decides when a collective is done.

void add(Hash& hash, const Schedule& schedule) {
  const auto& [ranks, switches, connections, transfers, dependencies, dependencies_begin,
               chunk_bytes, ring] = schedule;
  hash.add(ranks, switches);
  hash.add(std::uint64_t{connections.size()});
  for (const auto& [src, dst, channel, stage] : connections) {
    hash.add(src, dst);
    hash.add(channel, stage);
  }
  hash.add(std::uint64_t{transfers.size()});
  for (const auto& [connection, first_chunk, chunks, reduce] : transfers) {
    hash.add(connection, first_chunk);
    hash.add(chunks, reduce ? 1 : 0);
  }
  hash.add(dependencies);
  hash.add(dependencies_begin);
  hash.add(chunk_bytes);
  hash.add(ring ? 1 : 0, 0);
  if (!ring) return;
  const auto& [places, blocks, loops, pieces, first, last, reducing, in_flight] = *ring;
  hash.add(places, blocks);
  hash.add(loops, pieces);
  hash.add(first, last);
  hash.add(reducing, in_flight);
}

// The memory: how many words are in use, then the slots, then the words. A slot is the key and the
// place of its words, of which the first says how many follow; the place comes last, so a slot
// without one counts for nothing.
constexpr std::size_t slots = std::size_t{1} << 16;
constexpr std::size_t words_of_slot = 3;
constexpr std::size_t first_word = 1 + words_of_slot * slots;
/// Slots that are looked at for a key.
constexpr std::size_t most_probes = 64;

std::atomic_ref<std::uint64_t> shared(std::uint64_t& word) {
  static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);  // else not between processes
  return std::atomic_ref<std::uint64_t>(word);
}

std::uint64_t* slot_of(std::uint64_t* memory, const CollectiveKey& key, std::size_t probe) {
  return memory + 1 + words_of_slot * ((key.low + probe) % slots);
}

/// Of the byte that stands for the key. It need not exist.
bool lock(int file, const CollectiveKey& key, int command, short type) {
  struct flock which = {};
  which.l_type = type;
  which.l_whence = SEEK_SET;
  which.l_start = static_cast<off_t>(key.high >> 2);
  which.l_len = 1;
  return ::fcntl(file, command, &which) == 0 || (errno != EAGAIN && errno != EACCES);
}

// At its start the program forks nobody yet, so all its processes have this one.
FinishedCollectives of_program(std::size_t{64} << 20);

}  // namespace

CollectiveKey key_of(const LoweredCollective& collective, const Cluster& cluster) {
  const auto& [operation, bytes, algorithm, protocol, channels, chunk, chooser, considered, basis,
               relative_error, launch, schedule, may_fold, fold, why_not_folded, routes, alpha,
               latency, channel_rate, work_per_byte, wire_bytes_per_byte] = collective;
  // What it is called, who chose it and how far it can be trusted is not of its time; sizes are
  // those of the schedule.
  Hash hash;
  add(hash, schedule);
  hash.add(std::uint64_t{routes.size()});
  for (const auto& [links, inter_node] : routes) hash.add(links);
  hash.add(alpha);
  hash.add(latency);
  hash.add(launch.value());
  hash.add(channel_rate.value());
  hash.add(work_per_byte);
  hash.add(cluster.ranks(), fold ? 1 : 0);
  hash.add(may_fold ? 1 : 0, 0);
  if (fold)
    for (int rank = 0; rank < cluster.ranks(); ++rank)
      hash.add(rank, fold->representative(rank, cluster));
  hash.add(cluster.bandwidths());
  return hash.key();
}

// The file stays empty: to give it a size is a signal that kills where `ulimit -f` is less.
FinishedCollectives::FinishedCollectives(std::size_t bytes) noexcept
    : file_(::memfd_create("claims", MFD_CLOEXEC)) {
  const std::size_t size = bytes + first_word * sizeof(std::uint64_t);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  memory_ = static_cast<std::uint64_t*>(memory);
  words_ = bytes / sizeof(std::uint64_t);
}

FinishedCollectives::~FinishedCollectives() {
  if (memory_ != nullptr) ::munmap(memory_, (first_word + words_) * sizeof(std::uint64_t));
  if (file_ >= 0) ::close(file_);
}

std::optional<std::vector<Seconds>> FinishedCollectives::find(const CollectiveKey& key) const {
  for (std::size_t probe = 0; memory_ != nullptr && probe < most_probes; ++probe) {
    std::uint64_t* slot = slot_of(memory_, key, probe);
    const std::uint64_t low = shared(slot[0]).load();
    if (low == 0) break;
    const std::uint64_t place = low == key.low ? shared(slot[2]).load() : 0;
    if (place == 0 || shared(slot[1]).load() != key.high) continue;
    const std::uint64_t* words = memory_ + place;
    std::vector<Seconds> done(words[0]);
    for (std::size_t i = 0; i < done.size(); ++i)
      done[i] = Seconds{std::bit_cast<double>(words[1 + i])};
    return done;
  }
  return std::nullopt;
}

void FinishedCollectives::add(const CollectiveKey& key, std::span<const Seconds> done) {
  if (memory_ == nullptr) return;
  std::uint64_t used = shared(memory_[0]).load();
  do {
    if (used + 1 + done.size() > words_) return;
  } while (!shared(memory_[0]).compare_exchange_weak(used, used + 1 + done.size()));
  std::uint64_t* words = memory_ + first_word + used;
  words[0] = done.size();
  for (std::size_t i = 0; i < done.size(); ++i)
    words[1 + i] = std::bit_cast<std::uint64_t>(done[i].value());
  for (std::size_t probe = 0; probe < most_probes; ++probe) {
    std::uint64_t* slot = slot_of(memory_, key, probe);
    std::uint64_t low = 0;
    if (!shared(slot[0]).compare_exchange_strong(low, key.low)) continue;
    shared(slot[1]).store(key.high);
    shared(slot[2]).store(first_word + used);
    return;
  }
}

bool FinishedCollectives::claim(const CollectiveKey& key, std::size_t times) {
  if (memory_ == nullptr || shared(memory_[0]).load() + 1 + times > words_) return true;
  return lock(file_, key, F_SETLK, F_WRLCK);
}

void FinishedCollectives::release(const CollectiveKey& key) { lock(file_, key, F_SETLK, F_UNLCK); }

void FinishedCollectives::wait_for(const CollectiveKey& key) {
  lock(file_, key, F_SETLKW, F_WRLCK);
  release(key);
}

FinishedCollectives& finished_collectives() { return of_program; }

}  // namespace stepcast
