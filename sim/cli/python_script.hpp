// The scripts of plots/, run by the Python that ./dev setup made.
#pragma once

#include <string>
#include <vector>

namespace stepcast {

/// Becomes that script: returns only when it cannot be started, having said why, with exit code 3.
int become_python_script(const std::string& script, const std::vector<std::string>& arguments);

}  // namespace stepcast
