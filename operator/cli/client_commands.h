// `trainyard get [NAME]` and `trainyard resize NAME --gpus N`, over the API of a running `trainyard run`.
// Thread-safety: call from one thread.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "operator/base/clock.h"
#include "operator/http/transport.h"

namespace trainyard::cli {

// What the client commands need from outside; tests hand in their own.
struct ClientContext {
  std::ostream& out;
  std::ostream& err;
  const Clock& clock;
  std::function<std::unique_ptr<http::Transport>()> transport;
  std::function<void(Milliseconds)> pause;  // between looks at a job that is waited for
};

struct GetFlags {
  std::string name;
  std::string state_dir = ".trainyard";
  std::string output = "table";  // table, wide, json, yaml
};

struct ResizeFlags {
  std::string name;
  std::string state_dir = ".trainyard";
  int64_t gpus = 0;
  bool wait = false;
  bool verify = false;            // waits, too
  int64_t timeout_seconds = 600;  // of --wait
};

// Each returns the exit code; errors are one line on `err`.
int RunGet(const GetFlags& flags, const ClientContext& context);
int RunResize(const ResizeFlags& flags, const ClientContext& context);

// Registers both subcommands. The references must outlive `app`.
void AddClientCommands(CLI::App& app, int& exit_code, const ClientContext& context);

}  // namespace trainyard::cli
