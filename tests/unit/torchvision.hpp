// The parameters of torchvision's ResNets in registration order, from their architecture (He et
// al., CVPR 2016, table 1; torchvision/models/resnet.py).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "input/step_trace.hpp"

namespace stepcast {

class ResNetParameters {
 public:
  /// `expansion` 1: basic blocks of two 3x3 convolutions; 4: bottlenecks of 1x1, 3x3, 1x1.
  static std::vector<Parameter> of(const std::array<int, 4>& blocks, std::int64_t expansion) {
    ResNetParameters net;
    net.convolution("conv1", 64, 3, 7);
    net.batch_norm("bn1", 64);
    std::int64_t inputs = 64;
    for (std::size_t layer = 0; layer < blocks.size(); ++layer) {
      const std::int64_t planes = std::int64_t{64} << layer;
      const std::int64_t outputs = planes * expansion;
      for (int block = 0; block < blocks[layer]; ++block) {
        const std::string name =
            "layer" + std::to_string(layer + 1) + "." + std::to_string(block) + ".";
        if (expansion == 1) {
          net.convolution(name + "conv1", planes, inputs, 3);
          net.batch_norm(name + "bn1", planes);
          net.convolution(name + "conv2", planes, planes, 3);
          net.batch_norm(name + "bn2", planes);
        } else {
          net.convolution(name + "conv1", planes, inputs, 1);
          net.batch_norm(name + "bn1", planes);
          net.convolution(name + "conv2", planes, planes, 3);
          net.batch_norm(name + "bn2", planes);
          net.convolution(name + "conv3", outputs, planes, 1);
          net.batch_norm(name + "bn3", outputs);
        }
        if (block == 0 && inputs != outputs) {
          net.convolution(name + "downsample.0", outputs, inputs, 1);
          net.batch_norm(name + "downsample.1", outputs);
        }
        inputs = outputs;
      }
    }
    net.add("fc.weight", inputs * 1000);
    net.add("fc.bias", 1000);
    return net.parameters_;
  }

 private:
  void add(const std::string& name, std::int64_t elements) {
    parameters_.push_back({name, elements, "float32"});
  }
  void convolution(const std::string& name, std::int64_t out, std::int64_t in, std::int64_t size) {
    add(name + ".weight", out * in * size * size);
  }
  void batch_norm(const std::string& name, std::int64_t channels) {
    add(name + ".weight", channels);
    add(name + ".bias", channels);
  }

  std::vector<Parameter> parameters_;
};

inline std::vector<Parameter> resnet18() { return ResNetParameters::of({2, 2, 2, 2}, 1); }
inline std::vector<Parameter> resnet50() { return ResNetParameters::of({3, 4, 6, 3}, 4); }

/// The last parameter's gradient first.
inline std::vector<int> reverse_registration_order(const std::vector<Parameter>& parameters) {
  std::vector<int> order(parameters.size());
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

}  // namespace stepcast
