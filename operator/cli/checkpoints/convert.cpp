// RunCheckpointsExport, RunCheckpointsImport and RunCheckpointsMerge of commands.h.
#include <ostream>

#include <nlohmann/json.hpp>

#include "operator/base/clock.h"
#include "operator/base/quantity.h"
#include "operator/cli/checkpoints/commands.h"
#include "operator/cli/checkpoints/locate.h"
#include "operator/cli/exit_codes.h"
#include "trainer/checkpoint/adapter_source.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/import.h"
#include "trainer/checkpoint/merge.h"

namespace trainyard::cli {
namespace {

using checkpoint::ExportInfo;

// "5GB" as transformers writes it, or a quantity of Kubernetes.
Result<int64_t> ParseSize(std::string text) {
  if (text.size() > 1 && text.back() == 'B') text.pop_back();
  if (!text.empty() && text.back() == 'K') text.back() = 'k';
  Result<int64_t> size = ParseQuantity(text);
  if (!size) return Fail(size.error().Wrap("--max-shard-size"));
  if (*size < 1) return Fail(ErrorCode::kInvalidArgument, "--max-shard-size: at least one byte");
  return size;
}

// The directory of the checkpoints that a checkpoint is one of.
std::string ParentOf(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Result<ExportInfo> Export(const std::string& path, const ExportFlags& flags) {
  if (flags.to == "dcp") return checkpoint::ExportDcp(path, flags.directory);
  checkpoint::HuggingFaceOptions options;
  if (!flags.max_shard_size.empty() && flags.to == "peft") {
    return Fail(ErrorCode::kInvalidArgument, "--max-shard-size: an adapter is one file");
  }
  if (!flags.max_shard_size.empty()) {
    const Result<int64_t> most = ParseSize(flags.max_shard_size);
    if (!most) return Fail(most.error());
    options.shard_bytes = *most;
  }
  if (flags.dtype == "float32") options.dtype = "F32";
  if (flags.dtype == "bfloat16") options.dtype = "BF16";
  if (flags.dtype == "float16") options.dtype = "F16";
  options.carried_root = ParentOf(path);
  Result<checkpoint::Reader> reader = checkpoint::Reader::Open(path);
  if (!reader) return Fail(reader.error());
  if (flags.to == "peft") return checkpoint::ExportPeft(*reader, flags.directory, options.dtype);
  return checkpoint::ExportHuggingFace(*reader, flags.directory, options);
}

}  // namespace

int RunCheckpointsExport(const CheckpointRef& ref, const ExportFlags& flags, bool json, std::ostream& out,
                         std::ostream& err) {
  const Result<std::string> path = Locate(ref, err);
  if (!path) return Complain(path.error(), err);
  const Result<ExportInfo> info = Export(*path, flags);
  if (!info) return Complain(info.error(), err);
  if (json) {
    const nlohmann::ordered_json answer = {{"checkpoint", *path},          {"to", flags.to},
                                           {"directory", flags.directory}, {"tensors", info->tensors},
                                           {"bytes", info->bytes},         {"files", info->files}};
    out << answer.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    out << BaseName(*path) << ": " << info->tensors << " tensors, " << FormatBytes(static_cast<double>(info->bytes))
        << " written to " << flags.directory << "\n";
  }
  return kExitOk;
}

int RunCheckpointsImport(const ImportFlags& flags, const std::string& root, bool json, std::ostream& out,
                         std::ostream& err) {
  checkpoint::ImportOptions options;
  options.source = flags.source;
  options.root = root;
  options.config = flags.config;
  options.base = flags.base;
  options.time = RealClock().Now();
  const Result<checkpoint::ImportInfo> info = checkpoint::ImportWeights(options);
  if (!info) return Complain(info.error(), err);
  if (json) {
    const nlohmann::ordered_json answer = {{"path", info->path},
                                           {"tensors", info->tensors},
                                           {"ignored", info->ignored},
                                           {"bytes", info->bytes},
                                           {"model", checkpoint::ModelIdentity(info->model)}};
    out << answer.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return kExitOk;
  }
  out << info->path << ": " << info->tensors << " tensors, " << FormatBytes(static_cast<double>(info->bytes));
  if (info->ignored > 0) out << "; " << info->ignored << " others of the source are no weights of the model";
  out << "\n";
  return kExitOk;
}

int RunCheckpointsMerge(const CheckpointRef& adapter, const MergeFlags& flags, bool json, std::ostream& out,
                        std::ostream& err) {
  const bool peft = checkpoint::IsPeft(adapter.path);
  if (peft && adapter.step) {
    return Complain({ErrorCode::kInvalidArgument, adapter.path + " has no steps: leave --step out"}, err);
  }
  const Result<std::string> path = peft ? adapter.path : Locate(adapter, err);
  if (!path) return Complain(path.error(), err);
  const Result<checkpoint::MergeInfo> info = checkpoint::MergeAdapter({flags.base, *path, flags.directory});
  if (!info) return Complain(info.error(), err);
  if (json) {
    const nlohmann::ordered_json answer = {
        {"base", flags.base},           {"adapter", info->adapter_path}, {"directory", flags.directory},
        {"matrices", info->matrices},   {"baseKnown", info->base_known}, {"tensors", info->written.tensors},
        {"bytes", info->written.bytes}, {"files", info->written.files}};
    out << answer.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return kExitOk;
  }
  out << flags.directory << ": " << info->written.tensors << " tensors, "
      << FormatBytes(static_cast<double>(info->written.bytes)) << ", an adapter of rank " << info->adapter.rank
      << " added to " << info->matrices << " of them\n";
  if (!info->base_known) out << "the adapter does not say which base it was trained on: nothing was compared\n";
  return kExitOk;
}

}  // namespace trainyard::cli
