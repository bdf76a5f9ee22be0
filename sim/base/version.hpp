// What this build is, for results that must be reproducible.
#pragma once

namespace stepcast {

extern const char* const version;     ///< release, such as 0.1.0
extern const char* const revision;    ///< git commit, "-dirty" with changes on top, or "unknown"
extern const char* const build_type;  ///< CMake's

}  // namespace stepcast
