// One rank of our engine for the comparison with PyTorch; bench.py starts and drives it.
//   engine_rank SETTING            SETTING: one JSON object, see side.h. Commands come on standard input, one a line,
//                                  each answered by one JSON line on standard output:
//     steps N     {"seconds": of N steps between two barriers, "losses": [N]}
//     reset       {}: the peaks start again
//     memory      {"tensorBytes": peak, "residentBytes": peak, "payload": so far, "payloadOfStep": by theory}
//   engine_rank SETTING --export FILE   initial weights and tokens as safetensors, for the other side
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "tests/bench/engine/payload.h"
#include "tests/bench/engine/side.h"

namespace trainyard::bench {
namespace {

// "VmHWM" of /proc/self/status in bytes.
int64_t PeakResident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  throw std::runtime_error("no VmHWM in /proc/self/status");
}

void ResetPeaks(Side& side) {
  side.device().ResetPeak();
  std::ofstream("/proc/self/clear_refs") << "5";  // proc(5): resets the peak resident set
}

nlohmann::json Steps(Side& side, int count) {
  std::vector<double> losses;
  side.Barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) losses.push_back(side.Step());
  side.Barrier();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {{"seconds", seconds}, {"losses", losses}};
}

nlohmann::json Memory(Side& side, const Setting& setting) {
  return {{"tensorBytes", side.device().TotalStats().peak_bytes},
          {"residentBytes", PeakResident()},
          {"payload", side.payload_bytes()},
          {"payloadOfStep", PayloadOfStep(setting)}};
}

int Serve(const Setting& setting) {
  Side side(setting);
  std::cout << "{}" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    int count = 0;
    words >> command >> count;
    if (command == "steps") {
      std::cout << Steps(side, count) << std::endl;
    } else if (command == "reset") {
      ResetPeaks(side);
      std::cout << "{}" << std::endl;
    } else if (command == "memory") {
      std::cout << Memory(side, setting) << std::endl;
    } else {
      throw std::runtime_error("unknown command: " + line);
    }
  }
  return 0;
}

int Main(int argc, char** argv) {
  try {
    if (argc < 2) throw std::runtime_error("usage: engine_rank SETTING [--export FILE]");
    at::set_num_threads(1);
    const Setting setting = ReadSetting(nlohmann::json::parse(argv[1]));
    if (argc == 4 && std::strcmp(argv[2], "--export") == 0) {
      Export(setting, argv[3]);
      return 0;
    }
    return Serve(setting);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "engine_rank: %s\n", e.what());
    return 1;
  }
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) { return trainyard::bench::Main(argc, argv); }
