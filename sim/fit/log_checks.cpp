#include "fit/log_checks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace stepcast {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double slack = 1e-6;  // the log's own arithmetic

/// All values that the printed digits allow.
struct Range {
  double low = 0.0;
  double high = infinity;

  [[nodiscard]] bool holds(double value) const {
    return value >= low * (1.0 - slack) && value <= high * (1.0 + slack);
  }
  [[nodiscard]] bool empty() const { return low > high * (1.0 + slack); }
  void narrow(const Range& other) {
    low = std::max(low, other.low);
    high = std::min(high, other.high);
  }
};

Range range_of(const Printed& printed) {
  return {std::max(0.0, printed.value - printed.half_digit), printed.value + printed.half_digit};
}

/// a / b over all that both allow.
Range ratio(const Range& a, const Range& b) {
  return {b.high > 0.0 ? a.low / b.high : 0.0, b.low > 0.0 ? a.high / b.low : infinity};
}

bool is_per_rank(const std::optional<Operation>& operation) {
  return operation == Operation::all_gather || operation == Operation::reduce_scatter;
}

/// busbw / algbw (nccl-tests doc/PERFORMANCE.md).
double bus_factor(Operation operation, int ranks) {
  const double n = ranks;
  if (operation == Operation::all_reduce) return 2.0 * (n - 1.0) / n;
  return is_per_rank(operation) ? (n - 1.0) / n : 1.0;
}

/// What algbw x time is in sizes, and whether busbw is algbw: before version 2.0.0 became what it
/// is, AllGather and ReduceScatter counted what the other ranks send and printed it twice.
struct Convention {
  double sizes = 1.0;
  bool busbw_is_algbw = false;
  bool size_of_one_rank = false;
};

std::vector<Convention> conventions_of(int ranks) {
  const double n = ranks;
  return {{n, false, true}, {(n - 1.0) / n, true, false}, {n - 1.0, true, true}};
}

/// One table on its way to being believed.
class Check {
 public:
  explicit Check(PrintedTable table)
      : run_(std::move(table.run)), rows_(std::move(table.rows)), told_ranks_(run_.ranks) {}

  CheckedTable result() {
    if (rows_.empty()) return {std::nullopt, no_rows()};
    run_.line = rows_.front().line;
    drop_empty_sizes();
    if (rows_.empty()) return {std::nullopt, fmt::format("{}: all its rows are of 0 bytes", at())};
    if (is_of_one_rank())
      return {std::nullopt, fmt::format("{}: the table is of one rank, which sends nothing", at())};
    drop_unusable();
    if (!rows_.empty()) settle();
    for (const PrintedRow& row : rows_) keep(row);
    if (run_.rows.empty())
      return {std::nullopt, run_.complaints.empty() ? no_rows() : run_.complaints.front()};
    return {std::move(run_), ""};
  }

 private:
  [[nodiscard]] std::string at() const { return fmt::format("{}:{}", run_.file, run_.line); }
  [[nodiscard]] std::string no_rows() const {
    return fmt::format("{}:{}: no complete row", run_.file, run_.line);
  }

  void complain(int line, const std::string& problem) {
    run_.complaints.push_back(fmt::format("{}:{}: {}", run_.file, line, problem));
  }

  /// nccl-tests rounds sizes below one element per rank down to nothing.
  void drop_empty_sizes() {
    std::erase_if(rows_, [](const PrintedRow& row) { return row.size.bytes == 0; });
  }

  /// busbw is 0 although algbw is not.
  [[nodiscard]] bool is_of_one_rank() const {
    bool seen = false;
    for (const PrintedRow& row : rows_) {
      const PrintedHalf& half = row.out_of_place;
      if (!half.algbw || !half.busbw || half.algbw->value < 10.0 * half.algbw->half_digit) continue;
      if (half.busbw->value != 0.0) return false;
      seen = true;
    }
    return seen || (run_.ranks == 1 && rows_.front().out_of_place.busbw &&
                    rows_.front().out_of_place.busbw->value == 0.0);
  }

