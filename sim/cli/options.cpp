// The only file that includes Boost.Program_options.
#include "cli/options.hpp"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <thread>
#include <utility>

#include <boost/program_options.hpp>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/ranks.hpp"

namespace stepcast {
namespace {

namespace po = boost::program_options;

std::string option_name(const std::string& name) { return "--" + name; }

/// Parses strictly: no abbreviations, no option twice but those that collect, no stray words.
/// `places` names the words that are no options, each with how many there may be; -1 is any number.
po::variables_map parse(const po::options_description& options,
                        std::initializer_list<std::pair<const char*, int>> places,
                        const std::vector<std::string>& arguments) {
  po::positional_options_description positional;
  for (const auto& [name, count] : places) positional.add(name, count);
  po::variables_map values;
  try {
    po::store(
        po::command_line_parser(arguments)
            .options(options)
            .positional(positional)
            .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing)
            .run(),
        values);
    po::notify(values);
  } catch (const po::unknown_option& error) {
    std::vector<std::string> known;
    for (const auto& option : options.options())
      if (positional.max_total_count() == 0 ||
          positional.name_for_position(0) != option->long_name())
        known.push_back(option_name(option->long_name()));
    throw InputError(error.get_option_name(),
                     "unknown option" + suggest(error.get_option_name(), known));
  } catch (const po::too_many_positional_options_error&) {
    throw InputError("command line", "too many words that are not options");
  } catch (const po::error& error) {
    throw InputError("command line", error.what());
  }
  return values;
}

std::optional<std::string> text_of(const po::variables_map& values, const std::string& name) {
  if (values.count(name) == 0) return std::nullopt;
  return values[name].as<std::string>();
}

/// Of an option or place that may stand several times; empty where it does not.
std::vector<std::string> texts_of(const po::variables_map& values, const std::string& name) {
  if (values.count(name) == 0) return {};
  return values[name].as<std::vector<std::string>>();
}

/// Of `--set KEY=VALUE`.
std::pair<std::string, std::string> key_and_value(const std::string& setting) {
  const std::size_t equals = setting.find('=');
  if (equals == 0 || equals == std::string::npos)
    throw InputError("--set", fmt::format("must be KEY=VALUE, got {}", setting));
  return {setting.substr(0, equals), setting.substr(equals + 1)};
}

std::string required(const po::variables_map& values, const std::string& name) {
  const auto text = text_of(values, name);
  if (!text || text->empty()) throw InputError(option_name(name), "must be given");
  return *text;
}

int whole_number(const std::string& name, const std::string& text, int min, int max) {
  int number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || rest != text.data() + text.size() || number < min || number > max)
    throw InputError(option_name(name),
                     fmt::format("must be a whole number in [{}, {}], got {}", min, max, text));
  return number;
}

double share(const std::string& name, const std::string& text) {
  double number = 0.0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || rest != text.data() + text.size() || !(number > 0.0 && number <= 1.0))
    throw InputError(option_name(name), fmt::format("must be in (0, 1], got {}", text));
  return number;
}

std::int64_t byte_count(const std::string& name, const std::string& text, const char* also = "") {
  const auto bytes = parse_bytes(text);
  if (!bytes)
    throw InputError(
        option_name(name),
        fmt::format("must be a size such as 64KiB, 25MiB or 1000000{}, got {}", also, text));
  return *bytes;
}

EngineKind engine_of(const std::string& text) {
  if (text == "auto") return EngineKind::automatic;
  if (text == "simgrid") return EngineKind::simgrid;
  if (text == "analytic") return EngineKind::analytic;
  throw InputError("--engine", fmt::format("unknown \"{}\"{}", text,
                                           suggest(text, {"auto", "simgrid", "analytic"})));
}

