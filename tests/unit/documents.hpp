// Small documents of every format, and ways to change one value of them.
#pragma once

#include <filesystem>
#include <fstream>
#include <ostream>
#include <stdexcept>
#include <stdlib.h>
#include <string>
#include <system_error>

#include <nlohmann/json.hpp>

#include "testing.hpp"

namespace stepcast {

/// One way to be wrong in a document of its format, and what is said about it.
struct Mistake {
  std::string name;  ///< of the test
  std::string document;
  std::string error;
};
inline void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

/// For INSTANTIATE_TEST_SUITE_P: the case says what it is called.
constexpr auto case_name = [](const auto& info) { return info.param.name; };

/// `document` with `value` at an RFC 6901 pointer. What is on the way must be there.
inline std::string with(const std::string& document, const std::string& pointer,
                        const std::string& value) {
  auto json = nlohmann::ordered_json::parse(document);
  const nlohmann::ordered_json::json_pointer place(pointer);
  json.at(place.parent_pointer());  // throws
  json[place] = nlohmann::ordered_json::parse(value);
  return json.dump();
}

/// `document` without the key at an RFC 6901 pointer.
inline std::string without(const std::string& document, const std::string& pointer) {
  auto json = nlohmann::ordered_json::parse(document);
  const nlohmann::ordered_json::json_pointer place(pointer);
  if (json.at(place.parent_pointer()).erase(place.back()) != 1)
    throw std::logic_error("nothing at " + pointer);
  return json.dump();
}

/// A model of three parameters: 100 + 10 elements of float32 and 50 of float16.
inline std::string tiny_trace() {
  return R"({
    "format": "stepcast.trace/1", "name": "tiny", "source": "made up", "gpu": "none",
    "precision": "mixed",
    "parameters": [
      {"name": "first.weight", "elements": 100, "dtype": "float32"},
      {"name": "first.bias", "elements": 10, "dtype": "float32"},
      {"name": "second.weight", "elements": 50, "dtype": "float16"}
    ],
    "optimizer": {"name": "SGD", "state_bytes_per_element": 4},
    "measured": [{
      "micro_batch": 8, "steps": 5, "step_time_s": {"median": 0.1, "min": 0.09, "max": 0.12},
      "forward": [{"name": "first", "duration_s": 0.02}, {"name": "second", "duration_s": 0.01}],
      "backward": [
        {"name": "second", "gap_s": 0.001, "duration_s": 0.02, "gradients": ["second.weight"]},
        {"name": "first", "duration_s": 0.04, "gradients": ["first.bias", "first.weight"]}
      ],
      "finalize": [{"name": "copy", "duration_s": 0.003}],
      "optimizer": [{"name": "SGD.step", "duration_s": 0.006}]
    }]
  })";
}

/// Two nodes of four GPUs on a switch, with two NICs each.
inline std::string tiny_platform() {
  return R"({
    "format": "stepcast.platform/1", "name": "tiny cluster", "source": "made up",
    "gpu": {"name": "none", "memory_bytes": 1000000},
    "node": {
      "gpus": 4,
      "interconnect": {"kind": "switch", "bandwidth_Bps": 100e9, "alpha_s": 1e-6},
      "nics": {"count": 2, "bandwidth_Bps": 10e9, "alpha_s": 5e-6, "near_gpus": [[0, 1], [2, 3]]}
    },
    "fabric": {"kind": "switch"},
    "nodes": 2
  })";
}

inline std::string tiny_calibration() {
  return R"({
    "format": "stepcast.calibration/1", "name": "tiny fit", "source": "made up",
    "platform": "tiny cluster",
    "links": {
      "intra_node_Bps": {"value": 80e9, "nominal": 100e9, "stderr": 1e9},
      "inter_node_Bps": {"value": 8e9, "nominal": 10e9}
    },
    "protocols": [{
      "name": "Simple",
      "efficiency": {"value": 1.0},
      "launch_s": {"value": 10e-6},
      "alpha_intra_node_s": {"value": 2e-6},
      "alpha_inter_node_s": {"value": 6e-6},
      "range": {"bytes": [1024, 1048576], "ranks": [2, 8], "nodes": [1, 2]},
      "residuals": {"samples": 12, "median_abs": 0.01, "max_abs": 0.05}
    }],
    "samples": [{
      "operation": "all_reduce", "nodes": 1, "ranks": 4, "bytes": 1024, "time_s": 2e-5,
      "source": "made up"
    }]
  })";
}

/// Names the three files above as they lie beside it.
inline std::string tiny_scenario() {
  return R"({
    "format": "stepcast.scenario/1", "question": "Does it run?",
    "model": "model.json", "platform": "platform.json", "calibration": "calibration.json",
    "training": {"sync": "ddp"},
    "cluster": {"gpus": 4}
  })";
}

/// A folder of its own that is gone with the object.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "stepcast-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  /// Full path of a file in it.
  [[nodiscard]] std::string path(const std::string& name) const { return (path_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream file(path(name));
    file << text;
    if (!file.flush()) throw std::runtime_error("cannot write " + path(name));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace stepcast