  template <typename Problem>
  void drop_where(const Problem& problem) {
    std::vector<PrintedRow> kept;
    kept.reserve(rows_.size());
    for (PrintedRow& row : rows_) {
      const std::string text = problem(row);
      if (text.empty())
        kept.push_back(std::move(row));
      else
        complain(row.line, text);
    }
    rows_ = std::move(kept);
  }

  /// For each half of a row that has one: the first problem.
  template <typename Problem>
  static std::string of_both(const PrintedRow& row, const Problem& problem) {
    std::string text = problem(row.out_of_place, "");
    if (text.empty() && row.in_place) text = problem(*row.in_place, "in-place ");
    return text;
  }

  void drop_unusable() {
    drop_where([](const PrintedRow& row) {
      if (!row.out_of_place.time && !row.out_of_place.algbw)
        return std::string("there is no out-of-place time");
      return of_both(row, [](const PrintedHalf& half, const char* which) {
        if (half.wrong >= 1.0) return fmt::format("{} {}values came out wrong", half.wrong, which);
        const bool never =
            half.time ? half.time->value <= 0.0 : half.algbw && half.algbw->value <= 0.0;
        if (never) return fmt::format("the {}{} is 0", which, half.time ? "time" : "algbw");
        return std::string();
      });
    });
  }

  /// algbw x time / size of one half.
  static Range sizes_moved(const PrintedHalf& half, std::int64_t bytes) {
    if (!half.time || !half.algbw) return {};
    const Range algbw = range_of(*half.algbw);
    const Range time = range_of(*half.time);
    const auto size = static_cast<double>(bytes);
    return {algbw.low * time.low / size, algbw.high * time.high / size};
  }

  /// Powers of ten where only these agree with algbw.
  void settle_units() {
    for (PrintedRow& row : rows_) {
      if (row.size.decimal == row.size.bytes) continue;
      if (!sizes_moved(row.out_of_place, row.size.bytes).holds(1.0) &&
          sizes_moved(row.out_of_place, row.size.decimal).holds(1.0))
        row.size.bytes = row.size.decimal;
    }
  }

  [[nodiscard]] Range moved() const {
    Range all;
    for (const PrintedRow& row : rows_) {
      all.narrow(sizes_moved(row.out_of_place, row.size.bytes));
      if (row.in_place) all.narrow(sizes_moved(*row.in_place, row.size.bytes));
    }
    return all;
  }

  /// busbw / algbw, from the time where there is one because it has more digits.
  [[nodiscard]] Range factor_of(const PrintedHalf& half, std::int64_t bytes) const {
    if (!half.busbw) return {};
    const Range busbw = range_of(*half.busbw);
    if (half.algbw && half.algbw->value > 0.0) {
      Range factor = ratio(busbw, range_of(*half.algbw));
      if (half.time) factor.narrow(factor_from_time(busbw, *half.time, bytes));
      return factor;
    }
    return half.time ? factor_from_time(busbw, *half.time, bytes) : Range{};
  }
  [[nodiscard]] Range factor_from_time(const Range& busbw, const Printed& printed,
                                       std::int64_t bytes) const {
    const Range time = range_of(printed);
    const double size = static_cast<double>(bytes) * convention_.sizes;
    return {busbw.low * time.low / size, busbw.high * time.high / size};
  }

  [[nodiscard]] Range factor_of(const PrintedRow& row) const {
    Range factor = factor_of(row.out_of_place, row.size.bytes);
    if (row.in_place) factor.narrow(factor_of(*row.in_place, row.size.bytes));
    return factor;
  }

  [[nodiscard]] Range factor() const {
    Range all;
    for (const PrintedRow& row : rows_) all.narrow(factor_of(row));
    return all;
  }

  /// The one number of ranks that a factor allows; 0 when there is none or several.
  static int ranks_from(Operation operation, const Range& factor) {
    if (operation == Operation::broadcast) return 0;
    const double whole = operation == Operation::all_reduce ? 2.0 : 1.0;
    if (factor.high >= whole || factor.low <= 0.0) return 0;
    const double first = std::ceil(whole / (whole - factor.low * (1.0 - slack)) - slack);
    const double last = std::floor(whole / (whole - factor.high * (1.0 + slack)) + slack);
    return first == last && first >= 2.0 ? static_cast<int>(first) : 0;
  }

