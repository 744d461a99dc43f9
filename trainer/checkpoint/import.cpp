#include "trainer/checkpoint/import.h"

#include <functional>
#include <optional>

#include "trainer/checkpoint/adapter_source.h"
#include "trainer/checkpoint/base_hash.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/foreign_model.h"
#include "trainer/checkpoint/peft.h"
#include "trainer/checkpoint/source_files.h"
#include "trainer/checkpoint/writer.h"

namespace trainyard::checkpoint {
namespace {

// Comes before any job of the directory: a job that takes it over is newer.
const Fence kImporter{"import", 0, 0};

Result<ModelDescription> ReadConfig(const ImportOptions& options, FileSystem& fs) {
  const std::string path = options.config.empty() ? options.source + "/config.json" : options.config;
  const Result<ModelDescription> model = ReadConfigJson(path, fs);
  if (model || model.error().code != ErrorCode::kNotFound) return model;
  return Fail(ErrorCode::kNotFound, model.error().message + ": --config names the config.json of the model");
}

// What is to become a checkpoint.
struct Import {
  const ModelDescription& model;
  std::vector<TensorInfo> tensors;
  std::function<Status(const std::vector<TensorSlice>&)> read;
  nlohmann::ordered_json more = nlohmann::ordered_json::object();  // members of the train state, besides those of all
  std::function<Status()> keep;                                    // carries along what is no weight
};

class Importer {
 public:
  Importer(const ImportOptions& options, const Import& import, FileSystem& fs)
      : options_(options), import_(import), fs_(fs) {}

  Result<ImportInfo> Run() {
    if (Status s = CheckUnused(); !s) return Fail(s.error());
    Result<ImportInfo> info = Write();
    if (info) return info;
    // What is left of it would be in the way of the next try.
    for (const std::string_view name : {kStagingDirectory, kSourceDirectory}) {
      if (Status s = RemoveTree(fs_, options_.root + "/" + std::string(name)); !s) {
        return Fail(info.error().Wrap(s.error().message));
      }
    }
    return info;
  }

 private:
  Result<ImportInfo> Write() {
    if (const Result<TakeOverInfo> taken = TakeOver(options_.root, kImporter, fs_); !taken) return Fail(taken.error());
    // Each "rank" writes some whole tensors: that bounds the memory.
    const std::vector<std::vector<const TensorInfo*>> ranks = Split();
    std::vector<std::string> reports;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      SaveRequest request = Request(static_cast<int>(rank), static_cast<int>(ranks.size()));
      Result<std::string> report = WriteRank(request, ranks[rank]);
      if (!report) return Fail(report.error());
      reports.push_back(std::move(*report));
    }
    // Before the checkpoint is one: then it has them.
    if (Status s = import_.keep(); !s) return Fail(s.error());
    const Result<CommitInfo> info = Commit(Request(0, static_cast<int>(ranks.size())), TrainState(), reports, fs_);
    if (!info) return Fail(info.error());
    return ImportInfo{.path = info->path,
                      .model = import_.model,
                      .tensors = static_cast<int64_t>(import_.tensors.size()),
                      .bytes = info->bytes};
  }

  static int64_t Bytes(const TensorInfo& tensor) { return *ElementCount(tensor.global_shape) * 4; }

  // A directory that a job uses must not be taken from under it.
  Status CheckUnused() {
    const Result<std::vector<std::string>> names = fs_.ListDirectory(options_.root);
    if (!names && names.error().code == ErrorCode::kNotFound) return {};
    if (!names) return Fail(names.error());
    if (names->empty()) return {};
    return Fail(ErrorCode::kAlreadyExists,
                options_.root + " is not empty (" + names->front() + "): import into a new directory");
  }

  std::vector<std::vector<const TensorInfo*>> Split() const {
    std::vector<std::vector<const TensorInfo*>> ranks;
    int64_t bytes = 0;
    for (const TensorInfo& tensor : import_.tensors) {
      if (ranks.empty() || bytes + Bytes(tensor) > options_.memory_bytes) {
        ranks.emplace_back();
        bytes = 0;
      }
      bytes += Bytes(tensor);
      ranks.back().push_back(&tensor);
    }
    return ranks;
  }

