#include <array>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/version.hpp"
#include "engine/network.hpp"
#include "report/report.hpp"

namespace stepcast {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class T>
Json or_auto(const std::optional<T>& value) {
  return value ? Json(*value) : Json("auto");
}

Json band_json(const Band& band) {
  const auto margin = [](const Margin& one) {
    return Json{{"below_s", one.below.value()}, {"above_s", one.above.value()}};
  };
  return {{"trace", margin(band.trace)},
          {"calibration", margin(band.calibration)},
          {"computation", margin(band.computation)},
          {"communication", margin(band.communication)}};
}

Json split_json(const Split& split) {
  return {{"compute_s", split.compute.value()},
          {"exposed_comm_s", split.exposed_comm.value()},
          {"host_s", split.host.value()},
          {"wait_s", split.wait.value()},
          {"optimizer_s", split.optimizer.value()}};
}

Json known_error(double relative_error) {
  return relative_error > 0.0 ? Json(relative_error) : Json(nullptr);
}

Json bucket_json(const BucketResult& bucket) {
  return {{"operation", to_string(bucket.operation)},
          {"bytes", bucket.bytes},
          {"parameters", bucket.parameters},
          {"algorithm", bucket.algorithm},
          {"protocol", bucket.protocol},
          {"channels", bucket.channels},
          {"chunk_bytes", bucket.chunk.value()},
          {"ready_s", bucket.ready.value()},
          {"start_s", bucket.start.value()},
          {"end_s", bucket.end.value()},
          {"algbw_Bps", bucket.algbw.value()},
          {"busbw_Bps", bucket.busbw.value()},
          {"runs_per_step", bucket.runs_per_step},
          {"relative_error", known_error(bucket.relative_error)},
          {"basis", to_string(bucket.basis)}};
}

Json link_json(const LinkResult& link) {
  return {{"kind", link.kind},
          {"links", link.links},
          {"total_bytes", link.total.value()},
          {"busiest_link", link.busiest_link},
          {"busiest_bytes", link.busiest.value()},
          {"busiest_utilisation", link.busiest_utilisation}};
}

Json memory_json(const MemoryResult& memory, const std::optional<MicroSteps>& fitting) {
  Json json = {{"parameters_bytes", memory.parameters_bytes},
               {"master_bytes", memory.master_bytes},
               {"gradients_bytes", memory.gradients_bytes},
               {"optimizer_bytes", memory.optimizer_bytes},
               {"bucket_bytes", memory.bucket_bytes},
               {"hook_bytes", memory.hook_bytes},
               {"nccl_bytes", memory.nccl_bytes},
               {"framework_bytes", memory.framework_bytes},
               {"activation_bytes", or_null(memory.activation_bytes)},
               {"known_bytes", memory.known_bytes()},
               {"gpu_bytes", or_null(memory.gpu_bytes)},
               {"fits", or_null(memory.fits())}};
  json["fitting_micro_batch"] = fitting ? Json(fitting->micro_batch) : Json(nullptr);
  json["fitting_accumulation_steps"] = fitting ? Json(fitting->accumulation_steps) : Json(nullptr);
  return json;
}

Json learning_rate_json(const StepResult& result) {
  const LearningRateAdvice& advice = result.learning_rate;
  return {{"reference_global_batch", result.reference_global_batch},
          {"linear_factor", result.linear_lr_factor},
          {"sqrt_factor", result.sqrt_lr_factor},
          {"rule", advice.rule.empty() ? Json(nullptr) : Json(advice.rule)},
          {"warm_up_epochs", advice.warm_up_epochs},
          {"batch_norm_samples", or_null(advice.batch_norm_samples)}};
}

Json gpus_per_node_json(const Placement& placement) {
  return placement.gpus_of_nodes.empty() ? or_auto(placement.gpus_per_node)
                                         : Json(placement.gpus_of_nodes);
}

Json imperfections_json(const Imperfections& imperfections) {
  const auto slow = [](const std::vector<Imperfections::Slow>& all, const char* what) {
    Json list = Json::array();
    for (const Imperfections::Slow& one : all)
      list.push_back({{what, one.index}, {"time_factor", one.time_factor}});
    return list;
  };
  Json nics = Json::array();
  for (const Imperfections::SlowNic& nic : imperfections.slow_nics)
    nics.push_back({{"node", nic.node}, {"nic", nic.nic}, {"rate_factor", nic.rate_factor}});
  Json jitter = nullptr;
  if (const auto& its = imperfections.jitter)
    jitter = {{"relative_sd", its->from_trace ? Json("auto") : Json(its->relative_sd)},
              {"seed", its->seed}};
  Json straggler = nullptr;
  if (const auto& its = imperfections.straggler)
    straggler = {{"rank", its->slow.index},
                 {"time_factor", its->slow.time_factor},
                 {"every_steps", its->every_steps}};
  return {{"slow_ranks", slow(imperfections.slow_ranks, "rank")},
          {"slow_nodes", slow(imperfections.slow_nodes, "node")},
          {"slow_nics", nics},
          {"jitter", jitter},
          {"straggler", straggler}};
}

Json merge_cost_json(const std::optional<MergeCost>& cost) {
  if (!cost) return nullptr;
  return {{"overhead_s", cost->overhead.value()}, {"rate_Bps", cost->rate.value()}};
}

Json data_loader_json(const std::optional<DataLoader>& loader) {
  if (!loader) return nullptr;
  return {{"time_s_per_sample", loader->time_per_sample.value()}, {"workers", loader->workers}};
}

/// Every key with the value that is used, defaults filled in.
Json resolved_scenario(const Study& study) {
  const Scenario scenario = read_scenario(study.scenario.document.root());
  const TrainingSettings& training = scenario.training;
  const CollectiveSettings& collective = scenario.collective;
  Json chunk = or_auto(collective.chunk_bytes.value);
  if (collective.chunk_bytes.value == infinite_chunk) chunk = "max";
  Json json = {
      {"format", "stepcast.scenario/1"},
      {"question", scenario.question},
      {"model", scenario.model},
      {"platform", scenario.platform},
      {"calibration", or_null(scenario.calibration)},
      {"training",
       {{"micro_batch", or_auto(training.micro_batch)},
        {"accumulation_steps", training.accumulation_steps},
        {"sync", to_string(training.sync)},
        {"accumulation", to_string(training.accumulation)},
        {"bucket_cap_bytes", training.bucket_cap_bytes},
        {"first_bucket_bytes", training.first_bucket_bytes},
        {"broadcast_buffers", training.broadcast_buffers},
        {"gradient_as_bucket_view", training.gradient_as_bucket_view},
        {"find_unused_parameters", training.find_unused_parameters},
        {"host_per_kernel_s",
         training.host_per_kernel ? Json(training.host_per_kernel->value()) : Json("auto")},
        {"communication_hook", to_string(training.communication_hook)},
        {"iteration", to_string(training.iteration)},
        {"synchronized_batch_norm", training.synchronized_batch_norm},
        {"fusion_bytes", training.fusion_bytes},
        {"cycle_time_s", training.cycle_time.value()},
        {"merge_cost", merge_cost_json(training.merge_cost)},
        {"data_loader", data_loader_json(training.data_loader)},
        {"reference_global_batch", or_auto(training.reference_global_batch)}}},
      {"collective",
       {{"algorithm", or_auto(collective.algorithm.value)},
        {"protocol", or_auto(collective.protocol.value)},
        {"channels", or_auto(collective.channels.value)},
        {"chunk_bytes", chunk},
        {"chunking", collective.chunking.value ? to_string(*collective.chunking.value) : "auto"},
        {"nccl_version", or_auto(collective.nccl_version.value)},
        {"min_channels", collective.min_channels},
        {"max_channels", collective.max_channels},
        {"nvls", collective.nvls},
        {"intra_node_algorithm", or_auto(collective.intra_node_algorithm.value)},
        {"inter_node_algorithm", or_auto(collective.inter_node_algorithm.value)}}},
      {"cluster",
       {{"gpus", scenario.gpus},
        {"gpus_per_node", gpus_per_node_json(scenario.placement)},
        {"placement", scenario.placement.scattered ? "scattered" : "packed"}}}};
  json["interference"] = {
      {"computation_factor", or_auto(scenario.interference.computation_factor)},
      {"communication_factor", or_auto(scenario.interference.communication_factor)}};
  json["imperfections"] = imperfections_json(scenario.imperfections);
  // A list narrows the tuner's choice and has no other name.
  const auto keep_list = [&](const char* name, const char* key, const auto& written) {
    if (!written) return;
    json["collective"].erase(key);
    json["collective"][name] = *written;
  };
  keep_list("NCCL_ALGO", "algorithm", collective.nccl_algo);
  keep_list("NCCL_PROTO", "protocol", collective.nccl_proto);
  if (!study.vary.empty()) {
    json["vary"] = Json::object();
    for (const auto& [key, values] : study.vary) {
      json["vary"][key] = Json::array();
      for (const std::string& value : values) json["vary"][key].push_back(Json::parse(value));
    }
  }
  if (!study.cases.empty()) {
    json["cases"] = Json::array();
    for (const Case& one : study.cases) {
      Json set = Json::object();
      for (const auto& [key, value] : one.set) set[key] = Json::parse(value);
      json["cases"].push_back({{"name", one.name}, {"set", set}});
    }
  }
  if (!study.constraints.empty()) json["constraints"] = study.constraints;
  return json;
}

std::string finish(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

Json versions_json() {
  return {{"stepcast", version},
          {"revision", revision},
          {"build_type", build_type},
          {"simgrid", simgrid_version()}};
}

Json parse_all(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) list.push_back(Json::parse(text));
  return list;
}

}  // namespace

