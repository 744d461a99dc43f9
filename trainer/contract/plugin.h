// How the trainer finds its plug-ins: shared libraries for GPUs that lie beside the program (or in ../lib of it), so
// that one program serves machines with and without them. TRAINYARD_PLUGIN_DIR names another place. Thread-safety: free
// functions.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace trainyard::contract {

inline constexpr const char* kEnvPluginDir = "TRAINYARD_PLUGIN_DIR";
inline constexpr const char* kCudaPlugin = "libtrainyard_cuda.so";
inline constexpr const char* kNcclPlugin = "libtrainyard_nccl.so";

// The symbol `entry` of the plug-in `file`, which stays loaded; null with `error` in one line.
inline void* PluginEntry(const char* file, const char* entry, std::string& error) {
  std::string where;
  if (const char* set = std::getenv(kEnvPluginDir); set != nullptr && *set != '\0') {
    where = std::string(set) + "/" + file;
  } else {
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self);
    const std::string program(self, n > 0 ? static_cast<size_t>(n) : 0);
    const std::string directory = program.substr(0, program.rfind('/'));
    for (const char* place : {"/", "/../lib/", "/../bin/"}) {
      where = directory + place + file;
      if (access(where.c_str(), R_OK) == 0) break;
      where = directory + "/" + file;
    }
  }
  if (access(where.c_str(), R_OK) != 0) {
    error = std::string(file) + " is not there (looked beside the program): this build serves the CPU alone";
    return nullptr;
  }
  void* library = dlopen(where.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library == nullptr ? nullptr : dlsym(library, entry);
  if (symbol == nullptr) {
    const char* why = dlerror();
    error = why != nullptr ? why : where + " has no " + entry;
  }
  return symbol;
}

}  // namespace trainyard::contract
