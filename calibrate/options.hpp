// The command line of stepcast-calibrate.
#pragma once

#include <string>
#include <string_view>

#include "plan.hpp"

namespace stepcast::calibrate {

struct Options {
  bool help = false, devices = false, dry_run = false;
  std::string platform, output;
  PlanOptions plan;
};

/// Throws UsageError. `backend` is the one that is compiled in.
[[nodiscard]] Options parse(int argc, char** argv, std::string_view backend);

extern const char help_text[];

}  // namespace stepcast::calibrate
