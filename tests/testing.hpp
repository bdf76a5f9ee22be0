// What the tests share.
#pragma once

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/json_view.hpp"

namespace stepcast {

/// The text of the InputError that `act` throws, or what it did instead.
inline std::string input_error(const std::function<void()>& act) {
  try {
    act();
  } catch (const InputError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another exception: ") + error.what();
  }
  return "no error";
}

/// A file of this repository.
inline std::string repository_file(const std::string& path) {
  return std::string(STEPCAST_SOURCE_DIR) + "/" + path;
}

}  // namespace stepcast
