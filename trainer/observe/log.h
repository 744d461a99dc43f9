// Lines for people, on standard error. The one door to spdlog in the trainer: its headers do not go together with the
// fmt headers that LibTorch brings. Thread-safety: any thread.
#pragma once

#include <string>

namespace trainyard::observe {

// Time, level and text; `verbose`: information too, else warnings only.
void OpenLog(bool verbose);
void Info(const std::string& line);
void Warn(const std::string& line);

}  // namespace trainyard::observe
