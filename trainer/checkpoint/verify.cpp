#include "trainer/checkpoint/verify.h"

#include <algorithm>
#include <set>

#include "trainer/checkpoint/manifest_file.h"
#include "trainer/checkpoint/shard_reader.h"
#include "trainer/checkpoint/use_lock.h"

namespace trainyard::checkpoint {
namespace {

// Message without the file's name, which the problem has in a field of its own.
std::string Relative(const std::string& message, const std::string& file) {
  return message.starts_with(file + ": ") ? message.substr(file.size() + 2) : message;
}

class Verifier {
 public:
  Verifier(const std::string& path, Check check, FileSystem& fs, const std::atomic<bool>* stop)
      : path_(path), check_(check), fs_(fs), stop_(stop) {}

  Result<VerifyReport> Run() {
    Result<Manifest> manifest = LoadManifest(path_, fs_, report_.bytes_read);
    if (!manifest && manifest.error().code != ErrorCode::kDataLoss) return Fail(manifest.error());
    if (!manifest) {
      Add(std::string(kManifestFile), "", -1,
          Relative(manifest.error().message, path_ + "/" + std::string(kManifestFile)));
      return std::move(report_);
    }
    const Manifest& m = *manifest;
    report_.step = m.step;
    report_.bytes = m.bytes() + report_.bytes_read;
    report_.tensors = static_cast<int64_t>(m.tensors.size());
    report_.files = static_cast<int64_t>(m.files.size());
    report_.created_ms = m.created_ms;
    report_.world = m.world;
    report_.fence = m.fence;
    const std::optional<int64_t> named = ParseStepDirectory(path_.substr(path_.find_last_of('/') + 1));
    if (named && *named != m.step) {
      Add(std::string(kManifestFile), "", -1, "it is of step " + std::to_string(m.step) + ", unlike its directory");
    }
    for (const Untiled& untiled : FindUntiled(m)) Add(std::string(kManifestFile), untiled.tensor, -1, untiled.reason);
    if (Result<nlohmann::json> state = LoadTrainState(path_, m, fs_, report_.bytes_read); !state) {
      if (state.error().code != ErrorCode::kDataLoss) return Fail(state.error());
      Add(std::string(kTrainStateFile), "", -1,
          Relative(state.error().message, path_ + "/" + std::string(kTrainStateFile)));
    }
    for (const ShardFile& file : m.files) {
      if (Status s = CheckFile(m, file); !s) return Fail(s.error().Wrap(path_ + "/" + file.path));
    }
    if (check_ == Check::kEverything) FindStrangers(m);
    return std::move(report_);
  }

 private:
  void Add(const std::string& file, const std::string& tensor, int rank, std::string message) {
    report_.problems.push_back({file, tensor, rank, std::move(message)});
  }

  // Loss of data is a problem of the checkpoint; any other error (permissions, a vanished mount) says nothing about it.
  Status CheckFile(const Manifest& m, const ShardFile& file) {
    const auto tensor_of = [&](int64_t chunk) {
      return m.tensors[static_cast<size_t>(file.chunks[static_cast<size_t>(chunk)].tensor)].name;
    };
    const auto note = [&](const std::string& tensor, const Status& check) -> Status {
      if (check || check.error().code != ErrorCode::kDataLoss) return check;
      Add(file.path, tensor, file.rank, check.error().message);
      return {};
    };
    const std::string first = file.chunks.empty() ? "" : tensor_of(0);
    Result<ShardReader> reader = ShardReader::Open(path_, file, fs_, report_.bytes_read);
    if (!reader) return note(first, Fail(reader.error()));
    if (check_ == Check::kStructure) return {};
    reader->DropCache();
    if (Status s = note(first, reader->CheckHeader()); !s) return s;
    std::vector<BlockRange> all;
    for (size_t c = 0; c < file.chunks.size(); ++c) all.push_back(reader->All(static_cast<int64_t>(c)));
    int64_t bad_chunk = -1;  // one line per tensor is enough
    return reader->Read(all, [&](int64_t chunk, int64_t, std::string_view, const Status& check) -> Status {
      if (stop_ != nullptr && *stop_) return Fail(ErrorCode::kUnavailable, "stopped before its end");
      if (check || chunk == bad_chunk) return {};
      bad_chunk = chunk;
      return note(tensor_of(chunk), check);
    });
  }

  // PyTorch's reader takes every *.safetensors file of a directory, so one that does not belong changes what it sees.
  void FindStrangers(const Manifest& m) {
    std::set<std::string> known;
    for (const ShardFile& file : m.files) known.insert(file.path);
    for (std::string_view group : {kModelGroup, kOptimGroup}) {
      Result<std::vector<std::string>> names = fs_.ListDirectory(path_ + "/" + std::string(group));
      if (!names && names.error().code == ErrorCode::kNotFound)
        continue;  // its files are named as missing, if it had any
      if (!names) {
        Add(std::string(group), "", -1, names.error().message);
        continue;
      }
      for (const std::string& name : *names) {
        const std::string file = std::string(group) + "/" + name;
        if (name.ends_with(".safetensors") && !known.contains(file)) Add(file, "", -1, "the file does not belong here");
      }
    }
  }

  const std::string path_;
  const Check check_;
  FileSystem& fs_;
  const std::atomic<bool>* const stop_;
  VerifyReport report_;
};

}  // namespace

std::string Problem::ToString() const {
  std::string text = file + ": ";
  if (!tensor.empty()) text += "tensor " + tensor + (rank >= 0 ? " of rank " + std::to_string(rank) : "") + ": ";
  return text + message;
}

Result<VerifyReport> Verify(const std::string& path, Check check, FileSystem& fs, const std::atomic<bool>* stop) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.ends_with('/')) trimmed.pop_back();
  Result<UseLock> in_use = UseLock::ToRead(trimmed);  // else what is removed meanwhile would look damaged
  if (!in_use) return Fail(in_use.error());
  return Verifier(trimmed, check, fs, stop).Run();
}

}  // namespace trainyard::checkpoint
