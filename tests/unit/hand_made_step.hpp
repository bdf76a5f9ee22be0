// A step of two ranks whose every figure can be checked by hand.
//
//   segment 0, three times:  forward, backward
//   segment 1, once:         host gap, backward, launch 0, wait 0, optimizer
//
//   rank 0   0 |forward 10|backward 20| 30 ... waits for rank 1 until 35
//   rank 1   0 |forward 12|backward 23| 35
//   Each pass takes 35 s, so segment 1 starts at 100 on rank 0 and at 105 on rank 1.
//   rank 0   100 |host 5|backward 10| 115 launch, wait          150 |optimizer 7| 157
//   rank 1   105 |host 5|backward 10| 120 launch, wait   145 |optimizer 7| 152
//   AllReduce                         120 both are there ... 145 done on rank 1 ... 150 on rank 0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "documents.hpp"
#include "engine/job.hpp"
#include "engine/timeline.hpp"
#include "input/study.hpp"

namespace stepcast {

class HandMadeStep {
 public:
  HandMadeStep() {
    point.scenario.gpus = 2;
    point.scenario.training.accumulation_steps = 4;
    Timeline::CollectiveTimes times;
    times.ready = {Seconds{115.0}, Seconds{120.0}};
    times.start = Seconds{120.0};
    times.end = {Seconds{150.0}, Seconds{145.0}};
    timeline.collectives = {times};
    timeline.ranks = 2;
    timeline.tasks = 7;
    for (const auto& [begin, end] : std::vector<std::pair<double, double>>{// rank 0
                                                                           {0, 10},
                                                                           {10, 30},
                                                                           {100, 105},
                                                                           {105, 115},
                                                                           {115, 115},
                                                                           {115, 150},
                                                                           {150, 157},
                                                                           // rank 1
                                                                           {0, 12},
                                                                           {12, 35},
                                                                           {105, 110},
                                                                           {110, 120},
                                                                           {120, 120},
                                                                           {120, 145},
                                                                           {145, 152}})
      timeline.task_times.push_back({Seconds{begin}, Seconds{end}});
    timeline.segments = {{{Seconds{30.0}, Seconds{35.0}}, Seconds{35.0}},
                         {{Seconds{157.0}, Seconds{152.0}}, Seconds{57.0}}};
  }

  Point point = {{},
                 {},
                 std::make_shared<const StepTrace>(
                     read_step_trace(JsonDocument::parse(tiny_trace(), "m.json").root())),
                 std::make_shared<const Platform>(
                     read_platform(JsonDocument::parse(tiny_platform(), "p.json").root())),
                 nullptr};
  Job job = {Cluster(*point.platform, nullptr, 2, "test"), program(), {lowered()}, {0}};
  Timeline timeline;

 private:
  static Program program() {
    Program program;
    program.collectives.push_back({1000, {0, 1, 2}});
    program.segments.push_back(
        {3, {Compute{Phase::forward, "f", Seconds{}}, Compute{Phase::backward, "b", Seconds{}}}});
    program.segments.push_back(
        {1,
         {Compute{Phase::host, "gap before b", Seconds{}}, Compute{Phase::backward, "b", Seconds{}},
          Launch{0}, Wait{0}, Compute{Phase::optimizer, "step", Seconds{}}}});
    return program;
  }
  static LoweredCollective lowered() {
    LoweredCollective collective;
    collective.bytes = Bytes{1000.0};
    collective.algorithm = "ring";
    collective.protocol = "Simple";
    collective.channels = 2;
    collective.chunk = Bytes{250.0};
    collective.basis = Basis::interpolated;
    collective.relative_error = 0.125;
    return collective;
  }
};

}  // namespace stepcast
