// RunCheckpointsShow of commands.h.
#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/clock.h"
#include "operator/base/quantity.h"
#include "operator/cli/checkpoints/commands.h"
#include "operator/cli/checkpoints/locate.h"
#include "operator/cli/columns.h"
#include "operator/cli/exit_codes.h"
#include "trainer/checkpoint/manifest_file.h"

namespace trainyard::cli {
namespace {

using checkpoint::Chunk;
using checkpoint::Manifest;
using checkpoint::ShardFile;
using checkpoint::TensorInfo;
using Rows = std::vector<std::vector<std::string>>;

struct Place {
  const ShardFile* file = nullptr;
  const Chunk* chunk = nullptr;
};

// Where each tensor lies; index as in Manifest::tensors.
std::vector<std::vector<Place>> PlacesOf(const Manifest& manifest) {
  std::vector<std::vector<Place>> places(manifest.tensors.size());
  for (const ShardFile& file : manifest.files) {
    for (const Chunk& chunk : file.chunks) places[static_cast<size_t>(chunk.tensor)].push_back({&file, &chunk});
  }
  return places;
}

std::string TimeOf(const Manifest& manifest) {
  return FormatTime(TimePoint(std::chrono::milliseconds(manifest.created_ms)));
}

std::string ShapeWords(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d) text += (d > 0 ? ", " : "") + std::to_string(shape[d]);
  return text + "]";
}

// "4 tensors, 1.2M elements, F32, 4.8 MB".
std::string GroupWords(const Manifest& manifest, std::string_view group) {
  int64_t tensors = 0, elements = 0, bytes = 0;
  std::set<std::string> dtypes;
  for (const TensorInfo& tensor : manifest.tensors) {
    if (tensor.group != group) continue;
    const int64_t n = *checkpoint::ElementCount(tensor.global_shape);
    ++tensors;
    elements += n;
    bytes += n * *checkpoint::DtypeBytes(tensor.dtype);
    dtypes.insert(tensor.dtype);
  }
  if (tensors == 0) return "none";
  std::string text = std::to_string(tensors) + " tensors, " + FormatCount(elements) + " elements";
  for (const std::string& dtype : dtypes) text += ", " + dtype;
  return text + ", " + FormatBytes(static_cast<double>(bytes));
}

void WriteText(const std::string& path, const Manifest& m, const nlohmann::json& state, bool boxes, std::ostream& out) {
  const auto plural = [](int64_t n, const char* what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); };
  Rows head = {{"checkpoint", path},
               {"step", std::to_string(m.step)},
               {"saved", TimeOf(m) + " by job " + m.fence.job_uid + ", attempt " + std::to_string(m.fence.attempt) +
                             ", round " + std::to_string(m.fence.round)},
               {"written by", plural(m.world, "rank") + ", in " + plural(static_cast<int64_t>(m.files.size()), "file")},
               {"size", FormatBytes(static_cast<double>(m.bytes()))},
               {"model", GroupWords(m, checkpoint::kModelGroup)},
               {"optimizer", GroupWords(m, checkpoint::kOptimGroup)}};
  out << Columns(head) << "\ntrain state\n";
  Rows values;
  for (const auto& [key, value] : state.items()) values.push_back({"  " + key, value.dump()});
  out << Columns(values) << "\n";

  const std::vector<std::vector<Place>> places = PlacesOf(m);
  Rows rows = boxes ? Rows{{"TENSOR", "DTYPE", "SHAPE", "BOX", "RANK", "BYTES", "FILE"}}
                    : Rows{{"TENSOR", "GROUP", "DTYPE", "SHAPE", "BOXES"}};
  for (size_t i = 0; i < m.tensors.size(); ++i) {
    const TensorInfo& t = m.tensors[i];
    if (!boxes) {
      rows.push_back({t.name, t.group, t.dtype, ShapeWords(t.global_shape), std::to_string(places[i].size())});
      continue;
    }
    for (const Place& place : places[i]) {
      rows.push_back({t.name, t.dtype, ShapeWords(t.global_shape), place.chunk->box.ToString(),
                      std::to_string(place.file->rank),
                      std::to_string(place.chunk->begin) + "-" + std::to_string(place.chunk->end), place.file->path});
    }
  }
  out << Columns(rows);
}

nlohmann::ordered_json ToJson(const std::string& path, const Manifest& m, const nlohmann::json& state, bool boxes) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array(), files = nlohmann::ordered_json::array();
  const std::vector<std::vector<Place>> places = PlacesOf(m);
  for (size_t i = 0; i < m.tensors.size(); ++i) {
    const TensorInfo& t = m.tensors[i];
    nlohmann::ordered_json row = {{"name", t.name}, {"group", t.group}, {"dtype", t.dtype}, {"shape", t.global_shape}};
    if (boxes) {
      row["boxes"] = nlohmann::ordered_json::array();
      for (const Place& place : places[i]) {
        row["boxes"].push_back({{"offset", place.chunk->box.offset},
                                {"shape", place.chunk->box.shape},
                                {"rank", place.file->rank},
                                {"file", place.file->path},
                                {"begin", place.chunk->begin},
                                {"end", place.chunk->end}});
      }
    }
    tensors.push_back(std::move(row));
  }
  for (const ShardFile& file : m.files) {
    files.push_back({{"path", file.path}, {"rank", file.rank}, {"bytes", file.bytes}});
  }
  return {{"path", path},
          {"step", m.step},
          {"time", TimeOf(m)},
          {"jobUid", m.fence.job_uid},
          {"attempt", m.fence.attempt},
          {"round", m.fence.round},
          {"world", m.world},
          {"bytes", m.bytes()},
          {"trainState", state},
          {"files", std::move(files)},
          {"tensors", std::move(tensors)}};
}

}  // namespace

int RunCheckpointsShow(const CheckpointRef& ref, bool boxes, bool json, std::ostream& out, std::ostream& err) {
  const Result<std::string> path = Locate(ref, err);
  if (!path) return Complain(path.error(), err);
  checkpoint::FileSystem& fs = checkpoint::PosixFileSystem();
  int64_t ignored = 0;
  const Result<Manifest> manifest = checkpoint::LoadManifest(*path, fs, ignored);
  if (!manifest) return Complain(manifest.error(), err);
  const Result<nlohmann::json> state = checkpoint::LoadTrainState(*path, *manifest, fs, ignored);
  if (!state) return Complain(state.error(), err);
  if (json) {
    out << ToJson(*path, *manifest, *state, boxes).dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
        << "\n";
  } else {
    WriteText(*path, *manifest, *state, boxes, out);
  }
  return kExitOk;
}

}  // namespace trainyard::cli