std::string point_json(const Point& point, const StepResult& result, std::string_view engine) {
  Json settings = Json::object();
  for (const auto& [key, value] : point.settings) settings[key] = Json::parse(value);
  Json communication_basis = nullptr;
  if (result.communication_basis) communication_basis = to_string(*result.communication_basis);
  Json not_folded = nullptr;
  if (!result.folding.not_folded.empty())
    not_folded = fmt::format("{}", fmt::join(result.folding.not_folded, "; "));
  Json json = {
      {"settings", settings},
      {"engine", engine},
      {"world_size", result.world_size},
      {"nodes", result.nodes},
      {"micro_batch", result.micro_batch},
      {"accumulation_steps", point.scenario.training.accumulation_steps},
      {"global_batch", result.global_batch},
      {"step_time_s", result.step_time.value()},
      {"step_time_band_s",
       {result.band.low(result.step_time).value(), result.band.high(result.step_time).value()}},
      {"band_of", band_json(result.band)},
      {"split", split_json(result.split)},
      {"comm_s", result.comm.value()},
      {"overlapped_comm_s", result.overlapped.value()},
      {"comm_fraction", result.comm_fraction},
      {"throughput_samples_per_s", result.throughput_samples_per_s},
      {"scaling_efficiency", result.scaling_efficiency},
      {"cost_per_step_usd", or_null(result.cost_per_step_usd)},
      {"cost_per_million_samples_usd", or_null(result.cost_per_million_samples_usd)},
      {"sent_bytes_per_rank", result.sent_per_rank.value()},
      {"all_reduce_bytes_per_sample", result.all_reduce_bytes_per_sample},
      {"memory", memory_json(result.memory, result.fitting)},
      {"learning_rate", learning_rate_json(result)},
      {"basis",
       {{"compute", to_string(result.compute_basis)},
        {"communication", communication_basis},
        {"interference", to_string(result.interference.basis)}}},
      {"host_bound", result.host_bound},
      {"folding", {{"rank_classes", result.folding.rank_classes}, {"not_folded", not_folded}}},
      {"interference",
       {{"computation_factor", result.interference.computation},
        {"communication_factor", result.interference.communication}}}};
  // An empty braced list would become null, and a list of one object that object.
  json["links"] = Json::array();
  for (const LinkResult& link : result.links) json["links"].push_back(link_json(link));
  json["buckets"] = Json::array();
  for (const BucketResult& bucket : result.buckets) json["buckets"].push_back(bucket_json(bucket));
  return json.dump();
}

