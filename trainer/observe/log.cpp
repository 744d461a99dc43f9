#include "trainer/observe/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace trainyard::observe {

void OpenLog(bool verbose) {
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  spdlog::set_pattern("%H:%M:%S.%e %l %v");
  spdlog::set_level(verbose ? spdlog::level::info : spdlog::level::warn);
}

void Info(const std::string& line) { spdlog::info("{}", line); }
void Warn(const std::string& line) { spdlog::warn("{}", line); }

}  // namespace trainyard::observe
