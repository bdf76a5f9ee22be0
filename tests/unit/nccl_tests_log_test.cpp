#include "fit/nccl_tests_log.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "testing.hpp"

// All fixtures are made up. With 8 ranks busbw is 2 * 7/8 = 1.75 x algbw in AllReduce, 7/8 in the
// others; 1 MiB in 100 us are 10.49 GB/s, 4 MiB in 200 us 20.97 GB/s, in 160 us 26.21 GB/s.

namespace stepcast {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<LogRun> read(const std::string& text) { return read_nccl_tests_log(text, "a.log"); }

LogRun only(const std::string& text) {
  const std::vector<LogRun> runs = read(text);
  EXPECT_EQ(runs.size(), 1u);
  return runs.empty() ? LogRun{} : runs.front();
}

std::string error_of(const std::string& text) {
  return input_error([&] { static_cast<void>(read(text)); });
}

const std::string header =
    "#       size  count   type  redop  root   time  algbw  busbw #wrong   time  algbw  busbw "
    "#wrong\n"
    "#        (B)  (elements)                 (us)  (GB/s)  (GB/s)          (us)  (GB/s) (GB/s)\n";
const std::string row_1m =
    "     1048576  262144  float   sum   -1  100.0  10.49  18.35  0   50.00  20.97  36.70  0\n";
const std::string row_4m =
    "     4194304 1048576  float   sum   -1  200.0  20.97  36.70  0   160.0  26.21  45.88  0\n";

std::string ranks_on(int first, int last, const std::string& host) {
  std::string text;
  for (int rank = first; rank <= last; ++rank)
    text += "#  Rank  " + std::to_string(rank) + " Group  0 Pid  " + std::to_string(900 + rank) +
            " on " + host + " device  0 [0000:0a:00] Imaginary G1\n";
  return text;
}

void expect_both_rows(const LogRun& run) {
  ASSERT_EQ(run.rows.size(), 2u);
  EXPECT_EQ(run.rows[0].bytes, 1048576);
  EXPECT_THAT(run.rows[0].out_of_place.value(), DoubleNear(100e-6, 1e-15));
  ASSERT_TRUE(run.rows[0].in_place.has_value());
  EXPECT_THAT(run.rows[0].in_place->value(), DoubleNear(50e-6, 1e-15));
  EXPECT_EQ(run.rows[1].bytes, 4194304);
  EXPECT_THAT(run.rows[1].out_of_place.value(), DoubleNear(200e-6, 1e-15));
  ASSERT_TRUE(run.rows[1].in_place.has_value());
  EXPECT_THAT(run.rows[1].in_place->value(), DoubleNear(160e-6, 1e-15));
  EXPECT_THAT(run.complaints, IsEmpty());
}

/// Puts `prefix` before each line.
std::string prefixed(const std::string& text, const std::string& prefix) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += prefix + line + "\n";
  return result;
}

