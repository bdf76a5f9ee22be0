// Traces of torch.profiler (Kineto's Chrome format) to a step trace: the program of one GPU with
// the collectives cut out. Several files are ranks of one run.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json_view.hpp"
#include "base/text.hpp"
#include "input/importer.hpp"
#include "input/importers/kineto_events.hpp"
#include "input/importers/kineto_steps.hpp"
#include "input/step_trace.hpp"

namespace stepcast {
namespace {

constexpr double worth_a_warning = 0.01;  // share of time that went to no span
constexpr double catching_up = 0.05;      // a leading step that differs so much is warm-up

template <class Value>
Value median_of(std::vector<Value> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : static_cast<Value>((values[half - 1] + values[half]) / 2);
}

double milliseconds(Nanoseconds time) { return static_cast<double>(time) * 1e-6; }

std::string seconds(Nanoseconds time) {
  return fmt::format("{:.9f}", static_cast<double>(time) * 1e-9);
}

struct Rank {
  std::string file;
  std::string gpu, nccl_version;
  int rank = -1, world_size = 0;
  RankSteps steps;
};

struct Gradient {
  std::string name;
  std::int64_t elements = 0;
};

class Import {
 public:
  Import(const ImportRequest& request, const std::function<void(double)>& progress)
      : request_(request), progress_(progress) {}

  Imported run() {
    check_options();
    read_ranks();
    check_parallelism();
    choose_steps();
    find_dtype();
    size_gradients();
    describe_collectives();
    describe_steps();
    imported_.trace_json = text();
    return std::move(imported_);
  }

 private:
  void note(std::string text) { imported_.notes.push_back(std::move(text)); }
  void warn(std::string text) { imported_.warnings.push_back(std::move(text)); }
  [[nodiscard]] std::string option(const std::string& key, const std::string& missing = "") const {
    const auto found = request_.options.find(key);
    return found == request_.options.end() ? missing : found->second;
  }
  template <class Read>
  [[nodiscard]] auto number(const std::string& key, Read read) const {
    JsonDocument document = JsonDocument::parse("{}", "command line");
    document.set({key}, option(key), "--set " + key);
    return read(document.root().at(key));
  }

  void check_options() const {
    const std::vector<std::string> known = {
        "name",       "source",    "gpu",         "precision",
        "parameters", "optimizer", "micro_batch", "optimizer_state_bytes_per_element"};
    for (const auto& [key, value] : request_.options)
      if (std::find(known.begin(), known.end(), key) == known.end())
        throw InputError("--set " + key, "is no setting of a kineto import" + suggest(key, known));
    if (request_.files.empty())
      throw InputError("stepcast import kineto", "name the traces of one run, one for each rank");
  }

  void read_ranks() {
    const auto files = static_cast<double>(request_.files.size());
    for (std::size_t i = 0; i < request_.files.size(); ++i) {
      const KinetoTrace trace = read_kineto(request_.files[i], [&](double share) {
        if (progress_) progress_((static_cast<double>(i) + share) / files);
      });
      ranks_.push_back({trace.file, trace.gpu, trace.nccl_version, trace.rank, trace.world_size,
                        steps_of(trace)});
      const RankSteps& steps = ranks_.back().steps;
      note(fmt::format("{}: {} events, {} steps by {}", trace.file, trace.events,
                       steps.steps.size(), steps.steps_from));
      note(
          fmt::format("{}: {:.2f} % of the compute stream's time belongs to no step, {:.2f} % of "
                      "GPU time is on other streams and not NCCL's",
                      trace.file, 100 * steps.unclassified, 100 * steps.other_streams));
      if (steps.unclassified > worth_a_warning)
        warn(
            fmt::format("{}: {:.1f} % of the compute stream's time belongs to no step (launched "
                        "before the first, after the last, or by calls that are not in the trace)",
                        trace.file, 100 * steps.unclassified));
      if (steps.other_streams > worth_a_warning)
        warn(
            fmt::format("{}: {:.1f} % of GPU time is on streams beside the compute stream and is "
                        "left out",
                        trace.file, 100 * steps.other_streams));
      if (steps.overlapped > worth_a_warning)
        warn(
            fmt::format("{}: kernels overlap on the compute stream for {:.1f} % of its time, which "
                        "is counted once",
                        trace.file, 100 * steps.overlapped));
      if (trace.backwards > 0)
        warn(fmt::format("{}: {} host events end before they start and are left out", trace.file,
                         trace.backwards));
    }
    std::set<int> numbers;
    for (const Rank& rank : ranks_) {
      if (rank.world_size != ranks_[0].world_size)
        throw InputError(rank.file,
                         fmt::format("is of {} ranks, {} of {}: not one run", rank.world_size,
                                     ranks_[0].file, ranks_[0].world_size));
      if (rank.rank >= 0 && !numbers.insert(rank.rank).second)
        throw InputError(rank.file, fmt::format("is rank {} a second time", rank.rank));
    }
  }