Operation operation_of(const std::string& text) {
  std::vector<std::string> known;
  for (const Operation operation : all_operations) {
    if (text == to_string(operation)) return operation;
    known.emplace_back(to_string(operation));
  }
  throw InputError("--op", fmt::format("unknown \"{}\"{}", text, suggest(text, known)));
}

int jobs_of(const po::variables_map& values) {
  const auto text = text_of(values, "jobs");
  if (text) return whole_number("jobs", *text, 1, 4096);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

/// Of `--shard K/N`.
Shard shard_of(const std::string& text) {
  const std::vector<std::string> words = split(text, '/');
  constexpr int most = 1'000'000;
  try {
    if (words.size() == 2) {
      const int count = whole_number("shard", words[1], 1, most);
      return {static_cast<std::size_t>(whole_number("shard", words[0], 1, count)),
              static_cast<std::size_t>(count)};
    }
  } catch (const InputError&) {
  }
  throw InputError("--shard",
                   fmt::format("must be K/N with K from 1 to N, such as 1/4, got {}", text));
}

}  // namespace

RunOptions parse_run(const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("help,h", "")("output,o", po::value<std::string>(), "")(
      "json", po::value<std::string>(), "")("csv", po::value<std::string>(), "")(
      "trace", po::value<std::string>(), "")("trace-ranks", po::value<std::string>(), "")(
      "set", po::value<std::vector<std::string>>()->composing(), "")(
      "engine", po::value<std::string>()->default_value("auto"), "")(
      "jobs", po::value<std::string>(), "")("resume", "")("dry-run", "")("answer", "")(
      "no-fold", "")("threshold", po::value<std::string>(), "")(
      "shard", po::value<std::string>(), "")("scenario", po::value<std::vector<std::string>>(), "");
  const po::variables_map values = parse(options, {{"scenario", -1}}, arguments);

  RunOptions run;
  run.help = values.count("help") > 0;
  if (run.help) return run;
  run.scenarios = texts_of(values, "scenario");
  if (run.scenarios.empty())
    throw InputError("stepcast run", "name a scenario file, such as scenarios/quickstart.json");
  if (values.count("output") > 0 && values.count("json") > 0)
    throw InputError("--json", "is the same as -o; give one of them");
  run.json = text_of(values, values.count("output") > 0 ? "output" : "json");
  run.csv = text_of(values, "csv");
  run.trace = text_of(values, "trace");
  constexpr int shown_ranks = 4;
  run.trace_ranks = values.count("trace-ranks") > 0
                        ? whole_number("trace-ranks", *text_of(values, "trace-ranks"), 1, 100'000)
                        : shown_ranks;
  run.sets = texts_of(values, "set");
  run.engine = engine_of(values["engine"].as<std::string>());
  // mpirun starts as many of us as there are cores.
  run.jobs = values.count("jobs") == 0 && team().size > 1 ? 1 : jobs_of(values);
  run.resume = values.count("resume") > 0;
  run.fold = values.count("no-fold") == 0;
  run.dry_run = values.count("dry-run") > 0;
  run.answer = values.count("answer") > 0;
  if (const auto text = text_of(values, "threshold")) {
    if (!run.answer) throw InputError("--threshold", "is for --answer");
    run.threshold = share("threshold", *text);
  }
  if (run.resume && (!run.json || *run.json == "-"))
    throw InputError("--resume", "needs -o FILE, beside which an interrupted run left its points");
  if (const auto text = text_of(values, "shard")) {
    run.shard = shard_of(*text);
    if (!run.json) throw InputError("--shard", "needs -o FILE, the part that stepcast merge reads");
    for (const char* whole : {"csv", "trace", "answer"})
      if (values.count(whole) > 0)
        throw InputError("--shard",
                         fmt::format("a part of the points has no {}", option_name(whole)));
  }
  if (run.scenarios.size() > 1 && (run.json || run.csv || run.trace))
    throw InputError("command line", "an output file can be written for one scenario at a time");
  return run;
}

namespace {

/// The option that says the same as a key: chunk-bytes for chunk_bytes.
std::string dashed(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

}  // namespace

CollectiveOptions parse_collective(const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("help,h", "")("platform", po::value<std::string>(), "")(
      "calibration", po::value<std::string>(), "")(
      "op", po::value<std::string>()->default_value("all_reduce"), "")(
      "gpus", po::value<std::string>(), "")("bytes", po::value<std::string>(), "")(
      "algorithm", po::value<std::string>(), "")("protocol", po::value<std::string>(), "")(
      "channels", po::value<std::string>(), "")("chunk-bytes", po::value<std::string>(), "")(
      "set", po::value<std::vector<std::string>>()->composing(), "")("explain", "")(
      "gpus-per-node", po::value<std::string>(), "")("placement", po::value<std::string>(), "")(
      "engine", po::value<std::string>()->default_value("auto"), "")("no-fold", "")(
      "jobs", po::value<std::string>(), "")("json", po::value<std::string>(), "");
  const po::variables_map values = parse(options, {}, arguments);

  CollectiveOptions collective;
  collective.help = values.count("help") > 0;
  if (collective.help) return collective;
  collective.platform = required(values, "platform");
  collective.calibration = text_of(values, "calibration");
  collective.operation = operation_of(values["op"].as<std::string>());
  collective.explain = values.count("explain") > 0;
  collective.gpus = whole_number("gpus", required(values, "gpus"), 2, 1 << 20);
  for (const std::string& size : split(required(values, "bytes"), ','))
    collective.bytes.push_back(byte_count("bytes", size));
  // The same keys, words and errors as in a scenario.
  JsonDocument settings = JsonDocument::parse("{}", "command line");
  for (const char* key : {"algorithm", "protocol", "channels", "chunk_bytes"}) {
    const std::string name = dashed(key);
    if (const auto text = text_of(values, name)) settings.set({key}, *text, option_name(name));
  }
  for (const std::string& setting : texts_of(values, "set")) {
    const auto [key, value] = key_and_value(setting);
    if (settings.root().find(key) && !text_of(values, dashed(key)).value_or("").empty())
      throw InputError("--set " + key,
                       fmt::format("is the same as --{}; give one of them", dashed(key)));
    settings.set({key}, value, "--set " + key);
  }
  collective.settings = read_collective_settings(settings.root());
  JsonDocument cluster = JsonDocument::parse("{}", "command line");
  if (const auto text = text_of(values, "gpus-per-node")) {
    const bool is_list = text->find(',') != std::string::npos;
    cluster.set({"gpus_per_node"}, is_list ? "[" + *text + "]" : *text, "--gpus-per-node");
  }
  if (const auto text = text_of(values, "placement"))
    cluster.set({"placement"}, *text, "--placement");
  collective.placement = read_placement(cluster.root());
  collective.engine = engine_of(values["engine"].as<std::string>());
  collective.settings.fold = values.count("no-fold") == 0;
  collective.jobs = jobs_of(values);
  collective.json = text_of(values, "json");
  return collective;
}

namespace {

/// Sets one key of `FILE@key=value,...`.
void set_key(LogOptions& log, const std::string& word, const std::string& key,
             const std::string& value) {
  constexpr int most = 1 << 20;
  const auto one_of = [&](std::vector<std::string> known) {
    if (std::find(known.begin(), known.end(), value) != known.end()) return value;
    throw InputError(word, fmt::format("unknown {} \"{}\"{}", key, value, suggest(value, known)));
  };
  const auto number = [&] {
    try {
      return whole_number(key, value, 1, most);
    } catch (const InputError&) {
      throw InputError(
          word, fmt::format("{} must be a whole number in [1, {}], got {}", key, most, value));
    }
  };
  if (key == "op") {
    std::vector<std::string> known;
    for (const Operation operation : all_operations) known.emplace_back(to_string(operation));
    log.operation = operation_of(one_of(known));
  } else if (key == "ranks") {
    log.ranks = number();
  } else if (key == "nodes") {
    log.nodes = number();
  } else if (key == "algorithm") {
    log.algorithm = one_of({"ring", "double_binary_tree", "nvls", "nvls_tree"});
  } else if (key == "protocol") {
    log.protocol = one_of({"LL", "LL128", "Simple"});
  } else {
    throw InputError(word,
                     fmt::format("unknown key \"{}\"{}", key,
                                 suggest(key, {"op", "ranks", "nodes", "algorithm", "protocol"})));
  }
}

LogOptions log_of(const std::string& word) {
  LogOptions log;
  const std::size_t at = word.rfind('@');
  log.path = word.substr(0, at);
  if (at == std::string::npos) return log;
  for (const std::string& setting : split(word.substr(at + 1), ',')) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos)
      throw InputError(word, fmt::format("must be FILE@KEY=VALUE,..., got {}", setting));
    set_key(log, word, setting.substr(0, equals), setting.substr(equals + 1));
  }
  return log;
}

}  // namespace