TEST(NcclTestsLog, ReadsTheTableAndWhatIsSaidAboutIt) {
  const LogRun run = only(
      "# nccl-tests version 2.17.9 nccl-headers=22902 nccl-library=22902\n"
      "# Collective test starting: all_reduce_perf\n"
      "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 4(factor)\n# Using devices\n" +
      ranks_on(0, 3, "alpha") + ranks_on(4, 7, "beta") + "NCCL version 2.29.2+cuda13.1\n" + header +
      row_1m + row_4m + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 34.41\n");
  expect_both_rows(run);
  EXPECT_EQ(run.file, "a.log");
  EXPECT_EQ(run.line, 16);
  EXPECT_EQ(run.rows[1].line, 17);
  EXPECT_EQ(run.rows[0].dtype, "float");
  EXPECT_EQ(run.operation, Operation::all_reduce);
  EXPECT_EQ(run.ranks, 8);
  EXPECT_EQ(run.nodes, 2);
  EXPECT_EQ(run.nccl_version, "2.29.2+cuda13.1");
  EXPECT_EQ(run.gpu, "Imaginary G1");
  EXPECT_FALSE(run.algorithm.has_value());
  EXPECT_FALSE(run.protocol.has_value());
}

TEST(NcclTestsLog, ReadsTheOldColumnsWithoutRoot) {
  expect_both_rows(
      only("# size count type redop time algbw busbw error time algbw busbw error\n"
           "1048576 262144 float sum 100.0 10.49 18.35 5e-07 50.00 20.97 36.70 5e-07\n"
           "4194304 1048576 float sum 200.0 20.97 36.70 N/A 160.0 26.21 45.88 N/A\n"));
}

TEST(NcclTestsLog, ReadsTheOldColumnsOfBroadcastAndAllGather) {
  const LogRun broadcast = only(
      "# size count type root time algbw busbw error time algbw busbw error\n"
      "1048576 262144 float 0 100.0 10.49 10.49 0e+00 50.00 20.97 20.97 0e+00\n");
  EXPECT_EQ(broadcast.operation, Operation::broadcast);
  EXPECT_EQ(broadcast.ranks, 0);
  const LogRun all_gather = only(
      "# size count type time algbw busbw error time algbw busbw error\n"
      "1048576 32768 float 100.0 10.49 9.18 0e+00 50.00 20.97 18.35 0e+00\n"
      "# Collective test concluded: all_gather_perf\n");
  EXPECT_EQ(all_gather.operation, Operation::all_gather);
  EXPECT_EQ(all_gather.ranks, 8);
}

TEST(NcclTestsLog, SeesThroughWhatLaunchersPutBeforeEachLine) {
  for (const std::string prefix :
       {"[1,0]<stdout>:", "   [1,0]<stdout>: ", "0: ", " 0: ", "alpha: ", "[0] ",
        "2031-05-06T07:08:09.123Z ", "2031-05-06 07:08:09,123 ",
        "Tue May  6 07:08:09 2031<stdout>:", "pod/launcher-0 2031-05-06T07:08:09Z ",
        "launcher-1  | ", "\x1b[32m", "    "})
    expect_both_rows(only(prefixed(header + row_1m + row_4m, prefix)));
}

TEST(NcclTestsLog, ReadsRowsWithTagsInThem) {
  expect_both_rows(
      only(header +
           "[1,0]<stdout>: 1048576 262144 float sum -1[1,0]<stdout>:  100.0 10.49 18.35 0"
           "[1,0]<stdout>:  50.00 20.97 36.70 0\n" +
           row_4m));
}

TEST(NcclTestsLog, ReadsRowsThatNcclInterrupts) {
  const std::string info = "[0] alpha:12:12 [0] NCCL INFO 1048576 Bytes -> Algo 1 proto 2\n";
  expect_both_rows(only(header + "[0] 1048576 262144 float sum -1" + info + info +
                        "[0] 100.0 10.49 18.35 0" + info + info + "[0] 50.00 20.97 36.70 0\n" +
                        info + row_4m));
}

TEST(NcclTestsLog, ReadsTablesThatLostTheirHashes) {
  std::string text = header + row_1m + row_4m;
  std::erase(text, '#');
  expect_both_rows(only(text));
}

TEST(NcclTestsLog, ReadsRowsBehindAHash) {
  expect_both_rows(only(header + "#" + row_1m + "#" + row_4m));
}

TEST(NcclTestsLog, ReadsRowsWithoutAHeader) {
  const LogRun run = only("...\n" + row_1m + "...\n" + row_4m);
  expect_both_rows(run);
  EXPECT_EQ(run.operation, Operation::all_reduce);
  EXPECT_EQ(run.ranks, 8);
}

TEST(NcclTestsLog, ReadsWindowsLinesAndBarsAtTheEnd) {
  std::string text;
  for (const char c : header + row_1m + row_4m)
    text += c == '\n' ? std::string(" | |\r\n") : std::string(1, c);
  expect_both_rows(only(text));
}

TEST(NcclTestsLog, ReadsHalfATable) {
  const LogRun run = only(
      "# size count type redop time algbw busbw #wrong\n"
      "1048576 262144 float sum 100.0 10.49 18.35 0\n");
  ASSERT_EQ(run.rows.size(), 1u);
  EXPECT_FALSE(run.rows[0].in_place.has_value());
}

TEST(NcclTestsLog, ReadsColumnsThatSomebodyPicked) {
  const LogRun run = only(
      "$ ./build/all_reduce_perf -b 1M -e 4M -f 4 -g 8\n"
      "  size   time  algbw  busbw\n   (B)   (us)  (GB/s) (GB/s)\n"
      "1_048_576  100.0  10.49  18.35\n4_194_304  200.0  20.97  36.70\n");
  ASSERT_EQ(run.rows.size(), 2u);
  EXPECT_EQ(run.rows[1].bytes, 4194304);
  EXPECT_EQ(run.rows[1].dtype, "");
  EXPECT_EQ(run.operation, Operation::all_reduce);
  EXPECT_EQ(run.ranks, 8);
}

TEST(NcclTestsLog, ReadsUnitsInTheHeader) {
  const LogRun run = only("size(KB) time(ms) algbw(GB/s) busbw(GB/s)\n1024 0.1000 10.49 18.35\n");
  EXPECT_EQ(run.rows.at(0).bytes, 1048576);
  EXPECT_THAT(run.rows[0].out_of_place.value(), DoubleNear(100e-6, 1e-15));
  const LogRun below =
      only("size time algbw busbw\n(MB) (ms) (GB/s) (GB/s)\n1 0.1000 10.49 18.35\n");
  EXPECT_EQ(below.rows.at(0).bytes, 1048576);
  EXPECT_THAT(below.rows[0].out_of_place.value(), DoubleNear(100e-6, 1e-15));
}

TEST(NcclTestsLog, ReadsMarkdownWithUnitsInTheCells) {
  const LogRun run = only(
      "| payload | busbw | algbw |\n| ---: | :---: | --- |\n"
      "| 1MiB | 17.50GBps | 10.00GBps |\n| 4 MiB | 35.00 GB/s | 20.00 GB/s |\n");
  ASSERT_EQ(run.rows.size(), 2u);
  EXPECT_THAT(run.rows[0].out_of_place.value(), DoubleNear(1048576 / 10e9, 1e-12));
  EXPECT_EQ(run.operation, Operation::all_reduce);
  EXPECT_EQ(run.ranks, 8);
}

TEST(NcclTestsLog, TakesUnitsOfTenWhereAlgbwSaysSo) {
  const LogRun run = only(
      "| size | time | algbw |\n|---|---|---|\n"
      "| 1 MB | 100.0 us | 10.00 GB/s |\n| 1 MB | 0.1 ms | 10.49 GB/s |\n");
  ASSERT_EQ(run.rows.size(), 2u);
  EXPECT_EQ(run.rows[0].bytes, 1000000);
  EXPECT_EQ(run.rows[1].bytes, 1048576);
}

TEST(NcclTestsLog, ReadsOneRunForEachThingThatMarkdownCompares) {
  const auto runs = read(
      "| size | Ring | Tree/LL128 | Simple | note |\n|--|--|--|--|--|\n"
      "| 1 KB | 14.5 | 17.0 us | (none) | **Ring** |\n| 4 KB | 16.0 | 23.0 | 19 | |\n");
  ASSERT_EQ(runs.size(), 3u);
  const std::map<std::string, std::size_t> rows = {{runs[0].label, runs[0].rows.size()},
                                                   {runs[1].label, runs[1].rows.size()},
                                                   {runs[2].label, runs[2].rows.size()}};
  EXPECT_EQ(rows,
            (std::map<std::string, std::size_t>{{"ring", 2}, {"tree/ll128", 2}, {"simple", 1}}));
  EXPECT_EQ(runs[0].algorithm, "ring");
  EXPECT_EQ(runs[1].algorithm, "double_binary_tree");
  EXPECT_EQ(runs[1].protocol, "LL128");
  EXPECT_EQ(runs[2].protocol, "Simple");
  EXPECT_THAT(runs[0].rows[0].out_of_place.value(), DoubleNear(14.5e-6, 1e-15));
}

TEST(NcclTestsLog, ReadsGroupsAndCollectivesSideBySide) {
  const auto groups = read(
      "| Size | Group A algbw | Group B algbw | Group A busbw | Group B busbw |\n"
      "|--|--|--|--|--|\n| 1 MB | 10.00 GB/s | 20.00 GB/s | 17.50 GB/s | 35.00 GB/s |\n");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].label, "group a");
  EXPECT_EQ(groups[1].label, "group b");
  EXPECT_THAT(groups[1].rows[0].out_of_place.value(), DoubleNear(1048576 / 20e9, 1e-12));
  const auto named = read(
      "| Message | send/recv | all-reduce |\n|--|--|--|\n"
      "| 8 B (tiny) | 12.0 \xc2\xb5s | 19.5 \xc2\xb5s (14.0 \xc2\xb5s in a graph) |\n");
  ASSERT_EQ(named.size(), 2u);
  EXPECT_EQ(named[0].operation, Operation::all_reduce);
  EXPECT_EQ(named[1].other_operation, "sendrecv");
  EXPECT_THAT(named[0].rows[0].out_of_place.value(), DoubleNear(19.5e-6, 1e-15));
}