  void check_parallelism() {
    std::map<std::string, std::size_t> count;
    for (const Rank& rank : ranks_)
      for (const StepSample& step : rank.steps.steps)
        for (const TracedCollective& one : step.collectives) ++count[one.operation];
    for (const char* foreign : {"all_to_all", "all_gather", "reduce_scatter", "send", "recv"})
      if (count[foreign] > 0)
        warn(
            fmt::format("not plain data parallelism: {} {} collectives are left out of the program",
                        count[foreign], foreign));
    std::size_t all = 0;
    for (const auto& [operation, number_of] : count) all += number_of;
    if (ranks_[0].world_size > 1 && all == 0)
      warn(
          fmt::format("a run of {} ranks without communication on the GPU (no_sync, or another "
                      "backend than NCCL)",
                      ranks_[0].world_size));
  }

  static std::string signature(const StepSample& step) {
    std::string all;
    for (const SpanSample& span : step.spans)
      all += fmt::format("{}{}{};", static_cast<int>(span.phase), span.name, span.gradients);
    return all;
  }

  /// One span for forward, one for each run of gradients, one for the rest of each phase.
  static void coarsen(StepSample& step) {
    std::vector<SpanSample> joined;
    for (const SpanSample& span : step.spans) {
      const bool joins =
          !joined.empty() && joined.back().phase == span.phase && joined.back().gradients == 0;
      if (!joins) {
        joined.push_back(span);
        joined.back().name = span.phase == StepPhase::forward    ? "forward"
                             : span.phase == StepPhase::backward ? "backward"
                             : span.phase == StepPhase::finalize ? "finalize"
                                                                 : "optimizer";
        continue;
      }
      SpanSample& last = joined.back();
      last.duration += span.gap + span.duration;
      last.host += span.host;
      last.host_waits = last.host_waits || span.host_waits;
      last.gradients += span.gradients;
    }
    step.spans = std::move(joined);
  }

  [[nodiscard]] std::map<std::string, std::size_t> count_signatures() const {
    std::map<std::string, std::size_t> votes;
    for (const Rank& rank : ranks_)
      for (const StepSample& step : rank.steps.steps)
        if (!step.gradients.empty()) ++votes[signature(step)];
    return votes;
  }