FitOptions parse_fit(const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("help,h", "")("platform", po::value<std::string>(), "")(
      "name", po::value<std::string>(), "")("source", po::value<std::string>(), "")(
      "nccl", po::value<std::string>(), "")("report", "")("output,o", po::value<std::string>(), "")(
      "log", po::value<std::vector<std::string>>(), "");
  const po::variables_map values = parse(options, {{"log", -1}}, arguments);
  FitOptions fit;
  fit.help = values.count("help") > 0;
  if (fit.help) return fit;
  for (const std::string& word : texts_of(values, "log")) fit.logs.push_back(log_of(word));
  if (fit.logs.empty())
    throw InputError("stepcast fit", "name logs of nccl-tests, such as all_reduce.txt");
  fit.platform = text_of(values, "platform");
  fit.name = text_of(values, "name").value_or("");
  fit.source = text_of(values, "source").value_or("");
  fit.nccl_version = text_of(values, "nccl").value_or("");
  fit.output = text_of(values, "output");
  fit.report = values.count("report") > 0 || !fit.output;
  if (fit.output && !fit.platform)
    throw InputError("--platform", "must be given with -o: the machines that were measured");
  return fit;
}

MergeOptions parse_merge(const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("help,h", "")("output,o", po::value<std::string>(), "")(
      "csv", po::value<std::string>(), "")("part", po::value<std::vector<std::string>>(), "");
  const po::variables_map values = parse(options, {{"part", -1}}, arguments);
  MergeOptions merge;
  merge.help = values.count("help") > 0;
  if (merge.help) return merge;
  merge.parts = texts_of(values, "part");
  if (merge.parts.empty())
    throw InputError("stepcast merge",
                     "name the parts that run --shard wrote, such as 1.json 2.json");
  merge.json = text_of(values, "output");
  merge.csv = text_of(values, "csv");
  if (!merge.json && !merge.csv) throw InputError("stepcast merge", "needs -o FILE or --csv FILE");
  return merge;
}