TEST(NcclTestsLog, ReadsTheCsvOfRcclTestsWithItsShortHeader) {
  const std::string csv_header =
      "numCycle,collective,ranks,rankspernode,gpusperrank,size,type,redop,inplace,time,algbw,busbw,"
      "#wrong\n";
  const LogRun run =
      only(csv_header +
           "0,\"AllReduce\",1,8,8,1,1048576,\"float\",\"sum\",0,100.0,10.48576,18.35008,\"0\"\n"
           "0,\"AllReduce\",1,8,8,1,1048576,\"float\",\"sum\",1,50.0,20.97152,36.70016,\"0\"\n"
           "0,\"AllReduce\",1,8,8,1,4194304,\"float\",\"sum\",0,200.0,20.97152,36.70016,\"N/A\"\n"
           "0,\"AllReduce\",1,8,8,1,4194304,\"float\",\"sum\",1,160.0,26.2144,45.8752,\"N/A\"\n");
  expect_both_rows(run);
  EXPECT_EQ(run.operation, Operation::all_reduce);
  EXPECT_EQ(run.ranks, 8);
  const auto right =
      read(csv_header +
           "0,\"AllReduce\",8,8,1,1048576,\"float\",\"sum\",0,100.0,10.48576,18.35008,\"0\"\n"
           "0,\"AllGather\",8,8,1,1048576,\"float\",\"none\",0,100.0,10.48576,9.17504,\"0\"\n");
  ASSERT_EQ(right.size(), 2u);
  EXPECT_EQ(right[0].ranks, 8);
  EXPECT_EQ(right[1].operation, Operation::all_gather);
}

