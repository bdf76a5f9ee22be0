// Times that can be trusted: enough calls a sample, enough samples, and how far they agree.
#pragma once

#include <functional>
#include <vector>

namespace stepcast::calibrate {

/// When a time is good enough, and when to give up.
struct Accuracy {
  double precision = 0.01;         ///< half the median's 95 % interval, relative to the median
  double least_sample_s = 200e-6;  ///< a shorter sample is filled with more calls
  double most_time_s = 1;          ///< of all samples of one case
  int most_calls = 4096;           ///< in one sample
  int least_samples = 10;
  int most_samples = 200;
};

struct Statistics {
  double median_s = 0, min_s = 0, p90_s = 0;
  double spread = 0;  ///< half the median's 95 % interval, relative to the median
  int samples = 0;
  int calls = 0;         ///< of all samples together
  bool reached = false;  ///< the precision, before time or samples ran out
};

/// Half the distribution-free 95 % interval of the median, relative to it: between the order
/// statistics i and n-1-i, i being the largest with P(Binomial(n, 1/2) <= i) <= 2.5 %. Infinite for
/// less than 6 values, which have no such interval.
[[nodiscard]] double median_spread(const std::vector<double>& sorted);

/// What sample() needs of the outside.
struct Measured {
  std::function<double(int calls)> time;      ///< mean time of one call, the same on all processes
  std::function<double(double)> from_rank_0;  ///< all processes decide alike
  std::function<double()> now;                ///< of this process, in seconds
};

/// The first two samples only settle the machine and the number of calls.
[[nodiscard]] Statistics sample(const Measured& measured, const Accuracy& accuracy);

/// Seconds of a clock that never goes back.
[[nodiscard]] double steady_now();

}  // namespace stepcast::calibrate
