#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "documents.hpp"
#include "input/importer.hpp"
#include "input/step_trace.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

/// Tables in a folder, imported together.
class LayersImport : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    folder.write(name, text);
    request.files.emplace_back(folder.path(name));
  }
  [[nodiscard]] Imported import() const {
    return (*importers().find("layers"))(request, [](double) {});
  }
  [[nodiscard]] StepTrace trace() const {
    return read_step_trace(JsonDocument::parse(import().trace_json, "imported").root());
  }
  /// The error about `layers.csv`, without the folder.
  [[nodiscard]] std::string error_of(const std::string& table) {
    folder.write("layers.csv", table);
    request.files = {folder.path("layers.csv")};
    const std::string error = input_error([&] { static_cast<void>(import()); });
    const std::string path = folder.path("");
    return error.starts_with(path) ? error.substr(path.size()) : error;
  }

  Folder folder;
  ImportRequest request;
};

const std::string timed =
    "# two layers\n"
    "name,parameters,forward_ms,backward_ms,activation_bytes,micro_batch\n"
    "conv,100,2,4,1000,8\n"
    "\"relu, in place\",,1,0.5,500,8\n"
    "fc,50,3,6,10,8\r\n";

TEST_F(LayersImport, ReadsATableOfTimes) {
  write("layers.csv", timed);
  request.options = {{"name", "tiny"}, {"gpu", "T4"}, {"optimizer_s", "0.25"}};
  const StepTrace read = trace();
  EXPECT_EQ(read.name, "tiny");
  EXPECT_EQ(read.gpu, "T4");
  EXPECT_FALSE(read.modelled);
  ASSERT_EQ(read.parameters.size(), 2u);  // the ReLU has none
  EXPECT_EQ(read.parameters[1].name, "fc");
  EXPECT_EQ(read.elements(), 150);
  const MeasuredStep& step = read.measured.at(0);
  EXPECT_EQ(step.micro_batch, 8);
  EXPECT_EQ(step.activation_bytes, 1510);
  ASSERT_EQ(step.forward.size(), 3u);
  EXPECT_EQ(step.forward[1].name, "relu, in place");
  EXPECT_EQ(step.forward[0].duration.value(), 2e-3);
  ASSERT_EQ(step.backward.size(), 3u);
  EXPECT_EQ(step.backward[0].name, "fc");  // backward runs the layers in reverse
  EXPECT_EQ(step.backward[0].gradients, std::vector<int>{1});
  EXPECT_TRUE(step.backward[1].gradients.empty());
  EXPECT_EQ(step.backward[2].gradients, std::vector<int>{0});
  EXPECT_EQ(step.optimizer.at(0).duration.value(), 0.25);
  EXPECT_DOUBLE_EQ(step.median.value(), 2e-3 + 1e-3 + 3e-3 + 4e-3 + 0.5e-3 + 6e-3 + 0.25);
}

TEST_F(LayersImport, ReadsJsonLikeCsv) {
  write("layers.csv", timed);
  const Imported csv = import();
  request.files.clear();
  write("layers.json", R"({"layers": [
    {"name": "conv", "parameter_bytes": 400, "forward_s": 0.002, "backward_s": 0.004,
     "activation_bytes": 1000, "micro_batch": 8},
    {"name": "relu, in place", "forward_ms": 1, "backward_ms": 0.5, "activation_bytes": 500,
     "micro_batch": 8},
    {"name": "fc", "parameters": 50, "forward_ms": 3, "backward_ms": 6, "activation_bytes": 10,
     "micro_batch": 8}]})");
  const std::string json = import().trace_json;
  const std::string name_of_file = "layers.csv";
  std::string expected = csv.trace_json;
  expected.replace(expected.find(name_of_file), name_of_file.size(), "layers.json");
  EXPECT_EQ(json, expected);
}

