#include "plan.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "reference.hpp"

namespace stepcast::calibrate {
namespace {

constexpr std::int64_t KiB = 1 << 10;
constexpr std::int64_t MiB = 1 << 20;

/// PyTorch DDP's first bucket and the others, then those that ResNet-50 in float32 really gets.
constexpr std::int64_t bucket_bytes[] = {MiB,      25 * MiB, 8196000, 31502336,
                                         26255360, 26550272, 9724160};

std::vector<std::int64_t> powers(std::int64_t first, std::int64_t last, int factor) {
  std::vector<std::int64_t> values;
  for (std::int64_t value = first; value <= last; value *= factor) values.push_back(value);
  return values;
}

template <class T>
bool wanted(const std::vector<T>& list, const T& value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

class Planner {
 public:
  Planner(const PlanOptions& options, const Vocabulary& vocabulary, int world_size)
      : options_(options), vocabulary_(vocabulary), ranks_(options.ranks) {
    if (!ranks_.empty()) return;
    for (int n = 2; n < world_size; n *= 2) ranks_.push_back(n);
    if (world_size > 1) ranks_.push_back(world_size);
  }

  std::vector<PlannedCase> make() {
    if (!options_.collectives_only && options_.algorithms.empty()) add_compute();
    if (options_.kernels.empty()) {
      if (options_.algorithms.empty()) add_collectives();
      add_forced_algorithms();
      if (vocabulary_.has_channels && options_.algorithms.empty()) add_forced_channels();
    }
    if (!options_.collectives_only && options_.algorithms.empty()) add_interference();
    repeat_some();
    return plan_;
  }

 private:
  void add(const ComputeCase& what) {
    if (wanted(options_.kernels, what.kernel)) plan_.push_back({what, false});
  }

  void add(CollectiveCase what, const std::vector<std::int64_t>& sizes) {
    if (!wanted(options_.operations, what.operation)) return;
    for (const std::int64_t size : sizes) {
      what.bytes = size;
      // A scattered buffer has equal parts of whole numbers of 4 bytes.
      if (what.operation == "reduce_scatter" || what.operation == "all_gather")
        what.bytes -= size % (4 * what.ranks);
      if (what.bytes >= options_.min_bytes && what.bytes <= options_.max_bytes && what.bytes > 0)
        plan_.push_back({what, false});
    }
  }

  /// Of ResNet-50 (He et al. 2016, table 1) with 32 images: the most frequent, one of the many that
  /// only mix channels, and one that halves the image; then the first layer and others of all
  /// stages.
  void add_convolutions(const std::string& dtype) {
    // The layout that PyTorch has by default, and the one in which tensor cores read 16-bit
    // numbers.
    const std::string layout = dtype == "float16" || dtype == "bfloat16" ? "NHWC" : "NCHW";
    std::vector<ConvolutionShape> shapes{{layout, 32, 64, 56, 56, 64, 3, 1, 1},
                                         {layout, 32, 1024, 14, 14, 256, 1, 1, 0},
                                         {layout, 32, 512, 14, 14, 512, 3, 2, 1}};
    if (options_.full)
      shapes.insert(shapes.end(), {{layout, 32, 3, 224, 224, 64, 7, 2, 3},
                                   {layout, 32, 64, 56, 56, 256, 1, 1, 0},
                                   {layout, 32, 128, 28, 28, 128, 3, 1, 1},
                                   {layout, 32, 256, 56, 56, 512, 1, 2, 0},
                                   {layout, 32, 256, 14, 14, 256, 3, 1, 1},
                                   {layout, 32, 512, 7, 7, 2048, 1, 1, 0}});
    for (const ConvolutionShape& shape : shapes)
      for (const std::string kernel :
           {"convolution_forward", "convolution_backward_data", "convolution_backward_filter"})
        add(ComputeCase{.kernel = kernel, .dtype = dtype, .convolution = shape});
  }

  /// A short sequence of BERT-base alone, and sequences of GPT-2 medium.
  [[nodiscard]] static std::vector<AttentionShape> attentions() {
    return {{1, 12, 128, 64}, {8, 16, 1024, 64}};
  }

  void add_compute() {
    add(ComputeCase{.kernel = "empty_kernel"});
    add(ComputeCase{.kernel = "empty_graph_node"});
    for (const std::string& dtype : vocabulary_.dtypes) {
      for (const std::int64_t n :
           powers(options_.full ? 256 : 1024, options_.full ? 8192 : 4096, options_.full ? 2 : 4))
        add(ComputeCase{"gemm", dtype, n, n, n});
      if (!options_.full) continue;
      // Linear layers of a transformer of width 1024 and 4096, and of 1000 classes, at few rows.
      for (const std::int64_t m : {128, 512, 2048, 8192}) {
        add(ComputeCase{"gemm", dtype, m, 4096, 1024});
        add(ComputeCase{"gemm", dtype, m, 16384, 4096});
        add(ComputeCase{"gemm", dtype, m, 1000, 2048});
      }
    }
    for (const std::string& dtype : vocabulary_.dtypes) {
      if (dtype == "float8") continue;  // neither cuDNN's convolutions nor batched products take it
      std::vector<AttentionShape> shapes = attentions();
      // BERT-large, and one sequence of Llama-7B.
      if (options_.full) shapes.insert(shapes.end(), {{32, 16, 512, 64}, {1, 32, 4096, 128}});
      for (const AttentionShape& shape : shapes)
        add(ComputeCase{.kernel = "attention", .dtype = dtype, .attention = shape});
      if (dtype != "bfloat16" || options_.full) add_convolutions(dtype);
    }
    const auto sizes = options_.full ? powers(4 * KiB, 1024 * MiB, 4) : powers(MiB, 256 * MiB, 16);
    for (const std::string kernel : {"copy", "add", "reduction", "layer_norm"})
      for (const bool cold_cache : {false, true})
        for (const std::int64_t bytes : sizes)
          add(ComputeCase{kernel, "float32", 0, 0, 0, bytes, cold_cache});
    for (const std::string kernel : {"host_to_device", "device_to_host"})
      for (const std::int64_t bytes : sizes) add(ComputeCase{kernel, "", 0, 0, 0, bytes});
  }

  /// As the library chooses.
  void add_collectives() {
    for (const int ranks : ranks_) {
      for (const std::string operation :
           {"all_reduce", "reduce_scatter", "all_gather", "broadcast"}) {
        CollectiveCase what{.operation = operation, .ranks = ranks};
        auto sizes = powers(8, options_.max_bytes, options_.full ? 2 : 4);
        if (operation == "all_reduce" || options_.full)
          sizes.insert(sizes.end(), std::begin(bucket_bytes), std::end(bucket_bytes));
        std::sort(sizes.begin(), sizes.end());
        sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
        add(what, sizes);
      }
      const CollectiveCase alone{.operation = "all_reduce", .ranks = ranks, .single_shot = true};
      add(alone, few_sizes());
    }
  }

  void add_forced_algorithms() {
    for (const int ranks : ranks_)
      for (const Algorithm& algorithm : vocabulary_.algorithms)
        for (const std::string& protocol : algorithm.protocols) {
          if (!wanted(options_.algorithms, algorithm.name)) continue;
          add({.operation = "all_reduce",
               .ranks = ranks,
               .algorithm = algorithm.name,
               .protocol = protocol},
              few_sizes());
        }
  }

  /// Channels and buffers matter where bandwidth does.
  void add_forced_channels() {
    const std::vector<std::int64_t> sizes{MiB, 25 * MiB, 256 * MiB};
    for (const int ranks : ranks_) {
      CollectiveCase what{
          .operation = "all_reduce", .ranks = ranks, .algorithm = "ring", .protocol = "Simple"};
      for (const int channels : {1, 2, 4, 8}) {
        what.channels = channels;
        add(what, sizes);
      }
      what.channels = 0;
      if (!options_.full) continue;
      for (const std::int64_t buffer_bytes : powers(64 * KiB, 16 * MiB, 2)) {
        what.buffer_bytes = buffer_bytes;
        add(what, sizes);
      }
    }
  }

  void add_interference() {
    if (ranks_.empty() || !wanted<std::string>(options_.operations, "all_reduce")) return;
    // The last of the list is the one that training uses: float8 has not everything.
    const std::string dtype =
        wanted<std::string>(vocabulary_.dtypes, "bfloat16") ? "bfloat16" : "float32";
    std::vector<ComputeCase> computes{{"gemm", dtype, 4096, 4096, 4096},
                                      {"add", "float32", 0, 0, 0, 256 * MiB}};
    for (const AttentionShape& shape : attentions())
      computes.push_back({.kernel = "attention", .dtype = dtype, .attention = shape});
    const std::vector<int> channels = !vocabulary_.has_channels ? std::vector<int>{0}
                                      : options_.full ? std::vector<int>{0, 1, 2, 4, 8, 16}
                                                      : std::vector<int>{0, 1, 8};
    for (const ComputeCase& compute : computes)
      for (const int channel_count : channels) {
        const CollectiveCase beside{.operation = "all_reduce",
                                    .bytes = std::min(options_.max_bytes, 256 * MiB),
                                    .ranks = ranks_.back(),
                                    .channels = channel_count};
        if (wanted(options_.kernels, compute.kernel))
          plan_.push_back({InterferenceCase{compute, beside}, false});
      }
  }

  /// Every 25th case, spread over the run, once more at its end.
  void repeat_some() {
    const std::size_t count = plan_.size();
    for (std::size_t i = 0; i < count; i += 25)
      if (!std::holds_alternative<InterferenceCase>(plan_[i].what))
        plan_.push_back({plan_[i].what, true});
  }

  [[nodiscard]] std::vector<std::int64_t> few_sizes() const {
    return options_.full ? powers(KiB, 256 * MiB, 4) : powers(16 * KiB, 64 * MiB, 16);
  }

  const PlanOptions& options_;
  const Vocabulary& vocabulary_;
  std::vector<int> ranks_;
  std::vector<PlannedCase> plan_;
};

std::string size_text(std::int64_t bytes) {
  if (bytes >= MiB && bytes % MiB == 0) return fmt::format("{} MiB", bytes / MiB);
  if (bytes >= KiB && bytes % KiB == 0) return fmt::format("{} KiB", bytes / KiB);
  return fmt::format("{} B", bytes);
}

struct Namer {
  std::string operator()(const ComputeCase& what) const {
    std::string text = what.kernel;
    if (!what.dtype.empty()) text += " " + what.dtype;
    if (what.m > 0) text += fmt::format(" {} x {} x {}", what.m, what.n, what.k);
    if (const ConvolutionShape& shape = what.convolution; shape.batch > 0)
      text += fmt::format(" {} {} x {} x {} x {}, {} filters {} x {}, stride {}", shape.layout,
                          shape.batch, shape.in_channels, shape.height, shape.width,
                          shape.out_channels, shape.filter_size, shape.filter_size, shape.stride);
    if (const AttentionShape& shape = what.attention; shape.batch > 0)
      text += fmt::format(" {} x {} heads x {} x {}", shape.batch, shape.heads,
                          shape.sequence_length, shape.head_size);
    if (what.bytes > 0) text += " " + size_text(what.bytes);
    if (what.cold_cache) text += ", cold cache";
    return text;
  }
  std::string operator()(const CollectiveCase& what) const {
    std::string text =
        fmt::format("{} {}, {} ranks", what.operation, size_text(what.bytes), what.ranks);
    if (!what.algorithm.empty()) text += ", " + what.algorithm;
    if (!what.protocol.empty()) text += ", " + what.protocol;
    if (what.channels > 0) text += fmt::format(", {} channels", what.channels);
    if (what.buffer_bytes > 0) text += ", buffer " + size_text(what.buffer_bytes);
    if (what.single_shot) text += ", single shot";
    return text;
  }
  std::string operator()(const InterferenceCase& what) const {
    return (*this)(what.compute) + " beside " + (*this)(what.collective);
  }
};

}  // namespace

Vocabulary nccl_vocabulary() {
  return {{"float32", "tf32", "float16", "bfloat16", "float8"},
          {{"ring", {"LL", "LL128", "Simple"}},
           {"double_binary_tree", {"LL", "LL128", "Simple"}},
           {"nvls", {"Simple"}},
           {"nvls_tree", {"Simple"}}},
          true};
}

Vocabulary mpi_vocabulary() {
  return {{"float32", "float64"},
          {{"ring", {""}}, {"recursive_doubling", {""}}, {"recursive_halving_doubling", {""}}},
          false};
}

std::vector<PlannedCase> make_plan(const PlanOptions& options, const Vocabulary& vocabulary,
                                   int world_size) {
  return Planner(options, vocabulary, world_size).make();
}

std::vector<std::string> known_kernels() {
  return {"empty_kernel",
          "empty_graph_node",
          "gemm",
          "attention",
          "convolution_forward",
          "convolution_backward_data",
          "convolution_backward_filter",
          "copy",
          "add",
          "reduction",
          "layer_norm",
          "host_to_device",
          "device_to_host"};
}

std::string name(const Case& what) { return std::visit(Namer{}, what); }

std::string name(const PlannedCase& planned) {
  return (planned.again ? "again: " : "") + name(planned.what);
}

Accuracy accuracy(const PlanOptions& options) {
  Accuracy accuracy;
  if (options.full) return accuracy;
  accuracy.precision = 0.02;
  accuracy.most_time_s = 0.3;
  return accuracy;
}

double estimated_s(const Case& what, const Accuracy& accuracy) {
  // Buffers, communicators, the check of the numbers; then samples at 10 GB/s and 10 Tflop/s.
  double call_s = 20e-6;
  if (const auto* compute = std::get_if<ComputeCase>(&what))
    call_s += 2e-13 * multiplications(*compute) + 1e-10 * static_cast<double>(compute->bytes);
  if (const auto* collective = std::get_if<CollectiveCase>(&what))
    call_s += 1e-10 * static_cast<double>(collective->bytes);
  const double samples_s = 3.0 * accuracy.least_samples * std::max(call_s, accuracy.least_sample_s);
  return 0.1 + std::min(samples_s, accuracy.most_time_s);
}

}  // namespace stepcast::calibrate
