// `trainyard checkpoints list|verify DIRECTORY`: what is in a checkpoint directory, and whether every byte of it is
// right. Works on files alone: no cluster, no LibTorch. Thread-safety: call from one thread.
#pragma once

#include <iosfwd>
#include <string>

#include <CLI/CLI.hpp>

namespace trainyard::cli {

// One row per checkpoint of `root`, newest first: STEP, SIZE, TIME, RANKS, STATE; or a JSON array. Looks at manifests,
// sizes and hash files and reads no tensor data. Returns an exit code: kExitNotFound without `root`.
int RunCheckpointsList(const std::string& root, bool json, std::ostream& out, std::ostream& err);

// Reads every byte of one checkpoint (a directory with a manifest.json, or named like a step) or of all checkpoints of
// a root, and writes a line for each that is right and one per problem of each that is not, naming file, tensor and
// rank. Returns kExitOk when all are right, kExitJobFailed when one is not, kExitNotFound when there is none.
int RunCheckpointsVerify(const std::string& path, std::ostream& out, std::ostream& err);

// Registers both; when one runs it sets `exit_code`. The references must outlive `app`.
void AddCheckpointsCommand(CLI::App& app, int& exit_code, std::ostream& out, std::ostream& err);

}  // namespace trainyard::cli
