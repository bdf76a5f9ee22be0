#include "json_text.hpp"

namespace stepcast::calibrate {

Json to_json(const ComputeCase& what) {
  Json json{{"kernel", what.kernel}};
  if (!what.dtype.empty()) json["dtype"] = what.dtype;
  if (what.m > 0) {
    json["m"] = what.m;
    json["n"] = what.n;
    json["k"] = what.k;
  }
  if (const ConvolutionShape& shape = what.convolution; shape.batch > 0) {
    json["layout"] = shape.layout;
    json["batch"] = shape.batch;
    json["in_channels"] = shape.in_channels;
    json["height"] = shape.height;
    json["width"] = shape.width;
    json["out_channels"] = shape.out_channels;
    json["filter_size"] = shape.filter_size;
    json["stride"] = shape.stride;
    json["padding"] = shape.padding;
  }
  if (const AttentionShape& shape = what.attention; shape.batch > 0) {
    json["batch"] = shape.batch;
    json["heads"] = shape.heads;
    json["sequence_length"] = shape.sequence_length;
    json["head_size"] = shape.head_size;
  }
  if (what.bytes > 0) json["bytes"] = what.bytes;
  if (what.cold_cache) json["cold_cache"] = true;
  return json;
}

Json to_json(const CollectiveCase& what) {
  Json json{{"operation", what.operation}, {"ranks", what.ranks}, {"bytes", what.bytes}};
  if (!what.algorithm.empty()) json["algorithm"] = what.algorithm;
  if (!what.protocol.empty()) json["protocol"] = what.protocol;
  if (what.channels > 0) json["channels"] = what.channels;
  if (what.buffer_bytes > 0) json["buffer_bytes"] = what.buffer_bytes;
  if (what.single_shot) json["single_shot"] = true;
  return json;
}

void add_times(Json& entry, const Statistics& times) {
  entry["time_s"] = times.median_s;
  entry["min_s"] = times.min_s;
  entry["p90_s"] = times.p90_s;
  entry["calls"] = times.calls;
}

}  // namespace stepcast::calibrate
