#include "trainer/loop/export.h"

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/loop/exchange.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {
namespace {

using checkpoint::FileSystem;

// Says whose the directory is; transformers passes over it.
constexpr const char* kMark = "trainyard_export.json";
constexpr int64_t kMostMarkBytes = 1 << 16;

const config::VolumePath& Place(const Session& s) { return *s.job.checkpoint->export_on_success; }

// Where it is written before it has its name.
std::string Partial(const Session& s) { return Place(s).Resolve(s.env.volume_root) + ".partial-" + s.env.uid; }

// The step of this job's export at the place; nothing: the place is free. Failure: it is somebody else's.
Outcome<std::optional<int64_t>> Found(const Session& s, FileSystem& fs) {
  const std::string path = Place(s).Resolve(s.env.volume_root);
  const auto names = fs.ListDirectory(path);
  if (!names && names.error().code == ErrorCode::kNotFound) return std::optional<int64_t>();
  if (!names) return Fails(FirstWriteFailure(names.error(), "checkpoint.exportOnSuccess"));
  if (names->empty()) return std::optional<int64_t>();
  const auto text = checkpoint::ReadWholeFile(fs, path + "/" + kMark, kMostMarkBytes);
  const nlohmann::json mark = text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
  if (mark.is_object() && mark.value("uid", "") == s.env.uid && mark.value("step", nlohmann::json()).is_number()) {
    return std::optional<int64_t>(mark["step"].get<int64_t>());
  }
  return Fails(contract::kExitConfiguration, "checkpoint.exportOnSuccess: " + path + " is not empty (" +
                                                 names->front() + ") and not of this job: name a new directory");
}

Status Write(const Session& s, checkpoint::Reader& reader, bool replace, FileSystem& fs) {
  const std::string place = Place(s).Resolve(s.env.volume_root), partial = Partial(s);
  if (Status removed = checkpoint::RemoveTree(fs, partial); !removed) return removed;
  checkpoint::HuggingFaceOptions options;
  options.carried_root = s.CheckpointRoot();
  const auto exported = s.adapter ? checkpoint::ExportPeft(reader, partial, "", fs)
                                  : checkpoint::ExportHuggingFace(reader, partial, options, fs);
  if (!exported) return Fail(exported.error());
  const nlohmann::ordered_json mark = {{"job", s.job.identity.namespace_name + "/" + s.job.identity.name},
                                       {"uid", s.env.uid},
                                       {"step", s.progress.step}};
  if (Status marked = checkpoint::WriteWholeFile(fs, partial + "/" + kMark, mark.dump(2) + "\n"); !marked) {
    return marked;
  }
  if (Status synced = fs.SyncDirectory(partial); !synced) return synced;
  if (replace) {
    if (Status removed = checkpoint::RemoveTree(fs, place); !removed) return removed;
  }
  if (Status placed = fs.Rename(partial, place); !placed) return placed;
  if (Status synced = fs.SyncDirectory(place.substr(0, place.rfind('/'))); !synced) return synced;
  observe::Info(c10::str("exported step ", s.progress.step, " to ", place, ": ", exported->tensors, " tensors, ",
                         exported->bytes, " bytes"));
  return {};
}

Outcome<void> Export(const Session& s, FileSystem& fs) {
  const auto found = Found(s, fs);
  if (!found) return Fails(found.error());
  if (*found == s.progress.step) return {};
  const std::string path = s.CheckpointRoot() + "/" + checkpoint::StepDirectory(s.progress.step);
  auto reader = checkpoint::Reader::Open(path);
  if (!reader) return Fails(ReadFailure(reader.error(), "checkpoint.exportOnSuccess"));
  const Status written = Write(s, *reader, found->has_value(), fs);
  if (!written && written.error().code == ErrorCode::kDataLoss) {
    return Fails(ReadFailure(written.error(), "checkpoint.exportOnSuccess"));
  }
  if (!written) return Fails(contract::kExitStorage, "checkpoint.exportOnSuccess: " + written.error().message);
  return {};
}

}  // namespace

Outcome<void> CheckExportPlace(const Session& s) {
  if (!s.job.checkpoint || !s.job.checkpoint->export_on_success) return {};
  FileSystem& fs = checkpoint::PosixFileSystem();
  const auto found = Found(s, fs);
  if (!found) return Fails(found.error());
  // What may not be written there is better told now than after the last step.
  const std::string partial = Partial(s);
  Status room = checkpoint::EnsureParents(fs, partial);
  if (room) room = checkpoint::EnsureDirectory(fs, partial);
  if (room) room = checkpoint::RemoveTree(fs, partial);
  if (!room) return Fails(FirstWriteFailure(room.error(), "checkpoint.exportOnSuccess"));
  return {};
}

Outcome<void> ExportOnSuccess(Session& s) {
  if (!s.job.checkpoint || !s.job.checkpoint->export_on_success) return {};
  if (s.env.rank == 0) {
    if (auto exported = Export(s, checkpoint::PosixFileSystem()); !exported) return exported;
  }
  BroadcastText(*s.world, "done", "export", kStorageDeadline);
  return {};
}

}  // namespace trainyard::loop
