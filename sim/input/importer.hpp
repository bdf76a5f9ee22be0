// Foreign formats: one file each in importers/, from files to the text of a step trace.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/registry.hpp"
#include "input/samples.hpp"

namespace stepcast {

struct ImportRequest {
  std::vector<std::filesystem::path> files;
  std::map<std::string, std::string> options;  ///< `--set key=value`: name, precision, micro_batch
};

struct Imported {
  std::string trace_json;  ///< text of a stepcast.trace/1 file
  /// Collectives of all ranks, timed from the last arrival; `nodes` is not known to a trace.
  std::vector<CollectiveSample> collectives;
  std::string nccl_version;  ///< empty when it is not known
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

/// Throws InputError. `progress` is told which share of the files has been read.
using Importer = Imported (*)(const ImportRequest& request,
                              const std::function<void(double fraction)>& progress);
Registry<Importer>& importers();

}  // namespace stepcast