  /// AllGather, ReduceScatter and their like count the elements of one rank.
  [[nodiscard]] int ranks_from_count() const {
    std::int64_t ranks = 0;
    for (const PrintedRow& row : rows_) {
      const std::int64_t part = row.count * dtype_bytes_in_log(row.dtype);
      if (part <= 0 || row.size.bytes % part != 0) return 0;
      if (ranks != 0 && row.size.bytes / part != ranks) return 0;
      ranks = row.size.bytes / part;
    }
    return ranks < (1 << 24) ? static_cast<int>(ranks) : 0;
  }

  void settle() {
    settle_units();
    settle_convention();
    drop_where([&](const PrintedRow& row) { return algbw_problem(row); });
    if (rows_.empty()) return;
    if (!run_.operation && run_.other_operation.empty()) guess_operation();
    if (!run_.operation) {
      if (run_.ranks == 0 && ranks_from_count() > 1) run_.ranks = ranks_from_count();
      return;
    }
    settle_ranks();
    if (run_.ranks > 1) drop_where([&](const PrintedRow& row) { return busbw_problem(row); });
  }

  void settle_convention() {
    const Range all = moved();
    if (all.holds(1.0) || all.empty() || !is_per_rank(run_.operation)) return;
    const int from_low = static_cast<int>(std::lround(all.low));
    for (const int ranks :
         {run_.ranks, from_low, from_low + 1, ranks_from(Operation::all_gather, all)}) {
      if (ranks < 2) continue;
      for (const Convention& convention : conventions_of(ranks))
        if (all.holds(convention.sizes) && adopt(convention, ranks)) return;
    }
  }

  /// Whether busbw agrees, too.
  bool adopt(const Convention& convention, int ranks) {
    convention_ = convention;
    convention_ranks_ = ranks;
    const double expected =
        convention.busbw_is_algbw ? 1.0 : bus_factor(Operation::all_gather, ranks);
    if (!factor().holds(expected)) {
      convention_ = {};
      return false;
    }
    if (run_.ranks == 0) run_.ranks = ranks;
    return true;
  }

  [[nodiscard]] std::string algbw_problem(const PrintedRow& row) const {
    return of_both(row, [&](const PrintedHalf& half, const char* which) {
      if (sizes_moved(half, row.size.bytes).holds(convention_.sizes)) return std::string();
      return fmt::format("{}algbw {:.6g} GB/s is not {} B / {:.6g} us = {:.4g} GB/s", which,
                         half.algbw->value / 1e9, row.size.bytes, half.time->value * 1e6,
                         static_cast<double>(row.size.bytes) / half.time->value / 1e9);
    });
  }

  /// From the columns alone, where only one collective prints such.
  void guess_operation() {
    const PrintedRow& row = rows_.back();
    const Range all = factor();
    const int parts = ranks_from_count();
    if (all.empty()) return;
    if (all.low > 1.0 + slack && all.high < 2.0) {
      run_.operation = Operation::all_reduce;
    } else if (row.redop == "none" || (row.redop.empty() && row.root)) {
      if (row.root.value_or(-1) >= 0 && parts == 1 && all.holds(1.0))
        run_.operation = Operation::broadcast;
      // AlltoAll prints the same but cannot check its results in place.
      if (row.root.value_or(-1) < 0 && parts > 1 && row.in_place && row.in_place->checked)
        run_.operation = Operation::all_gather;
    } else if (!row.redop.empty()) {
      if (row.root.value_or(-1) >= 0)
        run_.other_operation = "reduce";
      else if (parts > 1)
        run_.operation = Operation::reduce_scatter;
      // SendRecv prints the same but cannot check its results in place.
      else if (parts == 1 && all.holds(1.0) && row.in_place && row.in_place->checked)
        run_.operation = Operation::all_reduce;
    }
  }

