#include "engine/point_job.hpp"

#include <utility>
#include <vector>

#include "engine/interference.hpp"
#include "engine/pace.hpp"
#include "workload/data_parallel.hpp"

namespace stepcast {

StepEstimate step_of(const Point& point) {
  return step_at(
      *point.model,
      point.scenario.training.micro_batch.value_or(point.model->measured.front().micro_batch),
      point.platform->gpu.kernel_floor);
}

Job job_of(const Point& point) {
  const Scenario& scenario = point.scenario;
  const MeasuredStep measured = step_of(point).step;
  Cluster cluster(*point.platform, point.calibration.get(), scenario.gpus, scenario.gpus_origin,
                  scenario.placement);
  for (const Imperfections::SlowNic& nic : scenario.imperfections.slow_nics) cluster.slow_down(nic);
  Job job = make_job(data_parallel_step(*point.model, measured, scenario.training,
                                        point.platform->gpu, scenario.gpus),
                     scenario.collective, cluster);
  job.pace = paces(scenario.imperfections, cluster, measured);
  job.interference = interference_of(job, scenario.interference);
  return job;
}

std::optional<Job> late_job_of(const Point& point, const Job& job) {
  const auto& straggler = point.scenario.imperfections.straggler;
  if (!straggler) return std::nullopt;
  Job late = job;
  late.pace = paces_when_late(*straggler, job.pace, static_cast<std::size_t>(job.cluster.ranks()));
  return late;
}

Seconds loading_time(const Point& point) {
  const TrainingSettings& training = point.scenario.training;
  if (!training.data_loader) return {};
  const auto samples =
      static_cast<double>(training.micro_batch.value_or(point.model->measured.front().micro_batch) *
                          training.accumulation_steps);
  return samples / static_cast<double>(training.data_loader->workers) *
         training.data_loader->time_per_sample;
}

void wait_for_data(const Point& point, Job& job, Timeline& timeline) {
  const Seconds late = loading_time(point) - timeline.end();
  if (late <= Seconds{}) return;
  for (Interval& task : timeline.task_times) task = {task.begin + late, task.end + late};
  for (Timeline::CollectiveTimes& times : timeline.collectives) {
    times.start += late;
    for (Seconds& ready : times.ready) ready += late;
    for (Seconds& end : times.end) end += late;
  }
  for (Timeline::SegmentTimes& times : timeline.segments)
    for (Seconds& end : times.first_end) end += late;

  const std::size_t classes = timeline.class_sizes().size();
  std::vector<Segment>& segments = job.program.segments;
  segments.insert(segments.begin(), {1, {Compute{Phase::host, "data loader", late}}});
  timeline.segments.insert(timeline.segments.begin(), {std::vector<Seconds>(classes, late), late});
  std::vector<Interval> tasks;
  for (std::size_t i = 0; i < classes; ++i) {
    tasks.push_back({Seconds{}, late});
    for (std::size_t task = 0; task < timeline.tasks; ++task)
      tasks.push_back(timeline.task(i, task));
  }
  timeline.task_times = std::move(tasks);
  ++timeline.tasks;
}

}  // namespace stepcast