TEST(NcclTestsLog, ReadsCsvWithColumnsOfAlgorithmAndProtocol) {
  const auto runs = read(
      "size_bytes,algo,proto,time_us,algbw_GBps\n"
      "1048576,Ring,LL,100.0,10.49\n1048576,NVLSTree,Simple,50.0,20.97\n");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].algorithm, "ring");
  EXPECT_EQ(runs[0].protocol, "LL");
  EXPECT_EQ(runs[1].algorithm, "nvls_tree");
  EXPECT_EQ(runs[1].protocol, "Simple");
}

TEST(NcclTestsLog, KnowsWhatWasForced) {
  for (const std::string text :
       {"mpirun -x NCCL_ALGO=Tree -x NCCL_PROTO=LL128 ./all_reduce_perf\n",
        "alpha:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Tree.\n"
        "alpha:1:1 [0] NCCL INFO NCCL_PROTO set by environment to LL128.\n",
        "\"NCCL_ALGO\": \"Tree\", \"NCCL_PROTO\": \"LL128\"\n"}) {
    const LogRun run = only(text + header + row_1m);
    EXPECT_EQ(run.algorithm, "double_binary_tree") << text;
    EXPECT_EQ(run.protocol, "LL128") << text;
  }
}

TEST(NcclTestsLog, ForgetsWhatWasForcedForOneRunOnly) {
  const auto runs = read("export NCCL_PROTO=Simple\nNCCL_ALGO=Ring ./all_reduce_perf\n" + header +
                         row_1m + "./all_reduce_perf\n" + header + row_1m);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].algorithm, "ring");
  EXPECT_FALSE(runs[1].algorithm.has_value());
  EXPECT_EQ(runs[1].protocol, "Simple");
}

