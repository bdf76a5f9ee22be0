#include "journal.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace stepcast::calibrate {

Journal::Journal(std::string output, const std::string& plan)
    : output_(std::move(output)), path_(output_ + ".partial") {
  if (std::filesystem::exists(output_))
    throw UsageError(output_ + ": exists already; remove it or give another -o");
  read(plan);
  const bool is_new = !std::filesystem::exists(path_) || std::filesystem::file_size(path_) == 0;
  file_.reset(std::fopen(path_.c_str(), "ab"));
  if (!file_) throw UsageError(fmt::format("{}: {}", path_, std::strerror(errno)));
  if (is_new) write_line({{"plan", plan}});
}

/// Keeps every whole line; what a kill left of the last one is cut off.
void Journal::read(const std::string& plan) {
  std::ifstream stream(path_, std::ios::binary);
  if (!stream) return;
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  std::size_t begin = 0;
  int line_number = 0;
  for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    ++line_number;
    try {
      const Json line = Json::parse(text.begin() + begin, text.begin() + end);
      if (line_number == 1) {
        if (line.at("plan") != plan)
          throw UsageError(path_ +
                           ": is of other options or another machine; remove it to start anew");
      } else {
        outcomes_.push_back(
            {line.at("case"), line.at("array"), line.at("entry"), line.at("problems")});
        names_.insert(outcomes_.back().name);
      }
    } catch (const Json::exception&) {
      throw UsageError(
          fmt::format("{}:{}: is damaged; remove the file to start anew", path_, line_number));
    }
    begin = end + 1;
  }
  stream.close();
  std::filesystem::resize_file(path_, begin);
}

void Journal::append(const Outcome& outcome) {
  write_line({{"case", outcome.name},
              {"array", outcome.array},
              {"entry", outcome.entry},
              {"problems", outcome.problems}});
  outcomes_.push_back(outcome);
  names_.insert(outcome.name);
}

void Journal::write_line(const Json& line) {
  const std::string text = line.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0)
    throw std::runtime_error(fmt::format("{}: {}", path_, std::strerror(errno)));
}

void Journal::finish(const std::string& text) {
  const std::string temporary = output_ + ".tmp";
  std::ofstream stream(temporary, std::ios::binary);
  stream << text;
  stream.close();
  if (!stream) throw std::runtime_error(temporary + ": cannot be written");
  std::filesystem::rename(temporary, output_);
  std::filesystem::remove(path_);
}

std::string fingerprint(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

}  // namespace stepcast::calibrate
