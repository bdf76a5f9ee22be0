#include "collective/schedule.hpp"

#include "testing.hpp"

namespace stepcast {
namespace {

/// `pieces` from rank 0 to 1, of which each is handed on to 2; transfer 2k is the first hop of
/// piece k, 2k + 1 the second.
Schedule line(int pieces) {
  ScheduleBuilder builder(3, std::vector<Bytes>(static_cast<std::size_t>(pieces), Bytes{1}));
  for (int piece = 0; piece < pieces; ++piece) {
    const int arrived = builder.add({0, 1, 0}, piece, 1, false, {});
    builder.add({1, 2, 0}, piece, 1, false, {arrived});
  }
  return builder.take();
}

std::vector<int> dependencies_of(const Schedule& schedule, std::size_t transfer) {
  const auto list = schedule.dependencies_of(transfer);
  return {list.begin(), list.end()};
}

TEST(LimitInFlight, HoldsTheSenderUntilTheReceiverHasHandedOn) {
  Schedule schedule = line(5);
  limit_in_flight(schedule, 3);
  for (const std::size_t free : {0u, 2u, 4u})
    EXPECT_EQ(dependencies_of(schedule, free), std::vector<int>{});
  EXPECT_EQ(dependencies_of(schedule, 6), std::vector<int>{1});  // piece 3 waits for piece 0
  EXPECT_EQ(dependencies_of(schedule, 8), std::vector<int>{3});
  // Rank 2 keeps what it gets: nothing holds rank 1.
  EXPECT_EQ(dependencies_of(schedule, 7), std::vector<int>{6});
}

TEST(LimitInFlight, DoesNotTakeAnotherChunkForTheSameOne) {
  // Rank 1 waits for chunk 0 before it sends its own chunk 1, but hands nothing on.
  ScheduleBuilder builder(3, {Bytes{1}, Bytes{1}});
  const int first = builder.add({0, 1, 0}, 0, 1, false, {});
  builder.add({1, 2, 0}, 1, 1, false, {first});
  builder.add({0, 1, 0}, 0, 1, false, {});
  Schedule schedule = builder.take();
  limit_in_flight(schedule, 1);
  EXPECT_EQ(dependencies_of(schedule, 2), std::vector<int>{});
}

}  // namespace
}  // namespace stepcast