TEST(NcclTestsLog, ReadsSeveralRunsOfOneFile) {
  const auto runs =
      read("$ ./all_reduce_perf -g 4\n" + ranks_on(0, 7, "alpha") + header + row_1m + row_4m +
           "$ ./broadcast_perf\n" + ranks_on(0, 1, "alpha") + ranks_on(2, 3, "beta") + header +
           "1048576 262144 half none 0 100.0 10.49 10.49 0 50.00 20.97 20.97 0\n");
  ASSERT_EQ(runs.size(), 2u);
  expect_both_rows(runs[0]);
  EXPECT_EQ(runs[0].nodes, 1);
  EXPECT_EQ(runs[1].operation, Operation::broadcast);
  EXPECT_EQ(runs[1].ranks, 4);
  EXPECT_EQ(runs[1].nodes, 2);
  EXPECT_EQ(runs[1].rows.at(0).dtype, "half");
}

TEST(NcclTestsLog, CountsNodesOnlyWhereTheListShowsThemAll) {
  const std::string ends = ranks_on(0, 0, "alpha") + ranks_on(3, 3, "alpha") +
                           ranks_on(4, 4, "beta") + ranks_on(7, 7, "beta");
  EXPECT_EQ(only(ends + header + row_1m).nodes, 2);
  const LogRun tail = only(ranks_on(7, 7, "beta") + header + row_1m);
  EXPECT_EQ(tail.ranks, 8);
  EXPECT_EQ(tail.nodes, 0);
}

TEST(NcclTestsLog, ReadsRanksAndNodesFromNcclsOwnLines) {
  const LogRun run = only(
      "alpha:1:1 [0] NCCL INFO comm 0x1 rank 3 nRanks 8 nNodes 4 localRanks 2\n" + header + row_1m);
  EXPECT_EQ(run.ranks, 8);
  EXPECT_EQ(run.nodes, 4);
}

TEST(NcclTestsLog, CountsTheElementsOfOneRank) {
  const LogRun run = only("# all_gather_perf\n" + header +
                          "1048576 4096 double none -1 100.0 10.49 10.16 0 50.00 20.97 20.32 0\n");
  EXPECT_EQ(run.ranks, 32);  // 31/32 = 0.96875; the digits of busbw alone allow 31 to 33
}

TEST(NcclTestsLog, ReadsOperationsThatStepcastDoesNotSimulate) {
  const LogRun run = only("# alltoall_perf\n" + header +
                          "1048576 32768 float none -1 100.0 10.49 9.18 0 50.00 20.97 18.35 N/A\n");
  EXPECT_FALSE(run.operation.has_value());
  EXPECT_EQ(run.other_operation, "alltoall");
  EXPECT_EQ(run.ranks, 8);
}

TEST(NcclTestsLog, DoesNotGuessBetweenCollectivesThatPrintTheSame) {
  // AllGather or AlltoAll; AllReduce of two ranks or SendRecv.
  EXPECT_FALSE(
      only("1048576 32768 float none -1 100.0 10.49 9.18 N/A 50.00 20.97 18.35 N/A\n").operation);
  EXPECT_FALSE(
      only("1048576 262144 float sum -1 100.0 10.49 10.49 0 50.00 20.97 20.97 N/A\n").operation);
  EXPECT_EQ(only("1048576 32768 float none -1 100.0 10.49 9.18 0 50.00 20.97 18.35 0\n").operation,
            Operation::all_gather);
  EXPECT_EQ(only("1048576 32768 float sum -1 100.0 10.49 9.18 0 50.00 20.97 18.35 0\n").operation,
            Operation::reduce_scatter);
  EXPECT_EQ(only("1048576 262144 float none 0 100.0 10.49 10.49 0 50.00 20.97 20.97 0\n").operation,
            Operation::broadcast);
  EXPECT_EQ(
      only("1048576 262144 float sum 0 100.0 10.49 10.49 0 50.00 20.97 20.97 0\n").other_operation,
      "reduce");
}