std::string failed_point_json(const Point& point, const std::string& error) {
  Json settings = Json::object();
  for (const auto& [key, value] : point.settings) settings[key] = Json::parse(value);
  const Json json = {{"settings", settings}, {"error", error}};
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string result_json(const Study& study, const std::vector<std::string>& points) {
  std::string text = result_json_begin(study);
  for (const std::string& point : points)
    text += result_json_point(point, &point == &points.front());
  return text + result_json_end();
}

std::string result_json_begin(const Study& study) {
  Json inputs = Json::object();
  for (const char* key : {"model", "platform", "calibration"}) {
    const auto file = study.files.find(key);
    if (file == study.files.end()) {
      inputs[key] = nullptr;
      continue;
    }
    const JsonView root = file->second.document.root();
    inputs[key] = {{"path", file->second.path},
                   {"name", root.at("name").string()},
                   {"source", root.at("source").string()},
                   {"document", Json::parse(root.dump())}};
  }
  const std::string text = finish({{"format", "stepcast.result/1"},
                                   {"scenario", resolved_scenario(study)},
                                   {"versions", versions_json()},
                                   {"inputs", inputs},
                                   {"points", Json::array()}});
  return text.substr(0, text.rfind(']'));
}

std::string result_json_point(const std::string& point, bool is_first) {
  const std::string text =
      Json::parse(point).dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  std::string indented = is_first ? "\n    " : ",\n    ";
  for (const char c : text) {  // a line break inside of a text is written as \n
    indented += c;
    if (c == '\n') indented += "    ";
  }
  return indented;
}

std::string result_json_end() { return "\n  ]\n}\n"; }

std::string collective_row_json(const CollectiveRow& row) {
  Json json({{"bytes", row.bytes},
             {"ranks", row.ranks},
             {"algorithm", row.algorithm},
             {"protocol", row.protocol},
             {"channels", row.channels},
             {"chunk_bytes", row.chunk_bytes},
             {"time_s", row.time_s},
             {"algbw_Bps", row.algbw_Bps},
             {"busbw_Bps", row.busbw_Bps},
             {"sent_bytes_per_rank", row.sent_bytes_per_rank},
             {"relative_error", known_error(row.relative_error)},
             {"basis", row.basis}});
  if (!row.chooser.empty()) {
    json["chosen_by"] = row.chooser;
    for (const ConsideredChoice& one : row.considered)
      json["considered"].push_back(
          {{"algorithm", one.algorithm},
           {"protocol", one.protocol},
           {"estimate_s", one.estimate ? Json(one.estimate->value()) : Json(nullptr)},
           {"why_not", one.why_not.empty() ? Json(nullptr) : Json(one.why_not)}});
  }
  return json.dump();
}

namespace {

/// Measured figures are kept to what they are worth, so that the file can be read and compared.
double rounded(double value) { return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr); }

/// The key without its empty parts.
Json key_json(const std::string& operation, int nodes, int ranks, const std::string& algorithm,
              const std::string& protocol) {
  Json json = {{"operation", operation}, {"nodes", nodes}, {"ranks", ranks}};
  if (!algorithm.empty()) json["algorithm"] = algorithm;
  if (!protocol.empty()) json["protocol"] = protocol;
  return json;
}

Json curve_json(const CurveKey& key, const CurveFit& fit) {
  Json json = key_json(to_string(key.operation), key.nodes, key.ranks, key.algorithm, key.protocol);
  json["regimes"] = Json::array();
  for (const Regime& regime : fit.regimes) {
    Json rate = nullptr;
    if (const auto& slope = regime.s_per_byte; slope.value > 0.0)
      rate = {{"value", rounded(1.0 / slope.value)},
              {"stderr", rounded(slope.standard_error / (slope.value * slope.value))}};
    json["regimes"].push_back(
        {{"bytes", {std::llround(regime.from.value()), std::llround(regime.to.value())}},
         {"overhead_s",
          {{"value", rounded(regime.overhead_s.value)},
           {"stderr", rounded(regime.overhead_s.standard_error)}}},
         {"rate_Bps", rate}});
  }
  int points = 0;
  for (const Regime& regime : fit.regimes) points += regime.points;
  json["residuals"] = {{"samples", points},
                       {"median_abs", rounded(fit.median_abs)},
                       {"max_abs", rounded(fit.max_abs)},
                       {"held_out_median_abs", rounded(fit.held_out_median_abs)}};
  json["outliers_bytes"] = Json::array();
  for (const Bytes bytes : fit.outliers)
    json["outliers_bytes"].push_back(std::llround(bytes.value()));
  return json;
}

}  // namespace

