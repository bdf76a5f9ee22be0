// One function per command; each returns the exit code.
#pragma once

#include "cli/options.hpp"

namespace stepcast {

int run_command(const RunOptions& options);
int merge_command(const MergeOptions& options);
int collective_command(const CollectiveOptions& options);
int compare_command(const CompareOptions& options);
int fit_command(const FitOptions& options);
int validate_command(const ValidateOptions& options);
int import_command(const ImportOptions& options);
int trace_command(const TraceOptions& options);
int plot_command(const DrawOptions& options);
int report_command(const DrawOptions& options);
int list_command(const ListOptions& options);

/// The text of help.md: all of it, or the part on one command.
std::string help(const std::string& command = {});

}  // namespace stepcast