TEST(NcclTestsLog, KnowsThatTheFirstAllGatherCountedOnlyWhatOthersSend) {
  // 8 ranks: algbw = busbw = 7/8 x size / time, which is 9.175 GB/s.
  const LogRun whole = only(
      "all_gather_perf\n# size count type time algbw busbw error\n"
      "1048576 32768 float 100.0 9.18 9.18 0e+00\n4194304 131072 float 200.0 18.35 18.35 0e+00\n");
  EXPECT_EQ(whole.ranks, 8);
  EXPECT_EQ(whole.rows.at(0).bytes, 1048576);
  // The same with the size of one rank's part: algbw = busbw = 7 x size / time.
  const LogRun part = only(
      "all_gather_perf\n# size count type time algbw busbw error\n"
      "131072 32768 float 100.0 9.18 9.18 0e+00\n524288 131072 float 200.0 18.35 18.35 0e+00\n");
  EXPECT_EQ(part.ranks, 8);
  EXPECT_EQ(part.rows.at(0).bytes, 1048576);
}

TEST(NcclTestsLog, SkipsRowsWithoutBytesInSilence) {
  expect_both_rows(
      only(header + "0 0 float sum -1 15.51 0.00 0.00 0 15.52 0.00 0.00 0\n" + row_1m + row_4m));
}

// ---- complaints

std::vector<std::string> complaints_about(const std::string& row) {
  const LogRun run = only("# all_reduce_perf\n" + ranks_on(0, 7, "alpha") + header + row_4m + row);
  EXPECT_EQ(run.rows.size(), 1u);
  return run.complaints;
}

TEST(NcclTestsLog, ComplainsAboutAlgbw) {
  EXPECT_THAT(
      complaints_about("1048576 262144 float sum -1 100.0 11.49 18.35 0 50.00 20.97 36.70 0\n"),
      ElementsAre("a.log:13: algbw 11.49 GB/s is not 1048576 B / 100 us = 10.49 GB/s"));
  EXPECT_THAT(
      complaints_about("1048576 262144 float sum -1 100.0 10.49 18.35 0 60.00 20.97 36.70 0\n"),
      ElementsAre("a.log:13: in-place algbw 20.97 GB/s is not 1048576 B / 60 us = 17.48 GB/s"));
}

TEST(NcclTestsLog, ComplainsAboutBusbw) {
  EXPECT_THAT(
      complaints_about("1048576 262144 float sum -1 100.0 10.49 19.35 0 50.00 20.97 36.70 0\n"),
      ElementsAre(
          "a.log:13: busbw 19.35 GB/s is not 1.75 x algbw 10.49 GB/s (all_reduce, 8 ranks)"));
}

TEST(NcclTestsLog, ComplainsAboutWrongResultsAndMissingTimes) {
  EXPECT_THAT(
      complaints_about("1048576 262144 float sum -1 100.0 10.49 18.35 17 50.00 20.97 36.70 0\n"),
      ElementsAre("a.log:13: 17 values came out wrong"));
  EXPECT_THAT(
      complaints_about("1048576 262144 float sum -1 100.0 10.49 18.35 0 50.00 20.97 36.70 17\n"),
      ElementsAre("a.log:13: 17 in-place values came out wrong"));
  EXPECT_THAT(complaints_about("1048576 262144 float sum -1 0.00 inf 0.00 0 50.00 20.97 36.70 0\n"),
              ElementsAre("a.log:13: the time is 0"));
  EXPECT_THAT(
      complaints_about("1048576 262144 float sum -1 0.00 0.00 0.00 0 50.00 20.97 36.70 0\n"),
      ElementsAre("a.log:13: the time is 0"));
  EXPECT_THAT(complaints_about("1048576 262144 float sum -1 N/A N/A N/A N/A 50.00 20.97 36.70 0\n"),
              ElementsAre("a.log:13: there is no out-of-place time"));
}

TEST(NcclTestsLog, BelievesTheColumnsBeforeTheText) {
  const LogRun ranks =
      only("# all_reduce_perf\n" + ranks_on(0, 3, "alpha") + header + row_1m + row_4m);
  EXPECT_EQ(ranks.ranks, 8);
  EXPECT_THAT(
      ranks.complaints,
      ElementsAre("a.log:8: busbw is 1.75 x algbw, as in all_reduce on 8 ranks, but the text "
                  "says all_reduce on 4 ranks"));
  const LogRun operation =
      only("# all_reduce_perf\n" + ranks_on(0, 7, "alpha") + header +
           "1048576 262144 float none 0 100.0 10.49 10.49 0 50.00 20.97 20.97 0\n");
  EXPECT_EQ(operation.operation, Operation::broadcast);
  EXPECT_THAT(operation.complaints,
              ElementsAre("a.log:12: busbw is 1 x algbw, as in broadcast on 8 ranks, but the text "
                          "says all_reduce on 8 ranks"));
}

