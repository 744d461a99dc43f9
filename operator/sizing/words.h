// Figures as the sentences of a plan write them. Private to the room. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::sizing {

std::string Gib(int64_t bytes);                               // "61.2 GiB"
std::string Percent(double share);                            // 0.853 -> "85 %"
std::string Times(double factor);                             // 4.618 -> "4.6x"
std::string HoursText(double hours);                          // "55.6 h", "3.20 h"
std::string Grouped(double amount);                           // 28333.3 -> "28,333"; below 100 with two decimals
std::string Sized(int64_t gpus, const std::string& product);  // "8 x H100-SXM"
std::string Fits(int64_t count);                              // "1 fits", "2 fit"

}  // namespace trainyard::sizing