CompareOptions parse_compare(const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("help,h", "")("points", po::value<std::string>(), "")(
      "result", po::value<std::vector<std::string>>(), "");
  const po::variables_map values = parse(options, {{"result", -1}}, arguments);
  CompareOptions compare;
  compare.help = values.count("help") > 0;
  if (compare.help) return compare;
  compare.files = texts_of(values, "result");
  if (compare.files.empty() || compare.files.size() > 2)
    throw InputError("stepcast compare", "name one or two results, such as a.json b.json");
  if (const auto text = text_of(values, "points")) {
    const std::vector<std::string> words = split(*text, ',');
    constexpr int most = 1'000'000;
    if (words.size() != 2)
      throw InputError("--points", fmt::format("must be two points such as 0,5, got {}", *text));
    compare.points = {static_cast<std::size_t>(whole_number("points", words[0], 0, most)),
                      static_cast<std::size_t>(whole_number("points", words[1], 0, most))};
  }
  return compare;
}

ValidateOptions parse_validate(const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("help,h", "")("jobs", po::value<std::string>(), "")(
      "json", po::value<std::string>(), "")("html", po::value<std::string>(), "")(
      "suite", po::value<std::vector<std::string>>(), "");
  const po::variables_map values = parse(options, {{"suite", -1}}, arguments);
  ValidateOptions validate;
  validate.help = values.count("help") > 0;
  if (validate.help) return validate;
  validate.suites = texts_of(values, "suite");
  validate.json = text_of(values, "json");
  validate.html = text_of(values, "html");
  if (validate.suites.size() > 1 && validate.suites.front() == "collectives") {
    validate.files.assign(validate.suites.begin() + 1, validate.suites.end());
    validate.suites.resize(1);
  }
  validate.jobs = jobs_of(values);
  return validate;
}