TEST_F(LayersImport, TakesOneFileForEachMicroBatch) {
  const std::string header = "name,parameters,forward_s,backward_s,micro_batch\n";
  write("b16.csv", header + "a,10,2,4,16\n");
  write("b8.csv", header + "a,10,1,2,8\n");
  const StepTrace read = trace();
  ASSERT_EQ(read.measured.size(), 2u);
  EXPECT_EQ(read.measured[0].micro_batch, 8);
  EXPECT_EQ(read.measured[1].forward.at(0).duration.value(), 2.0);
}

TEST_F(LayersImport, ModelsTimesByARoofline) {
  // At 2 FLOP/s and 10 B/s: compute bound 4 FLOP per sample, memory bound 100 B per sample.
  write("layers.csv",
        "name,parameters,macs_per_sample,flops_per_sample,bytes_per_sample,kernels\n"
        "compute,5,2,,1,\n"
        "memory,10,,1,100,3\n");
  request.options = {{"flops_per_s", "4"},    {"memory_bandwidth_Bps", "20"},
                     {"efficiency", "0.5"},   {"kernel_floor_s", "0.25"},
                     {"micro_batch", "1,10"}, {"gpu", "made up"}};
  const StepTrace read = trace();
  EXPECT_TRUE(read.modelled);
  ASSERT_EQ(read.measured.size(), 2u);
  const std::vector<Span>& one = read.measured[0].forward;
  const std::vector<Span>& ten = read.measured[1].forward;
  // 0.25 + max(4 FLOP / 2, (1 + 5 * 4 B) / 10) and 0.25 + max(40 / 2, (10 + 20) / 10)
  EXPECT_DOUBLE_EQ(one.at(0).duration.value(), 0.25 + 2.1);
  EXPECT_DOUBLE_EQ(ten.at(0).duration.value(), 0.25 + 20.0);
  // three launches, (100 + 10 * 4 B) / 10
  EXPECT_DOUBLE_EQ(one.at(1).duration.value(), 0.75 + 14.0);
  EXPECT_DOUBLE_EQ(ten.at(1).duration.value(), 0.75 + 104.0);
  EXPECT_DOUBLE_EQ(read.measured[1].backward.at(0).duration.value(), 2 * (0.75 + 104.0));
  // Parameters and state of 4 B each read and written, gradients read: 15 * (3 * 4 + 2 * 4) / 10.
  EXPECT_DOUBLE_EQ(ten.empty() ? 0.0 : read.measured[1].optimizer.at(0).duration.value(),
                   0.25 + 30.0);
  EXPECT_NE(read.source.find("MODELLED by a roofline"), std::string::npos);
}

TEST_F(LayersImport, TakesTheRooflineOfACalibration) {
  folder.write("gpu.json", with(tiny_calibration(), "/compute", R"([
    {"kernel": "gemm", "dtype": "float32", "m": 10, "n": 10, "k": 10, "time_s": 2},
    {"kernel": "gemm", "dtype": "float32", "m": 10, "n": 10, "k": 10, "time_s": 1},
    {"kernel": "gemm", "dtype": "float16", "m": 10, "n": 10, "k": 10, "time_s": 0.1},
    {"kernel": "copy", "dtype": "float32", "bytes": 500, "time_s": 1}])"));
  write("layers.csv", "name,parameters,macs_per_sample,bytes_per_sample\na,1,1000,0\nb,1,0,996\n");
  request.options = {{"calibration", folder.path("gpu.json")}, {"micro_batch", "3"}};
  const MeasuredStep step = trace().measured.at(0);
  // 2 * 10^3 FLOP in 1 s, 2 * 500 B in 1 s
  EXPECT_DOUBLE_EQ(step.forward.at(0).duration.value(), 3.0);
  EXPECT_DOUBLE_EQ(step.forward.at(1).duration.value(), (3 * 996.0 + 4.0) / 1000.0);
}

