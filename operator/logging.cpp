#include "operator/logging.h"

#include <memory>

#include <spdlog/formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <nlohmann/json.hpp>

#include "operator/base/clock.h"

namespace trainyard {
namespace {

std::string LevelName(spdlog::level::level_enum level) {
  const spdlog::string_view_t name = spdlog::level::to_string_view(level);
  return {name.data(), name.size()};
}

class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& msg, spdlog::memory_buf_t& out) override {
    const auto time = std::chrono::time_point_cast<Milliseconds>(msg.time);
    const nlohmann::ordered_json line = {{"time", FormatTime(time, true)},
                                         {"level", LevelName(msg.level)},
                                         {"message", std::string(msg.payload.data(), msg.payload.size())}};
    // What others wrote may not be UTF-8; a log line must never throw.
    const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

}  // namespace

Status SetUpLogging(const std::string& level, const std::string& format) {
  const auto parsed = spdlog::level::from_str(level == "warn" ? "warning" : level);
  if (parsed == spdlog::level::off) {
    return Fail(ErrorCode::kInvalidArgument,
                "--log-level: \"" + level + "\" is not known; known are trace, debug, info, warn, error");
  }
  if (format != "text" && format != "json") {
    return Fail(ErrorCode::kInvalidArgument, "--log-format: \"" + format + "\" is not known; known are text, json");
  }
  auto logger = spdlog::stderr_logger_mt("trainyard-operator");
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  if (format == "json") {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %v");
  }
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace trainyard