  SaveRequest Request(int rank, int world) const {
    SaveRequest request;
    request.root = options_.root;
    request.fence = kImporter;
    request.rank = rank;
    request.world = world;
    request.time = options_.time;
    return request;
  }

  Result<std::string> WriteRank(SaveRequest& request, const std::vector<const TensorInfo*>& tensors) {
    std::vector<std::vector<char>> memory(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorInfo& tensor = *tensors[i];
      memory[i].resize(static_cast<size_t>(Bytes(tensor)));
      request.model.push_back({tensor.name, tensor.dtype, tensor.global_shape,
                               std::vector<int64_t>(tensor.global_shape.size(), 0), tensor.global_shape,
                               memory[i].data()});
    }
    if (Status s = import_.read(request.model); !s) return Fail(s.error());
    Result<RankReport> report = WriteShards(request, fs_);
    if (!report) return Fail(report.error());
    return std::move(report->manifest);
  }

  std::string TrainState() const {
    nlohmann::ordered_json state = {{"version", 1},
                                    {"step", 0},
                                    {"weightsOnly", true},
                                    {"maxPositions", import_.model.max_positions},
                                    {"model", ModelIdentity(import_.model)}};
    state.update(import_.more);
    // A path need not be UTF-8.
    return state.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  const ImportOptions& options_;
  const Import& import_;
  FileSystem& fs_;
};

Result<ImportInfo> ImportModel(const ImportOptions& options, FileSystem& fs) {
  const Result<ModelDescription> model = ReadConfig(options, fs);
  if (!model) return Fail(model.error());
  Result<ForeignModel> source = ForeignModel::Open(options.source, *model, fs);
  if (!source) return Fail(source.error());
  const Import import{
      .model = *model,
      .tensors = TensorsOf(*model),
      .read = [&](const std::vector<TensorSlice>& slices) { return source->Read(slices); },
      .keep = [&] { return KeepSourceFiles({options.source, options.config, *source}, options.root, kImporter, fs); }};
  Result<ImportInfo> info = Importer(options, import, fs).Run();
  if (info) info->ignored = source->ignored();
  return info;
}

Result<ImportInfo> ImportAdapter(const ImportOptions& options, FileSystem& fs) {
  if (options.base.empty() && options.config.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                options.source + " is an adapter: --base names the directory of its model");
  }
  const std::string config = options.config.empty() ? options.base + "/config.json" : options.config;
  const Result<ModelDescription> model = ReadConfigJson(config, fs);
  if (!model) return Fail(model.error());
  Result<AdapterSource> source = AdapterSource::Open(options.source, *model, fs);
  if (!source) return Fail(source.error());
  std::optional<ForeignModel> base;
  Import import{.model = *model,
                .tensors = AdapterTensorsOf(*model, source->adapter()),
                .read = [&](const std::vector<TensorSlice>& slices) { return source->Read(slices); },
                .more = {{"adapter", AdapterJson(source->adapter())}},
                .keep = [&]() -> Status {
                  if (!base) return {};
                  return KeepSourceFiles({options.base, options.config, *base}, options.root, kImporter, fs);
                }};
  if (!options.base.empty()) {
    Result<ForeignModel> opened = ForeignModel::Open(options.base, *model, fs);
    if (!opened) return Fail(opened.error());
    base = std::move(*opened);
    const Result<BaseReference> reference = HashBase(*base, *model, options.base);
    if (!reference) return Fail(reference.error());
    import.more["base"] = BaseJson(*reference);
  }
  return Importer(options, import, fs).Run();
}

}  // namespace

Result<ImportInfo> ImportWeights(const ImportOptions& options, FileSystem& fs) {
  if (IsPeft(options.source, fs)) return ImportAdapter(options, fs);
  if (options.base.empty()) return ImportModel(options, fs);
  return Fail(ErrorCode::kInvalidArgument, "--base is of an adapter, and " + options.source + " has no " + kPeftConfig);
}

}  // namespace trainyard::checkpoint
