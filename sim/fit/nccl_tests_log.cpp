#include "fit/nccl_tests_log.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "fit/log_cells.hpp"
#include "fit/log_checks.hpp"

namespace stepcast {
namespace {

using Cells = std::vector<std::string_view>;

constexpr std::size_t longest_line = 1 << 16;  // of what can be a row

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Cells words_of(std::string_view text) {
  constexpr std::string_view blank = " \t\r";
  Cells words;
  std::size_t begin = text.find_first_not_of(blank);
  while (begin != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_of(blank, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(blank, end);
  }
  return words;
}

Cells split_at(std::string_view text, char separator) {
  Cells parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(trim(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::size_t end_of_digits(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

/// The end of `ESC[1;32m` at `at`.
std::size_t end_of_colour(std::string_view text, std::size_t at) {
  std::size_t end = at + 1;
  if (end < text.size() && text[end] == '[') ++end;
  while (end < text.size() && (is_digit(text[end]) || text[end] == ';' || text[end] == '?')) ++end;
  return std::min(end + 1, text.size());
}

/// The end of `[1,0]<stdout>:` or `<stdout>:` at `at`, or `at`. OpenMPI puts it before each piece
/// that it passes on, also within a row.
std::size_t end_of_mpi_tag(std::string_view text, std::size_t at) {
  std::size_t end = at;
  if (text[end] == '[') {
    end = end_of_digits(text, end + 1);
    if (end >= text.size() || text[end] != ',') return at;
    end = end_of_digits(text, end + 1);
    if (end >= text.size() || text[end] != ']') return at;
    ++end;
  }
  for (const std::string_view stream : {"<stdout>:", "<stderr>:", "<stdout>", "<stderr>"})
    if (text.substr(end, stream.size()) == stream) return end + stream.size();
  return at;
}

/// A line without what terminals and launchers add. '#' goes, too: some logs have lost it, others
/// have it before rows.
std::string cleaned(std::string_view line) {
  std::string text;
  text.reserve(line.size());
  for (std::size_t at = 0; at < line.size();) {
    const char c = line[at];
    if (c == '\x1b') {
      at = end_of_colour(line, at);
      continue;
    }
    if (c == '[' || c == '<') {
      const std::size_t end = end_of_mpi_tag(line, at);
      if (end != at) {
        text += ' ';
        at = end;
        continue;
      }
    }
    text += c == '#' || c == '\t' || c == '\r' ? ' ' : c;
    ++at;
  }
  return text;
}

std::optional<std::int64_t> size_word(std::string_view word) {
  if (word.empty() || !is_digit(word.front())) return std::nullopt;
  for (const char c : word)
    if (!is_digit(c) && c != '_') return std::nullopt;
  const auto size = size_cell(word, 1.0);
  return size ? std::optional(size->bytes) : std::nullopt;
}

bool is_not_available(std::string_view word) {
  return word == "N/A" || word == "n/a" || word == "NA" || word == "-" || word == "inf" ||
         word == "nan";
}

bool is_number_or_not_available(std::string_view word) {
  return is_not_available(word) || number_cell(word).has_value();
}

/// `2.17.9` from nccl-library=21709, 2.8.4 from 2804.
std::string version_from_code(std::int64_t code) {
  if (code <= 0) return {};
  const std::int64_t unit = code >= 10000 ? 10000 : 1000;
  return fmt::format("{}.{}.{}", code / unit, code % unit / 100, code % 100);
}

std::string_view word_after(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + key.size());
  text = text.substr(std::min(text.find_first_not_of(" :="), text.size()));
  return text.substr(0, text.find_first_of(" \t,;"));
}

struct Device {
  std::int64_t rank = 0;
  std::string host;
};

/// What the text has said since the last table.
struct Facts {
  std::optional<NamedOperation> operation;
  std::vector<Device> devices;
  int ranks = 0, nodes = 0;  // from NCCL's own lines
  std::optional<std::string> algorithm, protocol;
  std::string gpu;
};

/// No rank that is missing from the list can be on a host that is, too.
bool shows_all_hosts(const std::vector<Device>& devices, int ranks) {
  if (devices.empty() || devices.front().rank != 0 || devices.back().rank != ranks - 1)
    return false;
  for (std::size_t i = 1; i < devices.size(); ++i)
    if (devices[i].rank > devices[i - 1].rank + 1 && devices[i].host != devices[i - 1].host)
      return false;
  return true;
}

int count_hosts(const std::vector<Device>& devices) {
  std::vector<std::string_view> hosts;
  for (const Device& device : devices) hosts.emplace_back(device.host);
  std::sort(hosts.begin(), hosts.end());
  return static_cast<int>(std::unique(hosts.begin(), hosts.end()) - hosts.begin());
}

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  void read(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      ++line_;
      read_line(text.substr(0, end));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    close();
  }

  std::vector<LogRun> result() {
    if (!runs_.empty()) {
      auto& complaints = runs_.front().complaints;
      complaints.insert(complaints.end(), reasons_.begin(), reasons_.end());
      return std::move(runs_);
    }
    if (!reasons_.empty()) throw InputError(reasons_.front());
    throw InputError(file_, "no nccl-tests table: found no row of a size and a time");
  }

 private:
  enum class Layout { none, words, commas, bars };

  void read_line(std::string_view raw) {
    if (raw.size() > longest_line) return;
    const std::string clean = cleaned(raw);
    std::string_view line = trim(clean);
    if (line.empty()) return;
    const std::size_t info =
        std::min({line.find("NCCL INFO"), line.find("NCCL WARN"), line.find("NCCL TRACE")});
    read_facts(line, info != std::string_view::npos);
    if (line.front() == '|' && read_bars(line)) return;
    if (layout_ == Layout::bars) close();
    if (info != std::string_view::npos) line = line.substr(0, info);
    if (contains(line, ",") && read_commas(line)) return;
    read_words(line);
  }

  // ---- what is told around a table

  void read_facts(std::string_view line, bool from_nccl) {
    if (from_nccl) read_nccl_facts(line);
    if (contains(line, "Rank ") && contains(line, " on ")) read_device(line);
    if (contains(line, "_perf")) read_program(line);
    if (contains(line, "NCCL_ALGO")) read_setting(line, "NCCL_ALGO");
    if (contains(line, "NCCL_PROTO")) read_setting(line, "NCCL_PROTO");
    if (contains(line, "CCL version")) {
      version_ = word_after(line, "CCL version");
    } else if (contains(line, "nccl-library=") && version_.empty()) {
      if (const auto code = whole_number(word_after(line, "nccl-library=")))
        version_ = version_from_code(*code);
    }
    if (contains(line, "nThread ") && contains(line, "minBytes ")) begin_run();
    read_unit_line(line);
  }

  void read_nccl_facts(std::string_view line) {
    if (contains(line, "Destroy")) return;
    for (const std::string_view key : {" nranks ", " nRanks "})
      if (const auto ranks = whole_number(word_after(line, key)); ranks && *ranks < (1 << 24))
        facts_.ranks = static_cast<int>(*ranks);
    if (const auto nodes = whole_number(word_after(line, " nNodes ")); nodes && *nodes < (1 << 24))
      facts_.nodes = static_cast<int>(*nodes);
  }

  /// `Rank  3 Group  0 Pid  127 on node0 device  3 [0x9a] NVIDIA ...`
  void read_device(std::string_view line) {
    const auto rank = whole_number(word_after(line, "Rank "));
    const std::string_view host = word_after(line, " on ");
    if (!rank || *rank < 0 || *rank >= (1 << 24) || !contains(line, " device ")) return;
    if (!tables_.empty() && has_rows()) begin_run();
    facts_.devices.push_back({*rank, std::string(host)});
    const std::size_t bracket = line.find("] ", line.find(" device "));
    if (bracket == std::string_view::npos) return;
    const std::string gpu(trim(line.substr(bracket + 2)));
    if (facts_.gpu.empty())
      facts_.gpu = gpu;
    else if (!contains(facts_.gpu, gpu) && facts_.gpu.size() < 200)
      facts_.gpu += " + " + gpu;
  }

  /// `all_reduce_perf`, with a path before it or `_mpi` behind it.
  void read_program(std::string_view line) {
    const std::size_t end = line.find("_perf");
    std::size_t begin = end;
    while (begin > 0 &&
           (line[begin - 1] == '_' || (line[begin - 1] >= 'a' && line[begin - 1] <= 'z')))
      --begin;
    const auto named = operation_named(line.substr(begin, end - begin));
    if (!named) return;
    if (contains(line, "concluded")) {
      for (auto& [key, table] : tables_)
        if (!table.run.operation && table.run.other_operation.empty()) set(table.run, *named);
      return;
    }
    begin_run();
    facts_.operation = named;
  }

  /// `-x NCCL_ALGO=Ring`, `NCCL_ALGO set by environment to Ring.`, `"NCCL_ALGO": "Ring"`.
  void read_setting(std::string_view line, std::string_view key) {
    std::string_view rest = line.substr(line.find(key) + key.size());
    constexpr std::string_view by_environment = " set by environment to ";
    if (rest.substr(0, by_environment.size()) == by_environment)
      rest.remove_prefix(by_environment.size());
    else if (trim(rest).empty() || (trim(rest).front() != '=' && trim(rest).front() != ':'))
      return;
    const std::size_t begin = rest.find_first_not_of(" =:\"'`");
    if (begin == std::string_view::npos) return;
    rest.remove_prefix(begin);
    std::string_view value = rest.substr(0, rest.find_first_of(" \t\"'`\\)"));
    while (!value.empty() && (value.back() == '.' || value.back() == ',' || value.back() == ';'))
      value.remove_suffix(1);
    if (has_rows()) begin_run();
    const bool is_algorithm = key == "NCCL_ALGO";
    auto& known = is_algorithm ? facts_.algorithm : facts_.protocol;
    known = is_algorithm ? algorithm_named(value) : protocol_named(value);
    if (!known && !value.empty())
      warnings_.push_back(
          fmt::format("{}:{}: {}={} is not one that stepcast knows", file_, line_, key, value));
    if (contains(line.substr(0, line.find(key)), "export "))
      (is_algorithm ? exported_.algorithm : exported_.protocol) = known;
  }

  /// The line below the header: `(B) (elements) (us) (GB/s) (GB/s)`.
  void read_unit_line(std::string_view line) {
    if (layout_ != Layout::words || has_rows() || line.front() != '(') return;
    for (Measure& measure : columns_.measures)
      if (contains(line, "(ms)")) measure.time_unit = 1e-3;
    if (const std::size_t end = line.find(')'); end != std::string_view::npos) {
      const auto unit = size_cell("1" + std::string(line.substr(1, end - 1)), 1.0);
      if (unit && columns_.size_unit == 1.0) columns_.size_unit = static_cast<double>(unit->bytes);
    }
  }

  // ---- tables

  [[nodiscard]] bool has_rows() const { return !tables_.empty(); }

  static void set(LogRun& run, const NamedOperation& named) {
    run.operation = named.operation;
    run.other_operation = named.other;
  }

  /// A table with rows is over when the text starts to speak of another run.
  void begin_run() {
    if (has_rows()) close();
  }

  void close() {
    finish_pending();
    for (auto& [key, table] : tables_) order_.push_back(&table);
    std::stable_sort(
        order_.begin(), order_.end(),
        [](const PrintedTable* a, const PrintedTable* b) { return a->run.line < b->run.line; });
    for (PrintedTable* table : order_) {
      CheckedTable checked = check_table(std::move(*table));
      if (checked.run)
        runs_.push_back(std::move(*checked.run));
      else
        reasons_.push_back(checked.reason);
    }
    if (has_rows()) {
      facts_ = exported_;
      warnings_.clear();
    }
    order_.clear();
    tables_.clear();
    layout_ = Layout::none;
    columns_ = {};
  }

  void open(Layout layout, Columns columns, std::size_t offset) {
    close();
    layout_ = layout;
    columns_ = std::move(columns);
    offset_ = offset;
  }

  PrintedTable& table_for(const std::string& key) {
    const auto [found, is_new] = tables_.try_emplace(key);
    PrintedTable& table = found->second;
    if (is_new) describe(table.run);
    return table;
  }

  void describe(LogRun& run) const {
    run.file = file_;
    run.line = line_;
    if (facts_.operation) set(run, *facts_.operation);
    for (const Device& device : facts_.devices)
      run.ranks = std::max(run.ranks, static_cast<int>(device.rank) + 1);
    if (shows_all_hosts(facts_.devices, run.ranks)) run.nodes = count_hosts(facts_.devices);
    if (run.ranks == 0 || facts_.ranks > run.ranks) run.ranks = facts_.ranks;
    if (run.nodes == 0) run.nodes = facts_.nodes;
    run.algorithm = facts_.algorithm;
    run.protocol = facts_.protocol;
    run.nccl_version = version_;
    run.gpu = facts_.gpu;
    run.complaints = warnings_;
  }

  static std::string_view cell(const Cells& cells, int column) {
    return column >= 0 && column < static_cast<int>(cells.size())
               ? cells[static_cast<std::size_t>(column)]
               : std::string_view{};
  }

  static PrintedHalf half_of(const Cells& cells, const Measure& measure) {
    PrintedHalf half;
    half.time = time_cell(cell(cells, measure.time), measure.time_unit);
    half.algbw = bandwidth_cell(cell(cells, measure.algbw), measure.algbw_unit);
    half.busbw = bandwidth_cell(cell(cells, measure.busbw), measure.busbw_unit);
    if (const auto wrong = number_cell(cell(cells, measure.wrong))) {
      half.checked = true;
      half.wrong = wrong->value;
    }
    return half;
  }

  /// Reads the cells of one row into the table of each thing that the row measures.
  void add_row(const Cells& cells, const Columns& columns) {
    PrintedRow row;
    row.line = line_;
    const auto size = size_cell(cell(cells, columns.size), columns.size_unit);
    if (!size) return;
    row.size = *size;
    row.count = whole_number(cell(cells, columns.count)).value_or(0);
    row.dtype = cell(cells, columns.type);
    row.redop = cell(cells, columns.redop);
    row.root = whole_number(cell(cells, columns.root));
    for (const Measure& measure : columns.measures) {
      if (measure.time == -1 && measure.algbw == -1) continue;
      add_half(row, half_of(cells, measure), measure, cells, columns);
    }
  }

  void add_half(const PrintedRow& row, const PrintedHalf& half, const Measure& measure,
                const Cells& cells, const Columns& columns) {
    const bool in_place = measure.in_place || cell(cells, columns.in_place) == "1";
    if (in_place && !half.time && !half.algbw) return;
    if (!measure.label.empty() && !half.time && !half.algbw) return;
    const std::string_view collective = cell(cells, columns.operation);
    const std::string_view algorithm = cell(cells, columns.algorithm);
    const std::string_view protocol = cell(cells, columns.protocol);
    const std::string_view ranks = static_cast<int>(cells.size()) == columns.count_of_columns
                                       ? cell(cells, columns.ranks)
                                       : std::string_view{};
    PrintedTable& table = table_for(
        fmt::format("{}|{}|{}|{}|{}", measure.label, collective, algorithm, protocol, ranks));
    if (table.rows.empty()) {
      if (const auto named = operation_named(collective)) set(table.run, *named);
      if (measure.operation) set(table.run, *measure.operation);
      if (!algorithm.empty()) table.run.algorithm = algorithm_named(algorithm);
      if (measure.algorithm) table.run.algorithm = measure.algorithm;
      if (!protocol.empty()) table.run.protocol = protocol_named(protocol);
      if (measure.protocol) table.run.protocol = measure.protocol;
      if (const auto told = whole_number(ranks); told && *told > 0 && *told < (1 << 24))
        table.run.ranks = static_cast<int>(*told);
      table.run.label = measure.label;
    }
    if (in_place && !table.rows.empty() && table.rows.back().size.bytes == row.size.bytes &&
        table.rows.back().dtype == row.dtype && !table.rows.back().in_place) {
      table.rows.back().in_place = half;
      return;
    }
    table.rows.push_back(row);
    if (in_place)
      table.rows.back().in_place = half;
    else
      table.rows.back().out_of_place = half;
  }

  // ---- markdown

  bool read_bars(std::string_view line) {
    line.remove_prefix(1);
    if (!line.empty() && line.back() == '|') line.remove_suffix(1);
    const Cells cells = split_at(line, '|');
    if (std::all_of(cells.begin(), cells.end(), [](std::string_view text) {
          return text.find_first_not_of("-: ") == std::string_view::npos;
        }))
      return true;
    if (layout_ == Layout::bars) {
      add_row(cells, columns_);
      return true;
    }
    Columns columns = columns_named(cells);
    if (cells.size() < 2 || (columns.measures.empty() && columns.size == -1)) return false;
    open(Layout::bars, std::move(columns), 0);
    refuse_columns();
    return true;
  }

  /// Remembers why a table with such a header cannot be used.
  void refuse_columns() {
    if (columns_.size == -1)
      reasons_.push_back(fmt::format("{}:{}: the table has no column of sizes", file_, line_));
    else if (!columns_.has_measure())
      reasons_.push_back(
          fmt::format("{}:{}: the table has no column of times or algbw", file_, line_));
  }

  // ---- CSV

  bool read_commas(std::string_view line) {
    Cells cells = split_at(line, ',');
    if (cells.size() < 3) return false;
    if (layout_ != Layout::commas || std::none_of(line.begin(), line.end(), is_digit)) {
      Columns columns = columns_named(cells);
      if (columns.size == -1 || !columns.has_measure()) return false;
      open(Layout::commas, std::move(columns), 0);
      return true;
    }
    const auto type = std::find_if(cells.begin(), cells.end(), [](std::string_view text) {
      return dtype_bytes_in_log(text) != 0;
    });
    // rccl-tests writes one value more than its header names: count from the dtype.
    const int shift = columns_.type == -1 || type == cells.end()
                          ? 0
                          : static_cast<int>(type - cells.begin()) - columns_.type;
    if (shift < 0 || static_cast<int>(cells.size()) < columns_.count_of_columns) return false;
    if (shift == 0) {
      add_row(cells, columns_);
      return true;
    }
    add_row(cells, shifted(columns_, shift));
    return true;
  }

  /// All columns from the size on stand further right.
  static Columns shifted(Columns columns, int shift) {
    for (int* column :
         {&columns.count, &columns.type, &columns.redop, &columns.root, &columns.in_place})
      if (*column > columns.size) *column += shift;
    for (Measure& measure : columns.measures)
      for (int* column : {&measure.time, &measure.algbw, &measure.busbw, &measure.wrong})
        if (*column > columns.size) *column += shift;
    columns.size += shift;
    return columns;
  }

  // ---- columns that are aligned by blanks

  void read_words(std::string_view line) {
    if (!std::any_of(line.begin(), line.end(), is_digit)) {
      if (contains(line, "time")) read_header(words_of(line));
      return;
    }
    Cells words = words_of(line);
    std::erase(words, std::string_view("|"));
    if (contains(line, "algbw") && read_header(words)) return;
    const std::size_t start = start_of_typed_row(words);
    if (start != std::string_view::npos) {
      finish_pending();
      begin_typed_row({words.begin() + static_cast<std::ptrdiff_t>(start), words.end()});
    } else if (!pending_.empty()) {
      continue_row(words);
    } else if (layout_ == Layout::words && columns_.type == -1) {
      add_untyped_row(words);
    }
  }

  bool read_header(Cells words) {
    std::erase(words, std::string_view("|"));
    for (std::size_t offset = 0; offset < words.size(); ++offset) {
      const Columns first = columns_named({words[offset]});
      if (first.size == -1) continue;
      Columns columns =
          columns_named({words.begin() + static_cast<std::ptrdiff_t>(offset), words.end()});
      if (columns.unknown != 0 || !columns.has_measure()) return false;
      open(Layout::words, std::move(columns), offset);
      return true;
    }
    return false;
  }

  /// `SIZE COUNT DTYPE` stand in each row, whatever a launcher put before it.
  static std::size_t start_of_typed_row(const Cells& words) {
    for (std::size_t i = 2; i < words.size(); ++i)
      if (dtype_bytes_in_log(words[i]) != 0 && size_word(words[i - 1]) && size_word(words[i - 2]))
        return i - 2;
    return std::string_view::npos;
  }

  /// Cuts off a label behind the row, also without a blank: `-1[0]`, `node0:497888:497888`.
  static void drop_labels(Cells& words, std::size_t begin) {
    for (std::size_t i = begin; i < words.size(); ++i) {
      std::string_view& word = words[i];
      if (const std::size_t bracket = word.find('['); bracket != std::string_view::npos)
        word = word.substr(0, bracket);
      if (!word.empty() && word.back() == '*') word.remove_suffix(1);
      if (!is_number_or_not_available(word) && !is_reduction_name(word)) words.resize(i);
    }
  }

  /// The columns that a row without a fitting header must have, from how many there are.
  static std::optional<Columns> columns_of(const Cells& words) {
    Cells names = {"size", "count", "type"};
    std::size_t left = words.size() - 3;
    if (words.size() > 3 && is_reduction_name(words[3])) {
      names.emplace_back("redop");
      --left;
    }
    if (left == 9 || left == 7 || left == 5) {
      names.emplace_back("root");
      --left;
    }
    if (left != 8 && left != 6 && left != 4 && left != 3) return std::nullopt;
    const std::size_t halves = left > 4 ? 2 : 1;
    for (std::size_t half = 0; half < halves; ++half) {
      for (const std::string_view name : {"time", "algbw", "busbw"}) names.push_back(name);
      if (left == 8 || left == 4) names.emplace_back("wrong");
    }
    return columns_named(names);
  }

  void begin_typed_row(Cells words) {
    if (layout_ != Layout::words || columns_.type == -1) {
      Columns unnamed;
      unnamed.type = 2;
      open(Layout::words, unnamed, 0);
    }
    drop_labels(words, 3);
    if (static_cast<int>(words.size()) == columns_.count_of_columns)
      return add_row(words, columns_);
    const auto implied = columns_of(words);
    const bool may_go_on = static_cast<int>(words.size()) < columns_.count_of_columns;
    if (implied && !may_go_on) return add_row(words, *implied);
    for (const std::string_view word : words) pending_.emplace_back(word);
    pending_line_ = line_;
  }

  /// NCCL's own lines may stand between the pieces of a row.
  void continue_row(Cells words) {
    while (!words.empty() && (words.front().front() == '[' || words.front().back() == ':'))
      words.erase(words.begin());
    drop_labels(words, 0);
    if (words.size() < 3) return;
    if (static_cast<int>(pending_.size() + words.size()) > columns_.count_of_columns) return;
    for (const std::string_view word : words) pending_.emplace_back(word);
    if (static_cast<int>(pending_.size()) == columns_.count_of_columns) finish_pending();
  }

  void finish_pending() {
    if (pending_.empty()) return;
    const std::vector<std::string> held = std::exchange(pending_, {});
    const int line = std::exchange(line_, pending_line_);
    const Cells words(held.begin(), held.end());
    if (static_cast<int>(words.size()) == columns_.count_of_columns)
      add_row(words, columns_);
    else if (const auto implied = columns_of(words))
      add_row(words, *implied);
    else
      reasons_.push_back(fmt::format("{}:{}: the row is cut off", file_, line_));
    line_ = line;
  }

  void add_untyped_row(const Cells& words) {
    const auto count = static_cast<std::size_t>(columns_.count_of_columns);
    if (words.size() != offset_ + count) return;
    const Cells cells(words.begin() + static_cast<std::ptrdiff_t>(offset_), words.end());
    if (std::all_of(cells.begin(), cells.end(), is_number_or_not_available) ||
        size_cell(cell(cells, columns_.size), 1.0))
      add_row(cells, columns_);
  }

  std::string file_;
  int line_ = 0;
  Facts facts_, exported_;
  std::string version_;
  std::vector<std::string> warnings_;  ///< about settings, for the next table

  Layout layout_ = Layout::none;
  Columns columns_;
  std::size_t offset_ = 0;  ///< words before the first column of the header
  std::map<std::string, PrintedTable> tables_;
  std::vector<PrintedTable*> order_;
  std::vector<std::string> pending_;  ///< a row of which more must come
  int pending_line_ = 0;

  std::vector<LogRun> runs_;
  std::vector<std::string> reasons_;  ///< for tables that are not among the runs
};

}  // namespace

std::vector<LogRun> read_nccl_tests_log(const std::string& text, const std::string& file) {
  Reader reader(file);
  reader.read(text);
  return reader.result();
}

}  // namespace stepcast