namespace {

Json found_json(double value, const FoundFigure& found, double standard_error) {
  Json json = {{"value", rounded(value)}};
  if (found.held)
    json["source"] = "not determined; as NCCL's constants or the platform have it";
  else
    json["stderr"] = rounded(standard_error);
  return json;
}

Json overheads_json(const OverheadFit& fit) {
  const ProtocolFigures& of = fit.figures;
  const Json as_before = {{"source", "not fitted"}};
  const auto kept = [&](Seconds value) {
    Json json = {{"value", rounded(value.value())}};
    json.update(as_before);
    return json;
  };
  const auto hop = [](Seconds value, const FoundFigure& found) {
    return found_json(value.value(), found, found.fitted.standard_error);
  };
  const bool on_the_way = of.name == "LL";
  Json json = {{"name", of.name}};
  json["efficiency"] =
      of.name == "Simple"
          ? Json{{"value", 1.0}, {"source", "by definition: the rate of a link is that of Simple"}}
          : found_json(of.efficiency, fit.work_per_byte,
                       fit.work_per_byte.fitted.standard_error * of.efficiency * of.efficiency);
  json["launch_s"] = found_json(of.launch.value(), fit.launch, fit.launch.fitted.standard_error);
  json["alpha_intra_node_s"] =
      on_the_way ? kept(of.alpha_intra_node) : hop(of.alpha_intra_node, fit.hop_inside_node);
  json["alpha_inter_node_s"] =
      on_the_way ? kept(of.alpha_inter_node) : hop(of.alpha_inter_node, fit.hop_between_nodes);
  json["latency_intra_node_s"] =
      on_the_way ? hop(of.latency_intra_node, fit.hop_inside_node) : kept(of.latency_intra_node);
  json["latency_inter_node_s"] =
      on_the_way ? hop(of.latency_inter_node, fit.hop_between_nodes) : kept(of.latency_inter_node);
  json["residuals"] = {{"samples", fit.samples},
                       {"median_abs", rounded(fit.median_abs)},
                       {"max_abs", rounded(fit.max_abs)}};
  return json;
}

}  // namespace

