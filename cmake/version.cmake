# Run at each build: writes version.cpp with the git revision, so that a result says what made it.
execute_process(
  COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE REVISION OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(REVISION "unknown")
endif()
configure_file(${SOURCE_DIR}/sim/base/version.cpp.in ${OUTPUT} @ONLY)