TEST(NcclTestsLog, ComplainsAboutAlgorithmsItDoesNotKnow) {
  const LogRun run =
      only("mpirun -x NCCL_ALGO=CollnetDirect ./all_reduce_perf\n" + header + row_1m);
  EXPECT_FALSE(run.algorithm.has_value());
  EXPECT_THAT(run.complaints,
              ElementsAre("a.log:1: NCCL_ALGO=CollnetDirect is not one that stepcast knows"));
}

TEST(NcclTestsLog, TellsOfTablesThatItLeavesOut) {
  const LogRun run =
      only("| collective | busbw |\n|--|--|\n| all-reduce | 480GBps |\n\n" + header + row_1m);
  EXPECT_THAT(run.complaints, ElementsAre("a.log:1: the table has no column of sizes"));
}

// ---- refusals

TEST(NcclTestsLog, RefusesTextWithoutATable) {
  EXPECT_EQ(error_of("nothing here\n"),
            "a.log: no nccl-tests table: found no row of a size and a time");
  EXPECT_EQ(error_of(""), "a.log: no nccl-tests table: found no row of a size and a time");
  EXPECT_EQ(error_of(header), "a.log: no nccl-tests table: found no row of a size and a time");
}

TEST(NcclTestsLog, RefusesRunsOfOneRank) {
  EXPECT_EQ(error_of(header + "1048576 262144 float sum -1 4.00 262.14 0.00 0 0.10 1e+07 0.00 0\n"),
            "a.log:3: the table is of one rank, which sends nothing");
}

TEST(NcclTestsLog, RefusesTablesWithoutSizesOrTimesOrRows) {
  EXPECT_EQ(error_of("| GPUs | busbw |\n|--|--|\n| 4 | 360GBps |\n"),
            "a.log:1: the table has no column of sizes");
  EXPECT_EQ(error_of("| size | busbw |\n|--|--|\n| 1 MB | 360GBps |\n"),
            "a.log:1: the table has no column of times or algbw");
  EXPECT_EQ(error_of(header + "0 0 float sum -1 15.51 0.00 0.00 0 15.52 0.00 0.00 0\n"),
            "a.log:3: all its rows are of 0 bytes");
  EXPECT_EQ(error_of(header + "1048576 262144 float sum -1 alpha:1:1 [0] NCCL INFO so\n"),
            "a.log:3: the row is cut off");
}

TEST(NcclTestsLog, RefusesTablesOfWhichNoRowHolds) {
  EXPECT_EQ(
      error_of(header + "1048576 262144 float sum -1 100.0 11.49 18.35 0 50.00 20.97 36.70 0\n"),
      "a.log:3: algbw 11.49 GB/s is not 1048576 B / 100 us = 10.49 GB/s");
  EXPECT_EQ(error_of("# broadcast_perf\n" + ranks_on(0, 3, "alpha") + header +
                     "1048576 262144 float sum -1 100.0 10.49 52.43 0 50.00 20.97 104.86 0\n"),
            "a.log:8: busbw is 5 x algbw, but in broadcast on 4 ranks it is 1 x");
}

TEST(NcclTestsLog, ReadsLongLogsInLinearTime) {
  const std::string info =
      "[1,3]<stdout>:alpha:1:1 [3] NCCL INFO Channel 03/0 : 7[7] -> 6[6] via P2P\n";
  std::string text = header;
  while (text.size() < 4'000'000) text += row_1m + info + info;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_GT(only(text).rows.size(), 10'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(error_of(std::string(4'000'000, '1')),
            "a.log: no nccl-tests table: found no row of a size and a time");
}

// ---- the published logs, which are not part of this repository