TEST_F(LayersImport, WarnsOfWhatATableLacks) {
  write("layers.csv", "name,parameters,flops_per_sample\na,1,1000\n");
  request.options = {{"flops_per_s", "1"}, {"memory_bandwidth_Bps", "1"}, {"micro_batch", "3"}};
  EXPECT_EQ(import().warnings,
            (std::vector<std::string>{
                "gpu is not given: \"unknown\" fits no platform",
                "no layer has bytes_per_sample: those that the memory limits come out too fast"}));
  request.files.clear();
  request.options = {{"gpu", "T4"}};
  write("timed.csv", timed);
  EXPECT_EQ(import().warnings,
            std::vector<std::string>{
                "the table has no optimizer: its time is 0 unless optimizer_s says it"});
}

TEST_F(LayersImport, RefusesBadRowsByTheirLine) {
  const std::string head = "name,parameters,forward_ms,backward_ms,micro_batch\n";
  EXPECT_EQ(error_of(head + "a,1,2,3,8\nb,1,fast,3,8\n"),
            "layers.csv:3: forward_ms must be a number in [0, 3600000], got \"fast\"");
  EXPECT_EQ(error_of(head + "a,1,-2,3,8\n"),
            "layers.csv:2: forward_ms must be a number in [0, 3600000], got \"-2\"");
  EXPECT_EQ(error_of(head + "a,1,2\n"),
            "layers.csv:2: has 3 cells, the line of column names has 5");
  EXPECT_EQ(error_of(head + "a,1.5,2,3,8\n"),
            "layers.csv:2: must hold a whole number of parameters of float32, got 1.5");
  EXPECT_EQ(error_of(head + "a,1,2,3,8\na,1,2,3,8\n"), "layers.csv:3: \"a\" stands twice");
  EXPECT_EQ(error_of(head + "a,1,2,,8\n"),
            "layers.csv:2: needs both a forward and a backward time");
  EXPECT_EQ(error_of(head + "a,1,2,3,\n"),
            "layers.csv:2: does not say its micro_batch: give the column or the option");
  EXPECT_EQ(error_of(head + "a,1,,,8\n"),
            "layers.csv:2: has no times; for a roofline give flops_per_s and memory_bandwidth_Bps, "
            "or calibration");
  EXPECT_EQ(error_of(head + "a,0,2,3,8\n"), "layers.csv:2: no layer has parameters");
  EXPECT_EQ(
      error_of(head + "a,1,2,3,8\nb,1,2,3,8\na,1,2,3,16\n"),
      "layers.csv:2: micro-batches 8 and 16 must have the same layers in the same order, with "
      "the same parameters");
  EXPECT_EQ(error_of(head + "\"a,1,2,3,8\n"),
            "layers.csv:2: a quoted cell does not end on its line");
  EXPECT_EQ(error_of("parameters\n1\n"), "layers.csv:1: needs a column \"name\"");
  EXPECT_EQ(error_of("name,name\n1,2\n"), "layers.csv:1: the column name stands twice");
  EXPECT_TRUE(error_of("name,forward\n")
                  .starts_with("layers.csv:1: unknown column \"forward\"; did you mean "
                               "\"forward_s\", \"forward_ms\""))
      << error_of("name,forward\n");
  EXPECT_EQ(error_of("name,parameters\n"), "layers.csv: holds no layer");
}

TEST_F(LayersImport, RefusesOptionsThatItDoesNotKnow) {
  request.options = {{"effciency", "1"}};
  EXPECT_TRUE(error_of(timed).starts_with(
      "--set effciency: unknown option of `layers`; did you mean \"efficiency\"?"));
  request.options = {{"efficiency", "2"}, {"flops_per_s", "1"}, {"memory_bandwidth_Bps", "1"}};
  EXPECT_EQ(error_of(timed), "--set efficiency: must be a number in [0.001, 1], got \"2\"");
  request.options = {{"flops_per_s", "1e12"}};
  EXPECT_EQ(error_of(timed), "--set flops_per_s: needs memory_bandwidth_Bps beside it");
  request.options = {{"micro_batch", "8,0"}};
  EXPECT_EQ(error_of(timed),
            "--set micro_batch: must be whole numbers in [1, 16777216] with commas between them, "
            "got \"8,0\"");
  request.options = {{"micro_batch", "8,16"}};
  EXPECT_EQ(error_of(timed),
            "--set micro_batch: the times of a table are those of one micro-batch");
  request.options = {{"dtype", "int8"}};
  EXPECT_EQ(error_of(timed),
            "--set dtype: must be bfloat16, float16, float32 or float64, got \"int8\"");
}

