#include "input/collective_settings.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"

namespace stepcast {
namespace {

constexpr std::int64_t largest_bytes = std::int64_t{1} << 50;

/// What NCCL_ALGO and NCCL_PROTO call things (NCCL docs/userguide/source/env.rst), in lower case.
using Names = std::vector<std::pair<std::string, std::string>>;
const Names nccl_algorithms = {
    {"ring", "ring"}, {"tree", "double_binary_tree"}, {"nvls", "nvls"}, {"nvlstree", "nvls_tree"}};
const Names nccl_protocols = {{"ll", "LL"}, {"ll128", "LL128"}, {"simple", "Simple"}};

/// "Ring,Tree" is those two, "^Tree" all others.
std::vector<std::string> read_nccl_list(const JsonView& json, const Names& names) {
  std::string text = json.string();
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool excludes = text.starts_with('^');
  std::vector<std::string> listed;
  for (const std::string& word : split(excludes ? text.substr(1) : text, ',')) {
    const auto known = std::find_if(names.begin(), names.end(),
                                    [&](const auto& name) { return name.first == word; });
    if (known == names.end()) {
      std::vector<std::string> all;
      for (const auto& [nccl, name] : names) all.push_back(nccl);
      json.fail(fmt::format("unknown \"{}\"{}", word, suggest(word, all)));
    }
    listed.push_back(known->second);
  }
  if (!excludes) return listed;
  std::vector<std::string> others;
  for (const auto& [nccl, name] : names)
    if (std::find(listed.begin(), listed.end(), name) == listed.end()) others.push_back(name);
  if (others.empty()) json.fail("leaves nothing to choose from");
  return others;
}

/// The value under a key, or under NCCL's name of the same thing.
std::optional<JsonView> find_either(const JsonView& json, const char* key, const char* nccl_name) {
  const auto value = json.find(key);
  const auto nccl = json.find(nccl_name);
  if (value && nccl) nccl->fail(fmt::format("is the same as {}; give one of them", key));
  return value ? value : nccl;
}

template <class T, class Read>
void choose(const std::optional<JsonView>& value, Choice<T>& choice, Read read) {
  if (!value) return;
  choice.origin = value->where();
  if (!value->is_auto()) choice.value = read(*value);
}

/// One name is a choice; several narrow the one that NCCL's tuner makes.
void read_nccl_choice(const JsonView& json, const char* key, const char* nccl_name,
                      const Names& names, Choice<std::string>& choice,
                      std::vector<std::string>& allowed, std::optional<std::string>& written) {
  const auto nccl = json.find(nccl_name);
  if (!nccl) return;
  static_cast<void>(find_either(json, key, nccl_name));
  written = nccl->string();
  allowed = read_nccl_list(*nccl, names);
  choice.origin = nccl->where();
  if (allowed.size() == 1) choice.value = allowed.front();
}

}  // namespace

std::string to_string(Chunking chunking) { return chunking == Chunking::nccl ? "nccl" : "plain"; }

CollectiveSettings read_collective_settings(const JsonView& json) {
  json.allow_only({"algorithm", "protocol", "channels", "chunk_bytes", "chunking", "nccl_version",
                   "min_channels", "max_channels", "nvls", "intra_node_algorithm",
                   "inter_node_algorithm", "NCCL_ALGO", "NCCL_PROTO", "NCCL_BUFFSIZE",
                   "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_NVLS_ENABLE"});
  CollectiveSettings settings;
  const auto word = [](const JsonView& value) { return value.string(); };
  choose(json.find("algorithm"), settings.algorithm, word);
  choose(json.find("protocol"), settings.protocol, word);
  read_nccl_choice(json, "algorithm", "NCCL_ALGO", nccl_algorithms, settings.algorithm,
                   settings.allowed_algorithms, settings.nccl_algo);
  read_nccl_choice(json, "protocol", "NCCL_PROTO", nccl_protocols, settings.protocol,
                   settings.allowed_protocols, settings.nccl_proto);
  choose(json.find("channels"), settings.channels,
         [](const JsonView& value) { return static_cast<int>(value.integer(1, most_channels)); });
  choose(find_either(json, "chunk_bytes", "NCCL_BUFFSIZE"), settings.chunk_bytes,
         [](const JsonView& value) {
           return value.dump() == "\"max\"" ? infinite_chunk : value.integer(1, largest_bytes);
         });
  choose(json.find("chunking"), settings.chunking, [](const JsonView& value) {
    return value.word({"nccl", "plain"}) == "nccl" ? Chunking::nccl : Chunking::plain;
  });
  choose(json.find("nccl_version"), settings.nccl_version, word);
  if (const auto value = find_either(json, "min_channels", "NCCL_MIN_NCHANNELS"))
    settings.min_channels = static_cast<int>(value->integer(1, most_channels));
  if (const auto value = find_either(json, "max_channels", "NCCL_MAX_NCHANNELS"))
    settings.max_channels = static_cast<int>(value->integer(settings.min_channels, most_channels));
  if (const auto nccl = json.find("NCCL_NVLS_ENABLE")) {
    static_cast<void>(find_either(json, "nvls", "NCCL_NVLS_ENABLE"));
    settings.nvls = nccl->integer(0, 2) != 0;  // 2: where it is supported
  } else if (const auto value = json.find("nvls")) {
    settings.nvls = value->boolean();
  }
  choose(json.find("intra_node_algorithm"), settings.intra_node_algorithm,
         [](const JsonView& value) {
           return value.word({"ring", "direct"});
         });
  choose(json.find("inter_node_algorithm"), settings.inter_node_algorithm, word);
  return settings;
}

}  // namespace stepcast