  /// Steps of one sequence of spans, the most common one; without the first, whose length is not
  /// known, and others at the start whose host is still catching up.
  void choose_steps() {
    std::map<std::string, std::size_t> votes = count_signatures();
    if (votes.empty())
      throw InputError(ranks_[0].file,
                       "no step has an AccumulateGrad operator: not a training step, or profiled "
                       "without ProfilerActivity.CPU");
    const auto most_common = [&] {
      return std::max_element(votes.begin(), votes.end(),
                              [](const auto& a, const auto& b) { return a.second < b.second; });
    };
    std::size_t all = 0;
    for (const auto& [spans, count] : votes) all += count;
    if (2 * most_common()->second < all) {
      for (Rank& rank : ranks_)
        for (StepSample& step : rank.steps.steps) coarsen(step);
      votes = count_signatures();
      note("the steps run different operators: forward and optimizer are one span each");
    }
    const std::string common = most_common()->first;
    for (const Rank& rank : ranks_) {
      std::vector<const StepSample*> own;
      std::vector<std::string> dropped;
      for (const StepSample& step : rank.steps.steps) {
        if (signature(step) == common)
          own.push_back(&step);
        else
          dropped.push_back(step.name);
      }
      if (!dropped.empty())
        note(fmt::format("{}: dropped {}: other operators than most steps", rank.file,
                         fmt::join(dropped, ", ")));
      drop_warm_up(rank, own);
      steps_.insert(steps_.end(), own.begin(), own.end());
    }
    if (steps_.front()->backward_passes > 1)
      throw InputError(ranks_[0].file,
                       fmt::format("a step has {} backward passes (gradient accumulation): profile "
                                   "steps of one micro-batch, stepcast accumulates itself",
                                   steps_.front()->backward_passes));
    for (const StepSample* step : steps_)
      periods_.push_back(step->period > 0 ? step->period : step->end - step->begin);
    if (steps_.size() == 1)
      warn("one step is all there is: its length is the host's, and nothing was averaged");
  }

  void drop_warm_up(const Rank& rank, std::vector<const StepSample*>& own) {
    if (own.size() < 2) return;
    std::vector<std::string> dropped;
    const auto drop_first = [&] {
      dropped.push_back(own.front()->name);
      own.erase(own.begin());
    };
    if (own.front()->period == 0) drop_first();
    // A host that is late now and then is no warm-up: a quarter of the steps at most.
    const std::size_t least = own.size() - own.size() / 4;
    while (own.size() > std::max<std::size_t>(2, least)) {
      std::vector<Nanoseconds> later;
      for (std::size_t i = 1; i < own.size(); ++i) later.push_back(own[i]->period);
      const auto usual = static_cast<double>(median_of(later));
      if (std::abs(static_cast<double>(own.front()->period) / usual - 1.0) <= catching_up) break;
      drop_first();
    }
    if (!dropped.empty())
      note(
          fmt::format("{}: dropped {}: warm-up (nothing before it to measure from, or its host is "
                      "still catching up)",
                      rank.file, fmt::join(dropped, ", ")));
  }

  void find_dtype() {
    std::map<std::string, std::int64_t> elements;
    for (const TracedCollective& one : steps_.front()->called)
      if (one.operation == "all_reduce" && !one.dtype.empty()) elements[one.dtype] += one.elements;
    if (!elements.empty())
      dtype_ = std::max_element(elements.begin(), elements.end(), [](const auto& a, const auto& b) {
                 return a.second < b.second;
               })->first;
    if (dtype_.empty()) dtype_ = steps_.front()->gradients.front().dtype;
    const std::map<std::string, std::string> of_precision = {
        {"fp32", "float32"}, {"tf32", "float32"},  {"amp", "float32"},
        {"fp16", "float16"}, {"bf16", "bfloat16"}, {"fp64", "float64"}};
    if (dtype_.empty()) {
      if (const auto found = of_precision.find(option("precision")); found != of_precision.end())
        dtype_ = found->second;
    }
    if (dtype_.empty()) {
      dtype_ = "float32";
      warn(
          "the trace does not say the gradients' element type; taken for float32 (--set "
          "precision=bf16 says otherwise)");
    }
    for (const auto& [precision, dtype] : of_precision)
      if (dtype == dtype_ && precision != "amp" && precision != "tf32") precision_ = precision;
    precision_ = option("precision", precision_);
  }