// PipeDream
// ----------------------------------------------------------------------------------------

std::string node(int number, const std::string& module, const std::string& figures) {
  return "node" + std::to_string(number) + " -- " + module + " -- " + figures + "\n";
}

/// In the order of a hash map, as PipeDream writes them.
const std::string profile =
    node(4, "Linear(in_features=5, out_features=10, bias=True)",
         "forward_compute_time=3.000, backward_compute_time=6.000, activation_size=320.000, "
         "parameter_size=240.000") +
    node(1, "Input",
         "forward_compute_time=99.000, backward_compute_time=0.000, activation_size=1.000, "
         "parameter_size=0.000") +
    node(3, "BatchNorm2d(7, eps=1e-05)",
         "forward_compute_time=1.000, backward_compute_time=2.000, activation_size=100.000, "
         "parameter_size=56.000") +
    node(2, "Size(0)",
         "forward_compute_time=0.000, backward_compute_time=0.000, activation_size=4.000, "
         "parameter_size=0.000") +
    "\tnode3 -- node4\n\tnode1 -- node2\n\tnode2 -- node3\n";

TEST_F(LayersImport, ReadsAProfileOfPipedream) {
  write("graph.txt", profile);
  const StepTrace read = trace();
  ASSERT_EQ(read.measured.at(0).forward.size(), 2u);  // without the input and what does nothing
  EXPECT_EQ(read.measured[0].micro_batch, 8);         // 320 B / (4 B * 10)
  EXPECT_EQ(read.measured[0].forward[0].name, "node3.BatchNorm2d");
  EXPECT_EQ(read.measured[0].forward[1].duration.value(), 3e-3);
  EXPECT_EQ(read.elements(), 14 + 60);
  ASSERT_EQ(read.buffers.size(), 2u);
  EXPECT_EQ(read.buffers[0].elements, 14);  // running mean and variance of 7 channels
  EXPECT_EQ(read.buffers[1].elements, 1);
}

TEST_F(LayersImport, RefusesBadProfilesByTheirLine) {
  const std::string good = node(1, "Add",
                                "forward_compute_time=1, backward_compute_time=1, "
                                "activation_size=1, parameter_size=4");
  EXPECT_EQ(error_of(good + "\tnode1 -- node2\n"), "layers.csv:2: there is no node2");
  EXPECT_EQ(error_of(good + good), "layers.csv:2: node1 stands twice");
  EXPECT_EQ(error_of(good + node(2, "Add", "forward_compute_time=1")),
            "layers.csv:2: lacks activation_size");
  EXPECT_EQ(error_of(good + "\tnode1 -- node1\n"), "layers.csv: its edges run in a circle");
  EXPECT_EQ(error_of(good + "node2 and more\n"),
            "layers.csv:2: must be \"nodeN -- module -- figures\" or a tab and \"nodeN -- nodeM\"");
  EXPECT_EQ(error_of(good),
            "layers.csv:1: does not say its micro_batch: give the column or the "
            "option");
}

/// torchvision's parameter counts (docs: "num_params" of each model's weights).
TEST_F(LayersImport, KeepsTheParametersOfPublishedProfiles) {
  const std::string published = repository_file("../shared/data/tables/pipedream/");
  if (!std::filesystem::exists(published)) GTEST_SKIP() << "no published profiles at " << published;
  const std::map<std::string, std::int64_t> counts = {{"resnet18", 11689512},
                                                      {"resnet50", 25557032},
                                                      {"resnet101", 44549160},
                                                      {"vgg16", 138357544},
                                                      {"densenet121", 7978856}};
  for (const auto& [model, count] : counts) {
    request.files = {published + model + ".graph.txt"};
    EXPECT_EQ(trace().elements(), count) << model;
  }
}

}  // namespace
}  // namespace stepcast
