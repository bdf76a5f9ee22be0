// How well steps were predicted, as text and as a page.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "report/report.hpp"

namespace stepcast {
namespace {

std::string summary_line(const char* what, const ErrorSummary& summary) {
  if (summary.cases == 0) return "";
  return fmt::format(
      "{}: {} cases, error median {:.1f} %, mean {:.1f} %, p90 {:.1f} %, worst {:.1f} %, bias "
      "{:+.1f} %; {:.0f} % of the measured times are in the band\n",
      what, summary.cases, 100 * summary.median_abs, 100 * summary.mean_abs, 100 * summary.p90_abs,
      100 * summary.max_abs, 100 * summary.bias, 100 * summary.inside);
}

std::vector<std::string> bar_texts(const FileResult& result) {
  std::vector<std::string> texts;
  if (const auto& bar = result.bars.mean_abs_error)
    texts.push_back(fmt::format("mean {:.1f} %", 100 * *bar));
  if (const auto& bar = result.bars.median_abs_error)
    texts.push_back(fmt::format("median {:.1f} %", 100 * *bar));
  if (const auto& bar = result.bars.order_right)
    texts.push_back(fmt::format("{:.0f} % of orders", 100 * *bar));
  return texts;
}

std::string verdict(const FileResult& result) {
  if (!result.skipped.empty()) return "skipped: " + result.skipped;
  const std::vector<std::string> bars = bar_texts(result);
  if (bars.empty()) return "no bar";
  const std::vector<std::string> missed = result.missed();
  if (missed.empty()) return fmt::format("bar met: {}", fmt::join(bars, ", "));
  return fmt::format("bar missed: {}", fmt::join(missed, "; "));
}

std::string noise_text(const CaseResult& one) {
  return one.noise ? fmt::format("{:.1f} %", 100 * *one.noise) : "";
}

std::string fitted_text(const FittedFigure& figure) {
  if (figure.held) return fmt::format("{} = {:.4g} (not determined)", figure.key, figure.value);
  return fmt::format("{} = {:.4g} +- {:.2g}", figure.key, figure.value, figure.standard_error);
}

/// Text of a table cell or an attribute.
std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '"')
      safe += "&quot;";
    else
      safe += c;
  }
  return safe;
}

/// Predicted over measured, both logarithmic, with the line where they are the same.
std::string scatter(const FileResult& result) {
  constexpr double size = 360.0;
  double low = result.cases.front().measured.value();
  double high = low;
  for (const CaseResult& one : result.cases)
    for (const double time : {one.measured.value(), one.predicted.time.value()}) {
      low = std::min(low, time);
      high = std::max(high, time);
    }
  low /= 1.1;
  high *= 1.1;
  const auto place = [&](Seconds time) {
    return size * std::log(time.value() / low) / std::log(high / low);
  };
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0} {0}\" width=\"{0}\" height=\"{0}\" role=\"img\" "
      "aria-label=\"predicted "
      "over measured time\"><rect width=\"{0}\" height=\"{0}\" fill=\"none\" stroke=\"#888\"/>"
      "<line x1=\"0\" y1=\"{0}\" x2=\"{0}\" y2=\"0\" stroke=\"#888\"/>",
      size);
  for (const CaseResult& one : result.cases)
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{} {:+.1f} "
        "%</title></circle>",
        place(one.measured), size - place(one.predicted.time), one.is_fitted ? "#999" : "#1565c0",
        escaped(one.id), 100 * one.error());
  return svg + "</svg>";
}

std::string pool_name(const PooledErrors& pooled) {
  return pooled.suite.empty() ? "all" : pooled.suite;
}

std::vector<const FileResult*> with_peers(const std::vector<FileResult>& results) {
  std::vector<const FileResult*> found;
  for (const FileResult& result : results)
    if (result.peers && result.skipped.empty()) found.push_back(&result);
  return found;
}

std::string totals_html(const std::vector<FileResult>& results) {
  std::string html =
      "<h2>All files of a suite</h2>\n<table><tr><th>suite<th>files<th>cases<th>median<th>mean<th>"
      "p90<th>worst<th>bias<th>in the band</tr>\n";
  for (const PooledErrors& one : pool(results))
    html += fmt::format(
        "<tr><td>{}<td>{}<td>{}<td>{:.1f} %<td>{:.1f} %<td>{:.1f} %<td>{:.1f} %<td>{:+.1f} "
        "%<td>{:.0f} "
        "%</tr>\n",
        escaped(pool_name(one)), one.files, one.test.cases, 100 * one.test.median_abs,
        100 * one.test.mean_abs, 100 * one.test.p90_abs, 100 * one.test.max_abs,
        100 * one.test.bias, 100 * one.test.inside);
  html += "</table>\n";
  const std::vector<const FileResult*> compared = with_peers(results);
  if (compared.empty()) return html;
  html +=
      "<h2>Beside the best peers</h2>\n<table><tr><th>suite<th>mean error<th>peers' mean "
      "error<th>peers</tr>\n";
  for (const FileResult* result : compared)
    html +=
        fmt::format("<tr><td>{}: {}<td>{:.1f} %<td>{:.1f} %<td>{}</tr>\n", escaped(result->suite),
                    escaped(result->name), 100 * result->summary(false).mean_abs,
                    100 * result->peers->mean_error, escaped(result->peers->text));
  return html + "</table>\n";
}