/// What index.json has and the text does not say, or says otherwise, checked by hand.
bool is_known(const std::string& slug, const std::string& what) {
  static const std::map<std::string, std::set<std::string>> known = {
      // Nothing but sizes and times is told.
      {"gb10-4n-ar-simple-vs-ll-md", {"operation", "ranks"}},
      {"kaggle-t4-2g-ar-ring-vs-tree-md", {"operation", "ranks"}},
      // busbw of small sizes has too few digits, and no rank is listed.
      {"nccl812-dgxa100-2n16g-ar-ring-small", {"operation", "ranks"}},
      {"nccl1244-h20-2n16g-ar-nvlstree-small", {"operation", "ranks"}},
      {"nccl1368-h100-5n40g-ar-ring-1row", {"ranks"}},
      {"p3dn-v100-2n16g-ar-small", {"ranks"}},
      {"p3dn-v100-4n32g-ar-small", {"ranks"}},
      {"sbouhrour-a100-8g-ar-algo-proto-8B", {"operation", "ranks"}},
      // AlltoAll would print the same, as results were not checked.
      {"superbench-a100-1n8g-ag", {"operation"}},
      {"dstack-gcp-a3mega-h100-2n16g-ag", {"operation"}},
      // SendRecv would print the same.
      {"v100pcie-2g-ar-half", {"operation"}},
      // One row came out with wrong values.
      {"alps-gh200-4n16g-ar", {"rows"}},
      {"alps-gh200-16n64g-ar", {"rows"}}};
  const auto found = known.find(slug);
  return found != known.end() && found->second.count(what) != 0;
}

const std::map<std::string, std::string>& refused_logs() {
  static const std::string one_rank = "the table is of one rank, which sends nothing";
  static const std::map<std::string, std::string> reasons = {
      {"rtx5090-1g-ar-single", ":1: " + one_rank},
      {"a100-80g-nonmpi-baseline-auto", ":53: " + one_rank},
      {"a100-80g-nonmpi-ring-forced", ":53: " + one_rank},
      {"a100-80g-nonmpi-clean-3gpu-test", ":23: " + one_rank},
      {"nccl1453-h100-3n24g-ar-brokenrows", ":4: the row is cut off"},
      {"stas-h200-gpucount-nvls-vs-ring-md", ":1: the table has no column of sizes"},
      {"stas-h200-16gib-collectives-md", ":1: the table has no column of sizes"}};
  return reasons;
}

std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void compare(const LogRun& run, const JsonView& entry, const std::string& slug) {
  const auto differs = [&](bool differ, const std::string& what) {
    EXPECT_TRUE(!differ || is_known(slug, what)) << slug << ": " << what;
  };
  const std::string collective = entry.at("collective").string();
  differs(!run.operation || to_string(*run.operation) != collective, "operation");
  differs(run.ranks != entry.at("total_gpus").integer(0, 1 << 20), "ranks");
  if (run.nodes != 0) differs(run.nodes != entry.at("nodes").integer(0, 1 << 20), "nodes");
  const JsonView derived = entry.at("derived");
  const std::string format = derived.at("format").string();
  if (format == "markdown-summary" || slug == "stas-a100-1n8g-ar-trimmed") return;
  // The CSV has a row for each of out-of-place and in-place.
  const auto rows = static_cast<std::int64_t>(run.rows.size()) * (format == "csv" ? 2 : 1);
  differs(rows != derived.at("rows").integer(0, 1 << 20), "rows");
  EXPECT_EQ(run.rows.front().bytes, derived.at("size_min").integer(0, std::int64_t{1} << 50))
      << slug;
  EXPECT_EQ(run.rows.back().bytes, derived.at("size_max").integer(0, std::int64_t{1} << 50))
      << slug;
}

TEST(NcclTestsLog, ReadsOrRefusesEachPublishedLog) {
  const std::string folder = repository_file("../shared/data/nccl-tests/");
  if (!std::filesystem::exists(folder + "index.json"))
    GTEST_SKIP() << "no published logs at " << folder;
  const auto index = JsonDocument::parse(contents_of(folder + "index.json"), "index.json");
  for (const JsonView& entry : index.root().elements()) {
    const std::string slug = entry.at("slug").string();
    const std::string text = contents_of(folder + slug + ".txt");
    if (const auto refused = refused_logs().find(slug); refused != refused_logs().end()) {
      EXPECT_EQ(input_error([&] { static_cast<void>(read_nccl_tests_log(text, slug)); }),
                slug + refused->second);
      continue;
    }
    for (const LogRun& run : read_nccl_tests_log(text, slug)) compare(run, entry, slug);
  }
}

}  // namespace
}  // namespace stepcast