std::string calibration_json(const CalibrationText& calibration) {
  Json json = {{"format", "stepcast.calibration/1"},
               {"name", calibration.name},
               {"source", calibration.source},
               {"platform", calibration.platform},
               {"command", calibration.command}};
  if (!calibration.nccl_version.empty()) json["versions"] = {{"nccl", calibration.nccl_version}};
  json["machine"] = Json::parse(calibration.machine);
  json["links"] = Json::object();
  const auto add_link = [&](const char* key, const std::optional<CalibrationText::Rate>& rate) {
    if (rate)
      json["links"][key] = {{"value", rounded(rate->value_Bps)},
                            {"stderr", rounded(rate->stderr_Bps)},
                            {"nominal", rate->nominal_Bps}};
  };
  add_link("intra_node_Bps", calibration.intra_node);
  add_link("inter_node_Bps", calibration.inter_node);
  for (const OverheadFit& fit : calibration.overheads)
    if (fit.is_determined()) json["protocols"].push_back(overheads_json(fit));
  json["curves"] = Json::array();
  for (const auto& [key, fit] : calibration.curves)
    if (!fit.regimes.empty()) json["curves"].push_back(curve_json(key, fit));
  json["samples"] = Json::array();
  for (const auto& [sample, source, text] : calibration.samples) {
    if (!text.empty()) {
      json["samples"].push_back(Json::parse(text));
      continue;
    }
    Json one =
        key_json(sample.operation, sample.nodes, sample.ranks, sample.algorithm, sample.protocol);
    one["bytes"] = sample.bytes;
    one["time_s"] = rounded(sample.time.value());
    one["source"] = source;
    json["samples"].push_back(one);
  }
  for (const std::string& text : calibration.calibrations) {
    const Json other = Json::parse(text);
    for (const char* key : {"compute", "interference", "skipped", "warnings"})
      if (other.contains(key))
        for (const Json& one : other.at(key)) json[key].push_back(one);
    if (other.contains("versions"))
      for (const auto& [library, release] : other.at("versions").items())
        json["versions"][library] = release;
  }
  return finish(json);
}

