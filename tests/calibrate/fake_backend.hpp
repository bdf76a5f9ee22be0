// A machine whose times are made up: alpha 10 us, 10 GB/s, 1 Tflop/s.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend.hpp"
#include "plan.hpp"

namespace stepcast::calibrate {

class FakeBackend : public Backend {
 public:
  int ranks = 4;
  int node_count = 2;
  double slowdown = 1;
  Condition state;
  bool correct = true;
  std::vector<std::string> prepared;  ///< names of the cases
  std::function<void(const std::string&)> on_prepare = [](const std::string&) {};

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int world_size() const override { return ranks; }
  [[nodiscard]] int nodes() const override { return node_count; }
  [[nodiscard]] std::map<std::string, std::string> environment() const override {
    return {{"gpu", "fake"}};
  }
  [[nodiscard]] Condition condition() const override { return state; }
  [[nodiscard]] std::string obstacle(const ComputeCase& what) const override {
    return what.dtype == "float8" ? "needs compute capability 8.9" : "";
  }
  [[nodiscard]] std::string obstacle(const CollectiveCase& what) const override {
    return what.algorithm == "nvls" ? "needs NVSwitch" : "";
  }
  void prepare(const ComputeCase& what) override { note(what); }
  void prepare(const CollectiveCase& what) override { note(what); }
  double time(const ComputeCase& what, int) override {
    return slowdown * (10e-6 + 2e-12 * static_cast<double>(what.m * what.n * what.k) +
                       1e-10 * static_cast<double>(what.bytes));
  }
  double time(const CollectiveCase& what, int) override {
    return slowdown * (10e-6 + 1e-10 * static_cast<double>(what.bytes));
  }
  InterferenceTimes time(const InterferenceCase&, int) override { return {1, 1.25, 2, 3}; }
  std::optional<bool> is_correct(const ComputeCase& what) override {
    if (what.kernel == "attention") return correct;
    return {};
  }
  bool is_correct(const CollectiveCase&) override { return correct; }
  double own_estimate(const CollectiveCase& what) override {
    return what.algorithm.empty() ? -1 : 5e-6;
  }
  double from_rank_0(double value) override { return value; }

 private:
  void note(const Case& what) {
    prepared.push_back(name(what));
    on_prepare(prepared.back());
  }
};

}  // namespace stepcast::calibrate