ImportOptions parse_import(const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("help,h", "")("output,o", po::value<std::string>(), "")(
      "calibration", po::value<std::string>(), "")("platform", po::value<std::string>(), "")(
      "set", po::value<std::vector<std::string>>()->composing(), "")(
      "format", po::value<std::string>(), "")("file", po::value<std::vector<std::string>>(), "");
  const po::variables_map values = parse(options, {{"format", 1}, {"file", -1}}, arguments);
  ImportOptions import;
  import.help = values.count("help") > 0;
  if (import.help) return import;
  import.format = text_of(values, "format").value_or("");
  if (import.format.empty())
    throw InputError("stepcast import", "name a format, one of `stepcast list importers`");
  import.files = texts_of(values, "file");
  if (import.files.empty())
    throw InputError("stepcast import", "name the files to import behind the format");
  import.output = text_of(values, "output").value_or("");
  import.calibration = text_of(values, "calibration");
  import.platform = text_of(values, "platform");
  if (import.output.empty())
    throw InputError("-o", "must be given: the file to write, or - for stdout");
  for (const std::string& setting : texts_of(values, "set")) {
    const auto [key, value] = key_and_value(setting);
    import.settings[key] = value;
  }
  return import;
}

TraceOptions parse_trace(const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("help,h", "")("action", po::value<std::string>(), "")(
      "file", po::value<std::string>(), "");
  const po::variables_map values = parse(options, {{"action", 1}, {"file", 1}}, arguments);
  TraceOptions trace;
  trace.help = values.count("help") > 0;
  if (trace.help) return trace;
  trace.action = text_of(values, "action").value_or("");
  if (trace.action != "show" && trace.action != "check")
    throw InputError("stepcast trace", fmt::format("unknown \"{}\"{}", trace.action,
                                                   suggest(trace.action, {"show", "check"})));
  trace.file = text_of(values, "file").value_or("");
  if (trace.file.empty())
    throw InputError("stepcast trace", "name a step trace, such as models/resnet50_v100_fp32.json");
  return trace;
}

DrawOptions parse_draw(const std::string& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("help,h", "")("output,o", po::value<std::string>(), "")(
      "file", po::value<std::vector<std::string>>(), "");
  const po::variables_map values = parse(options, {{"file", -1}}, arguments);
  DrawOptions draw;
  draw.help = values.count("help") > 0;
  if (draw.help) return draw;
  draw.files = texts_of(values, "file");
  if (draw.files.empty())
    throw InputError("stepcast " + command, "name a result, as stepcast run -o writes it");
  draw.output = required(values, "output");
  return draw;
}

ListOptions parse_list(const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("help,h", "")("what", po::value<std::string>(), "");
  const po::variables_map values = parse(options, {{"what", 1}}, arguments);
  ListOptions list;
  list.help = values.count("help") > 0;
  list.what = text_of(values, "what").value_or("");
  return list;
}

}  // namespace stepcast