  void size_gradients() {
    const std::vector<GradientSample>& found = steps_.front()->gradients;
    const auto count = found.size();
    gradients_.resize(count);
    const std::int64_t width = bytes_of_dtype(dtype_);
    std::size_t by_input = 0, by_copy = 0, by_grid = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (found[i].elements > 0) {
        gradients_[i].elements = found[i].elements;
        ++by_input;
      } else if (found[i].bytes > 0 && found[i].bytes % width == 0) {
        gradients_[i].elements = found[i].bytes / width;
        ++by_copy;
      } else if (found[i].elements_at_most > 0) {
        gradients_[i].elements = found[i].elements_at_most;
        ++by_grid;
      }
    }
    const bool exact = by_input + by_copy == count;
    const bool sized = exact || option("parameters").empty();
    if (exact) {
      note(
          fmt::format("{} gradients; sizes of {} from the operators' inputs, of {} from the copies "
                      "out of DDP's buckets",
                      count, by_input, by_copy));
      check_grids(found);
    } else if (sized && by_input + by_copy + by_grid == count) {
      warn(fmt::format(
          "sizes of {} of {} gradients are from launch grids, which round up to a block "
          "(512 elements or more); --set parameters=FILE names the exact ones",
          by_grid, count));
    } else if (sized) {
      throw InputError(
          ranks_[0].file,
          fmt::format("the trace does not say how large {} of its {} gradients are; give --set "
                      "parameters=FILE (a stepcast.trace/1 file of the model, or "
                      "models.json#MODEL), or profile with record_shapes=True",
                      count - by_input - by_copy - by_grid, count));
    }
    if (steps_.front()->without_gradient > 0)
      warn(fmt::format("{} AccumulateGrads without a gradient are left out",
                       steps_.front()->without_gradient));
    if (!option("parameters").empty()) {
      name_gradients(sized);
    } else {
      for (std::size_t i = 0; i < count; ++i) gradients_[i].name = fmt::format("gradient_{}", i);
      note(
          "parameters are named gradient_0, gradient_1, ... in the order in which their gradients "
          "become ready; --set parameters=FILE gives them names");
    }
    check_collectives();
  }

  /// The sizes claimed for the gradients fit the grids of the kernels that made them.
  void check_grids(const std::vector<GradientSample>& found) {
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::int64_t most = found[i].elements_at_most;
      if (most > 0 && (gradients_[i].elements > most || 2 * gradients_[i].elements < most - 4096)) {
        warn(
            fmt::format("gradient {} has {} elements by the copies out of the buckets, but its "
                        "kernel's grid is for {}: the buckets' order is not that of the gradients",
                        i, gradients_[i].elements, most));
        return;
      }
    }
  }

  /// The AllReduces carry the gradients, no more and no less.
  void check_collectives() {
    std::int64_t reduced = 0, gradients = 0;
    std::size_t count = 0;
    for (const TracedCollective& one : steps_.front()->called)
      if (one.operation == "all_reduce" && (one.dtype.empty() || one.dtype == dtype_)) {
        reduced += one.elements;
        ++count;
      }
    for (const Gradient& one : gradients_) gradients += one.elements;
    if (reduced == 0) return;
    if (reduced == gradients)
      note(fmt::format("{} AllReduces carry the {} elements of the gradients, as they should",
                       count, gradients));
    else
      warn(fmt::format("{} AllReduces carry {} elements, the gradients have {}", count, reduced,
                       gradients));
  }

  [[nodiscard]] std::vector<Parameter> parameter_table() const {
    const std::string file = option("parameters");
    const std::size_t hash = file.rfind('#');
    const JsonDocument document = JsonDocument::read_file(file.substr(0, hash));
    std::vector<Parameter> parameters;
    if (hash == std::string::npos) return read_step_trace(document.root()).parameters;
    for (const JsonView& tensor :
         document.root().at(file.substr(hash + 1)).at("tensors").elements())
      parameters.push_back({tensor.at("name").string(),
                            tensor.at("numel").integer(1, std::int64_t{1} << 44), dtype_});
    return parameters;
  }