std::string section(const FileResult& result) {
  const ErrorSummary test = result.summary(false);
  std::string html =
      fmt::format("<h2>{}: {}</h2>\n<p>{}<br>{}</p>\n", escaped(result.suite), escaped(result.name),
                  escaped(result.machine), escaped(result.source));
  html += "<p>" + escaped(summary_line("test", test)) + "<br>" +
          escaped(summary_line("fit", result.summary(true))) + "<br><b>" +
          escaped(verdict(result)) + "</b></p>\n";
  if (result.peers)
    html += fmt::format("<p>{}: {:.1f} %</p>\n", escaped(result.peers->text),
                        100 * result.peers->mean_error);
  for (const FittedFigure& figure : result.fitted)
    html += "<p>fitted: " + escaped(fitted_text(figure)) + "</p>\n";
  if (result.cases.empty()) return html;
  html += scatter(result);
  html +=
      "\n<table><tr><th>case<th>split<th>predicted ms<th>measured "
      "ms<th>error<th>noise<th>in the band<th>basis</tr>\n";
  for (const CaseResult& one : result.cases)
    html +=
        fmt::format("<tr><td>{}<td>{}<td>{:.3f}<td>{:.3f}<td>{:+.1f} %<td>{}<td>{}<td>{}</tr>\n",
                    escaped(one.id), one.is_fitted ? "fit" : "test",
                    one.predicted.time.value() * 1e3, one.measured.value() * 1e3, 100 * one.error(),
                    noise_text(one), one.is_inside() ? "yes" : "no", one.predicted.basis);
  return html + "</table>\n";
}

}  // namespace

std::string validation_summary(const FileResult& result) {
  std::string text =
      summary_line("test", result.summary(false)) + summary_line("fit", result.summary(true));
  for (const FittedFigure& figure : result.fitted) text += "fitted: " + fitted_text(figure) + "\n";
  if (result.orders > 0)
    text += fmt::format("order by time right: {} of {}\n", result.orders_right, result.orders);
  if (result.peers)
    text += fmt::format("{}: {:.1f} %\n", result.peers->text, 100 * result.peers->mean_error);
  return text + verdict(result) + "\n";
}

std::string validation_table(const FileResult& result) {
  std::string text = fmt::format("{}: {}\n{}\n\n", result.suite, result.name, result.machine);
  if (!result.skipped.empty()) return text + verdict(result) + "\n";
  std::size_t width = 4;
  for (const CaseResult& one : result.cases) width = std::max(width, one.id.size());
  text += fmt::format("{:<{}}  {:<5}  {:>12}  {:>12}  {:>8}  {:>6}  {:<4}  {}\n", "case", width,
                      "split", "predicted ms", "measured ms", "error", "noise", "band", "basis");
  for (const CaseResult& one : result.cases)
    text +=
        fmt::format("{:<{}}  {:<5}  {:>12.3f}  {:>12.3f}  {:>+6.1f} %  {:>6}  {:<4}  {}\n", one.id,
                    width, one.is_fitted ? "fit" : "test", one.predicted.time.value() * 1e3,
                    one.measured.value() * 1e3, 100 * one.error(), noise_text(one),
                    one.is_inside() ? "in" : "out", one.predicted.basis);
  return text + "\n" + validation_summary(result);
}

std::string validation_totals(const std::vector<FileResult>& results) {
  std::string text =
      fmt::format("{:<14}  {:>5}  {:>5}  {:>7}  {:>7}  {:>7}  {:>7}  {:>7}  {:>7}\n", "suite",
                  "files", "cases", "median", "mean", "p90", "worst", "bias", "in band");
  for (const PooledErrors& one : pool(results))
    if (one.test.cases > 0)
      text += fmt::format(
          "{:<14}  {:>5}  {:>5}  {:>5.1f} %  {:>5.1f} %  {:>5.1f} %  {:>5.1f} %  {:>+5.1f} %  "
          "{:>5.0f} "
          "%\n",
          pool_name(one), one.files, one.test.cases, 100 * one.test.median_abs,
          100 * one.test.mean_abs, 100 * one.test.p90_abs, 100 * one.test.max_abs,
          100 * one.test.bias, 100 * one.test.inside);
  const std::vector<const FileResult*> compared = with_peers(results);
  if (compared.empty()) return text;
  text += "\nmean error    peers\n";
  for (const FileResult* result : compared)
    text += fmt::format("{:>8.1f} %  {:>5.1f} %  {}: {} ({})\n",
                        100 * result->summary(false).mean_abs, 100 * result->peers->mean_error,
                        result->suite, result->name, result->peers->text);
  return text;
}

std::string validate_html(const std::vector<FileResult>& results) {
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>stepcast "
      "validate</title>\n"
      "<style>body{font:15px sans-serif;margin:2em;max-width:70em}table{border-collapse:collapse}"
      "td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}"
      "td:first-child,th:first-child{text-align:left}</style>\n<h1>Predicted and measured "
      "times</h1>\n"
      "<table><tr><th>suite<th>cases<th>median<th>mean<th>p90<th>worst<th>bias<th>in the "
      "band<th>bar</tr>\n";
  for (const FileResult& result : results) {
    const ErrorSummary test = result.summary(false);
    html += fmt::format(
        "<tr><td>{}: {}<td>{}<td>{:.1f} %<td>{:.1f} %<td>{:.1f} %<td>{:.1f} %<td>{:+.1f} "
        "%<td>{:.0f} "
        "%<td>{}</tr>\n",
        escaped(result.suite), escaped(result.name), test.cases, 100 * test.median_abs,
        100 * test.mean_abs, 100 * test.p90_abs, 100 * test.max_abs, 100 * test.bias,
        100 * test.inside, escaped(verdict(result)));
  }
  html += "</table>\n" + totals_html(results);
  for (const FileResult& result : results) html += section(result);
  return html + "</html>\n";
}

}  // namespace stepcast
