// Small text helpers: what people type (25MiB) and what people mistype (micro_bacth).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepcast {

/// A byte count as people write it: `1024`, `25MiB`, `64 KiB`, `1.5GB` (kB, MB, GB, TB are powers
/// of ten; KiB, MiB, GiB, TiB powers of two; a bare K, M or G is refused because nccl-tests and
/// humans disagree about it). Empty when the text is not one, or not a whole number of bytes.
[[nodiscard]] std::optional<std::int64_t> parse_bytes(std::string_view text);

/// `26214400` -> "25 MiB", `1000` -> "1000 B": four digits in the largest unit that fits.
[[nodiscard]] std::string format_bytes(double bytes);

/// A number as the shortest text that reads back to the same double.
[[nodiscard]] std::string format_number(double value);

/// What stands behind an unknown name in an error: the near ones if there are any, then all.
/// `; did you mean "ring"? known: ring, tree`
[[nodiscard]] std::string suggest(std::string_view unknown, const std::vector<std::string>& known);

[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);

}  // namespace stepcast