  /// Autograd visits layers in reverse; of the parameters of one size, the last registered first.
  void name_gradients(bool sized) {
    const std::vector<Parameter> table = parameter_table();
    const std::string where = "--set parameters=" + option("parameters");
    if (table.size() != gradients_.size())
      throw InputError(where, fmt::format("has {} parameters, the trace {} gradients", table.size(),
                                          gradients_.size()));
    registration_.resize(table.size());
    std::vector<bool> used(table.size(), false);
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      std::size_t match = table.size();
      for (std::size_t k = table.size(); k-- > 0 && match == table.size();)
        if (!used[k] && (!sized || table[k].elements == gradients_[i].elements)) match = k;
      if (match == table.size())
        throw InputError(where, fmt::format("has no parameter left of {} elements, as gradient {} "
                                            "of the trace has",
                                            gradients_[i].elements, i));
      used[match] = true;
      gradients_[i] = {table[match].name, table[match].elements};
      registration_[match] = i;
    }
    warn(sized
             ? "parameters of one size are told apart by the reverse of their registration"
             : "the trace does not say the gradients' sizes: they are taken to become ready in the "
               "reverse of their registration");
  }

  /// What the ranks' collectives took: the last to arrive waits for nobody, so the shortest of a
  /// collective's durations is its transfer, and what the others took longer is waiting.
  void describe_collectives() {
    std::map<std::string, std::vector<const StepSample*>> by_name;
    for (const Rank& rank : ranks_)
      for (const StepSample& step : rank.steps.steps) by_name[step.name].push_back(&step);
    std::vector<std::vector<Meeting>> meetings;  // of each step
    for (const auto& [name, of_ranks] : by_name) {
      if (of_ranks.size() != ranks_.size() || of_ranks.front()->collectives.empty()) continue;
      const std::vector<TracedCollective>& first = of_ranks.front()->collectives;
      const bool alike = std::all_of(of_ranks.begin(), of_ranks.end(), [&](const StepSample* step) {
        return std::equal(first.begin(), first.end(), step->collectives.begin(),
                          step->collectives.end(),
                          [](const auto& a, const auto& b) { return a.operation == b.operation; });
      });
      if (!alike) {
        warn(fmt::format(
            "{}: the ranks' collectives differ, so waiting cannot be told from transfer", name));
        continue;
      }
      meetings.push_back(meetings_of(of_ranks));
      if (meetings.back().size() != meetings.front().size()) meetings.pop_back();
    }
    if (meetings.empty()) return;
    keep_for_calibration(meetings);
    constexpr std::size_t most_told = 32;
    for (std::size_t i = 0; i < std::min(meetings.front().size(), most_told); ++i) {
      std::vector<Nanoseconds> transfers, skews;
      for (const std::vector<Meeting>& step : meetings) {
        transfers.push_back(step[i].transfer);
        skews.push_back(step[i].skew);
      }
      const Meeting& one = meetings.front()[i];
      const std::string size = one.bytes > 0 ? fmt::format("{} B", one.bytes) : "size not said";
      const std::string waiting =
          ranks_.size() > 1
              ? fmt::format("after the last arrival, which is {:.3f} ms behind the first",
                            milliseconds(median_of(skews)))
              : "with waiting for other ranks (give all ranks' traces to tell it apart)";
      note(fmt::format("collective {}, {}, {}: {:.3f} ms {}", i, one.operation, size,
                       milliseconds(median_of(transfers)), waiting));
    }
    if (meetings.front().size() > most_told)
      note(fmt::format("{} more collectives", meetings.front().size() - most_told));
  }

  /// A collective of all ranks.
  struct Meeting {
    std::string operation;
    std::int64_t bytes = 0;
    Nanoseconds transfer = 0, skew = 0;
  };

  /// A calibration takes each operation and size once, from all ranks of the run.
  void keep_for_calibration(const std::vector<std::vector<Meeting>>& meetings) {
    imported_.nccl_version = ranks_[0].nccl_version;
    if (ranks_.size() < 2 || static_cast<int>(ranks_.size()) != ranks_[0].world_size) return;
    std::map<std::pair<std::string, std::int64_t>, std::vector<Nanoseconds>> transfers;
    for (const std::vector<Meeting>& step : meetings)
      for (const Meeting& one : step)
        if (one.bytes > 0) transfers[{one.operation, one.bytes}].push_back(one.transfer);
    for (const auto& [what, times] : transfers) {
      const auto& [operation, bytes] = what;
      if (operation != "all_reduce" && operation != "all_gather" && operation != "reduce_scatter" &&
          operation != "broadcast")
        continue;
      CollectiveSample sample;
      sample.operation = operation;
      sample.ranks = static_cast<int>(ranks_.size());
      sample.bytes = bytes;
      sample.time = Seconds{milliseconds(median_of(times)) * 1e-3};
      imported_.collectives.push_back(sample);
    }
  }

  static std::vector<Meeting> meetings_of(const std::vector<const StepSample*>& of_ranks) {
    const std::vector<TracedCollective>& first = of_ranks.front()->collectives;
    // A collective ends on all ranks at once, which sets their clocks.
    std::vector<Nanoseconds> offsets;
    for (const StepSample* step : of_ranks) {
      std::vector<Nanoseconds> differences;
      for (std::size_t i = 0; i < first.size(); ++i)
        differences.push_back(step->collectives[i].end - first[i].end);
      offsets.push_back(median_of(differences));
    }
    std::vector<Meeting> meetings;
    for (std::size_t i = 0; i < first.size(); ++i) {
      Meeting meeting{first[i].operation, 0, first[i].end - first[i].start, 0};
      Nanoseconds earliest = first[i].start, latest = first[i].start;
      for (std::size_t r = 0; r < of_ranks.size(); ++r) {
        const TracedCollective& one = of_ranks[r]->collectives[i];
        meeting.bytes = std::max(meeting.bytes, one.bytes());
        meeting.transfer = std::min(meeting.transfer, one.end - one.start);
        earliest = std::min(earliest, one.start - offsets[r]);
        latest = std::max(latest, one.start - offsets[r]);
      }
      meeting.skew = latest - earliest;
      meetings.push_back(meeting);
    }
    return meetings;
  }

  void describe_steps() {
    std::vector<Nanoseconds> computing, communicating, exposed;
    for (const StepSample* step : steps_) {
      computing.push_back(step->compute_busy);
      communicating.push_back(step->communication_busy);
      exposed.push_back(step->exposed);
    }
    note(fmt::format(
        "median of {} steps: {:.3f} ms, {:.3f} ms computing, {:.3f} ms NCCL of which "
        "{:.3f} ms exposed",
        steps_.size(), milliseconds(median_of(periods_)), milliseconds(median_of(computing)),
        milliseconds(median_of(communicating)), milliseconds(median_of(exposed))));
  }

  std::int64_t micro_batch() {
    if (!option("micro_batch").empty())
      return number("micro_batch", [](const JsonView& view) { return view.integer(1, 1 << 24); });
    if (steps_.front()->batch > 0 && steps_.front()->batch <= 1 << 24) {
      note(fmt::format("micro-batch {}, from the input of {}; --set micro_batch=N says otherwise",
                       steps_.front()->batch, steps_.front()->batch_from));
      return steps_.front()->batch;
    }
    throw InputError(ranks_[0].file,
                     "the trace does not say its micro-batch (it was not made with "
                     "record_shapes=True); give --set micro_batch=N");
  }

  /// In DDP nothing is added; else DDP's kernels are, and the host issues them like the others.
  std::string ddp_text() {
    if (ranks_[0].steps.ddp) return "  \"in_ddp\": true";
    std::vector<Nanoseconds> per_kernel;
    for (const StepSample* step : steps_) {
      Nanoseconds host = 0;
      for (const SpanSample& span : step->spans) host += span.host;
      per_kernel.push_back(host / static_cast<Nanoseconds>(step->launches));
    }
    return fmt::format("  \"in_ddp\": false,\n  \"host_per_kernel_s\": {}",
                       seconds(median_of(per_kernel)));
  }

  std::string optimizer_text() {
    const RankSteps& steps = ranks_[0].steps;
    const std::string guess = steps.optimizer.empty() ? "not known"
                              : steps.momentum        ? steps.optimizer + " with momentum"
                                                      : steps.optimizer;
    double state = 0.0;
    if (!option("optimizer_state_bytes_per_element").empty()) {
      state = number("optimizer_state_bytes_per_element",
                     [](const JsonView& view) { return view.number(0.0, 64.0); });
    } else {
      // Moments that each keeps for each element, in the parameters' type.
      const std::map<std::string, double> moments = {{"SGD", steps.momentum ? 1.0 : 0.0},
                                                     {"Adam", 2.0},
                                                     {"AdamW", 2.0},
                                                     {"NAdam", 2.0},
                                                     {"RAdam", 2.0},
                                                     {"Adagrad", 1.0},
                                                     {"RMSprop", 1.0}};
      const auto found = moments.find(steps.optimizer);
      if (found != moments.end())
        state = found->second * static_cast<double>(bytes_of_dtype(dtype_));
      else
        warn(
            "the optimizer's state is not known and left out of the memory account; give --set "
            "optimizer_state_bytes_per_element=N");
    }
    return fmt::format("{{\"name\": {}, \"state_bytes_per_element\": {}}}",
                       quote_json(option("optimizer", guess)), format_number(state));
  }

  [[nodiscard]] std::vector<std::string> spans_text(StepPhase phase) const {
    std::vector<std::string> lines;
    std::size_t gradient = 0;
    const std::vector<SpanSample>& spans = steps_.front()->spans;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      std::vector<Nanoseconds> gap, duration, host;
      std::size_t waits = 0;
      for (const StepSample* step : steps_) {
        gap.push_back(step->spans[i].gap);
        duration.push_back(step->spans[i].duration);
        host.push_back(step->spans[i].host);
        waits += step->spans[i].host_waits ? 1 : 0;
      }
      const auto first = gradient;
      gradient += static_cast<std::size_t>(spans[i].gradients);
      if (spans[i].phase != phase) continue;
      std::string line =
          fmt::format("{{\"name\": {}, \"gap_s\": {}, \"duration_s\": {}, \"host_s\": {}",
                      quote_json(spans[i].name), seconds(median_of(gap)),
                      seconds(median_of(duration)), seconds(median_of(host)));
      if (2 * waits > steps_.size()) line += ", \"host_waits\": true";
      if (gradient > first) {
        std::vector<std::string> names;
        for (std::size_t g = first; g < gradient; ++g)
          names.push_back(quote_json(gradients_[g].name));
        line += fmt::format(", \"gradients\": [{}]", fmt::join(names, ", "));
      }
      lines.push_back(line + "}");
    }
    return lines;
  }

  static std::string listed(const std::string& key, const std::vector<std::string>& lines,
                            const std::string& indent) {
    if (lines.empty()) return fmt::format("{}\"{}\": []", indent, key);
    return fmt::format("{0}\"{1}\": [\n{0}  {2}\n{0}]", indent, key,
                       fmt::join(lines, ",\n" + indent + "  "));
  }

  std::string text() {
    std::vector<std::string> parameters;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const std::size_t ready =
          registration_.empty() ? gradients_.size() - 1 - i : registration_[i];
      parameters.push_back(fmt::format("{{\"name\": {}, \"elements\": {}, \"dtype\": \"{}\"}}",
                                       quote_json(gradients_[ready].name),
                                       gradients_[ready].elements, dtype_));
    }
    std::vector<std::string> buffers;
    for (const TracedCollective& one : steps_.front()->called)
      if (one.operation == "broadcast" && !one.dtype.empty())
        buffers.push_back(
            fmt::format("{{\"elements\": {}, \"dtype\": \"{}\"}}", one.elements, one.dtype));
    std::vector<std::string> files;
    for (const Rank& rank : ranks_)
      files.push_back(std::filesystem::path(rank.file).filename().string());
    std::vector<std::string> used;
    for (const StepSample* step : steps_) used.push_back(step->name);
    std::string gpu = option("gpu", ranks_[0].gpu);
    if (gpu.empty()) gpu = "not known";
    std::vector<std::string> versions;
    if (!ranks_[0].nccl_version.empty())
      versions.push_back("\"nccl\": " + quote_json(ranks_[0].nccl_version));
    const std::string source =
        option("source", fmt::format("stepcast import kineto of {}: median of each span over {} "
                                     "steps{}",
                                     fmt::join(files, ", "), steps_.size(),
                                     ranks_[0].world_size > 1
                                         ? fmt::format(" of a run on {} GPUs, collectives and "
                                                       "waiting for them cut out",
                                                       ranks_[0].world_size)
                                         : ""));
    const auto [fastest, slowest] = std::minmax_element(periods_.begin(), periods_.end());
    std::vector<std::string> measured = {
        fmt::format("      \"micro_batch\": {}", micro_batch()),
        fmt::format("      \"steps\": {}", steps_.size()),
        fmt::format("      \"step_time_s\": {{\"median\": {}, \"min\": {}, \"max\": {}}}",
                    seconds(median_of(periods_)), seconds(*fastest), seconds(*slowest)),
        listed("forward", spans_text(StepPhase::forward), "      "),
        listed("backward", spans_text(StepPhase::backward), "      "),
        listed("finalize", spans_text(StepPhase::finalize), "      "),
        listed("optimizer", spans_text(StepPhase::optimizer), "      ")};
    std::string name = files.front();
    for (const char* ending : {".gz", ".json", ".trace", ".pt"})
      if (name.ends_with(ending)) name.resize(name.size() - std::string(ending).size());
    const std::vector<std::string> members = {
        "  \"format\": \"stepcast.trace/1\"",
        "  \"name\": " + quote_json(option("name", name)),
        "  \"source\": " + quote_json(source),
        "  \"gpu\": " + quote_json(gpu),
        "  \"precision\": " + quote_json(precision_),
        fmt::format("  \"versions\": {{{}}}", fmt::join(versions, ", ")),
        listed("parameters", parameters, "  "),
        listed("buffers", buffers, "  "),
        "  \"optimizer\": " + optimizer_text(),
        ddp_text(),
        fmt::format("  \"measured\": [\n    {{\n{}\n    }}\n  ]", fmt::join(measured, ",\n"))};
    return fmt::format("{{\n{}\n}}\n", fmt::join(members, ",\n"));
  }

  const ImportRequest& request_;
  const std::function<void(double)>& progress_;
  Imported imported_;
  std::vector<Rank> ranks_;
  std::vector<const StepSample*> steps_;  ///< of all ranks, with one sequence of spans
  std::vector<Nanoseconds> periods_;
  std::vector<Gradient> gradients_;        ///< in the order in which they become ready
  std::vector<std::size_t> registration_;  ///< places in gradients_; empty: not known
  std::string dtype_, precision_;
};

Imported import_kineto(const ImportRequest& request,
                       const std::function<void(double fraction)>& progress) {
  return Import(request, progress).run();
}

const bool registered = importers().add("kineto", import_kineto);

}  // namespace
}  // namespace stepcast
