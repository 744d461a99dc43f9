// `trainyard topology FILE|-`: what the output of nvidia-smi topo -m means for a job on that machine. Needs no cluster.
// Thread-safety: call from one thread.
#pragma once

#include <iosfwd>
#include <string>

#include <CLI/CLI.hpp>

#include "operator/placement/topo_matrix.h"

namespace trainyard::cli {

// Registers the subcommand; when it runs it sets `exit_code`: kExitOk, kExitJobFailed when links are missing,
// kExitBadInput for what is no matrix or no name of a node. The references must outlive `app`.
void AddTopologyCommand(CLI::App& app, int& exit_code, std::ostream& out, std::ostream& err);

// What it prints, line by line.
std::string TopologyText(const placement::TopoMatrix& matrix, const placement::TopoFacts& facts);

}  // namespace trainyard::cli