  void settle_ranks() {
    const Range all = factor();
    const Operation operation = *run_.operation;
    if (convention_.busbw_is_algbw) return;
    if (run_.ranks > 1 && all.holds(bus_factor(operation, run_.ranks))) return;
    const int parts = is_per_rank(operation) ? ranks_from_count() : 0;
    int found = ranks_from(operation, all);
    if (found == 0 && parts > 1 && all.holds(bus_factor(operation, parts))) found = parts;
    if (run_.ranks == 0) {
      run_.ranks = found;
      return;
    }
    // Some rows are as the text says: then it is the others that are wrong.
    const bool some_fit = std::any_of(rows_.begin(), rows_.end(), [&](const PrintedRow& row) {
      const Range one = factor_of(row);
      return one.high < infinity && one.low > 0.5 && one.holds(bus_factor(operation, run_.ranks));
    });
    if (some_fit || all.empty() || all.high == infinity) return;
    if (found != 0 && !reduction_contradicts())
      believe(operation, found);
    else
      believe_another_operation(all);
  }

  /// The column of reductions says that this is another collective.
  [[nodiscard]] bool reduction_contradicts() const {
    const std::string& redop = rows_.front().redop;
    const bool reduces =
        run_.operation == Operation::all_reduce || run_.operation == Operation::reduce_scatter;
    return !redop.empty() && (redop == "none") == reduces;
  }

  void believe(Operation operation, int ranks) {
    complain(run_.line,
             fmt::format("busbw is {:.4g} x algbw, as in {} on {} ranks, but the text says {} on "
                         "{} ranks",
                         bus_factor(operation, ranks), to_string(operation), ranks,
                         to_string(*run_.operation), told_ranks_));
    run_.operation = operation;
    run_.ranks = ranks;
  }

  void believe_another_operation(const Range& all) {
    for (const Operation operation : all_operations)
      if (all.holds(bus_factor(operation, run_.ranks)) &&
          is_per_rank(operation) == (ranks_from_count() > 1))
        return believe(operation, run_.ranks);
    complain(run_.line, fmt::format("busbw is {:.4g} x algbw, but in {} on {} ranks it is {:.4g} x",
                                    middle(all), to_string(*run_.operation), run_.ranks,
                                    bus_factor(*run_.operation, run_.ranks)));
    rows_.clear();
  }

  static double middle(const Range& range) {
    return range.high == infinity ? range.low : 0.5 * (range.low + range.high);
  }

  [[nodiscard]] std::string busbw_problem(const PrintedRow& row) const {
    const double factor =
        convention_.busbw_is_algbw ? 1.0 : bus_factor(*run_.operation, run_.ranks);
    return of_both(row, [&](const PrintedHalf& half, const char* which) {
      if (factor_of(half, row.size.bytes).holds(factor)) return std::string();
      const double algbw =
          half.algbw ? half.algbw->value : static_cast<double>(row.size.bytes) / half.time->value;
      return fmt::format("{}busbw {:.6g} GB/s is not {:.4g} x algbw {:.6g} GB/s ({}, {} ranks)",
                         which, half.busbw->value / 1e9, factor, algbw / 1e9,
                         to_string(*run_.operation), run_.ranks);
    });
  }

  [[nodiscard]] static Seconds time_of(const PrintedHalf& half, std::int64_t bytes) {
    if (half.time) return Seconds{half.time->value};
    return Bytes{static_cast<double>(bytes)} / BytesPerSecond{half.algbw->value};
  }

  void keep(const PrintedRow& printed) {
    LogRow row;
    row.line = printed.line;
    row.dtype = printed.dtype;
    row.out_of_place = time_of(printed.out_of_place, printed.size.bytes);
    if (printed.in_place && (printed.in_place->time || printed.in_place->algbw))
      row.in_place = time_of(*printed.in_place, printed.size.bytes);
    row.bytes = printed.size.bytes;
    if (convention_.size_of_one_rank) row.bytes *= convention_ranks_;
    run_.rows.push_back(std::move(row));
  }

  LogRun run_;
  std::vector<PrintedRow> rows_;
  int told_ranks_ = 0;
  Convention convention_;
  int convention_ranks_ = 0;
};

}  // namespace

CheckedTable check_table(PrintedTable table) { return Check(std::move(table)).result(); }

}  // namespace stepcast