std::string collective_json(std::string_view platform, std::string_view operation,
                            std::string_view engine, const std::vector<std::string>& rows) {
  return finish({{"format", "stepcast.collective/1"},
                 {"platform", platform},
                 {"operation", operation},
                 {"engine", engine},
                 {"versions", versions_json()},
                 {"rows", parse_all(rows)}});
}

namespace {

Json error_summary_json(const ErrorSummary& summary) {
  if (summary.cases == 0) return nullptr;
  return {{"cases", summary.cases},
          {"median_abs_error", summary.median_abs},
          {"mean_abs_error", summary.mean_abs},
          {"p90_abs_error", summary.p90_abs},
          {"max_abs_error", summary.max_abs},
          {"bias", summary.bias},
          {"inside_band", summary.inside}};
}

Json case_json(const CaseResult& one) {
  const PredictedStep& predicted = one.predicted;
  Json json = {{"id", one.id},
               {"split", one.is_fitted ? "fit" : "test"},
               {"predicted", predicted.time.value()},
               {"low", predicted.low().value()},
               {"high", predicted.high().value()},
               {"measured", one.measured.value()},
               {"error", one.error()},
               {"noise", or_null(one.noise)},
               {"inside", one.is_inside()},
               {"basis", predicted.basis}};
  json["band_of"] = band_json(predicted.band);
  json["parts"] = split_json(predicted.split);
  json["parts"]["overlapped_comm_s"] = predicted.overlapped.value();
  return json;
}

Json file_result_json(const FileResult& result) {
  Json json = {{"name", result.suite},
               {"title", result.name},
               {"source", result.source},
               {"machine", result.machine},
               {"derived", result.derived}};
  json["skipped"] = result.skipped.empty() ? Json(nullptr) : Json(result.skipped);
  json["cases"] = Json::array();
  for (const CaseResult& one : result.cases) json["cases"].push_back(case_json(one));
  json["summary"] = {{"test", error_summary_json(result.summary(false))},
                     {"fit", error_summary_json(result.summary(true))},
                     {"orders", result.orders},
                     {"orders_right", result.orders_right}};
  json["peers"] = nullptr;
  if (result.peers)
    json["peers"] = {{"text", result.peers->text}, {"mean_error", result.peers->mean_error}};
  json["bars"] = {{"mean_abs_error", or_null(result.bars.mean_abs_error)},
                  {"median_abs_error", or_null(result.bars.median_abs_error)},
                  {"order_right", or_null(result.bars.order_right)}};
  json["missed"] = Json::array();
  for (const std::string& missed : result.missed()) json["missed"].push_back(missed);
  json["fitted"] = Json::object();
  for (const FittedFigure& figure : result.fitted)
    json["fitted"][figure.key] = {
        {"value", figure.value}, {"stderr", figure.standard_error}, {"held", figure.held}};
  return json;
}

}  // namespace

std::string validate_json(const std::vector<FileResult>& results) {
  Json json = {{"format", "stepcast.validate/1"}, {"versions", versions_json()}};
  json["suites"] = Json::array();
  for (const FileResult& result : results) json["suites"].push_back(file_result_json(result));
  json["pooled"] = Json::array();
  for (const PooledErrors& one : pool(results))
    json["pooled"].push_back({{"name", one.suite.empty() ? Json(nullptr) : Json(one.suite)},
                              {"files", one.files},
                              {"test", error_summary_json(one.test)}});
  return finish(json);
}

}  // namespace stepcast
