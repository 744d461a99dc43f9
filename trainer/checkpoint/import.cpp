#include "trainer/checkpoint/import.h"

#include <algorithm>
#include <map>

#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/foreign_tensors.h"
#include "trainer/checkpoint/safetensors_file.h"
#include "trainer/checkpoint/writer.h"

namespace trainyard::checkpoint {
namespace {

constexpr int64_t kMaxConfigBytes = 16 << 20;
// Comes before any job of the directory: a job that takes it over is newer.
const Fence kImporter{"import", 0, 0};

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

Result<ModelDescription> ReadConfig(const ImportOptions& options, FileSystem& fs) {
  const std::string path = options.config.empty() ? options.source + "/config.json" : options.config;
  const Result<std::string> text = ReadFollowed(fs, path, kMaxConfigBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) {
    return Fail(ErrorCode::kNotFound, path + " does not exist: --config names the config.json of the model");
  }
  if (!text) return Fail(text.error());
  const nlohmann::json config = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  Result<ModelDescription> model = ParseConfigJson(config);
  if (!model) return Fail(model.error().Wrap(path));
  return model;
}

// The tensor of the source for each of ours.
class NameMap {
 public:
  explicit NameMap(const ForeignTensors& source) : source_(source) {}

  // Finds how the names of the source are made from ours, by the embedding. Error: kInvalidArgument when there is none,
  // or there are several under different prefixes.
  Status Learn(const ModelDescription& model) {
    const std::string first = TensorsOf(model).front().name;
    std::vector<std::string> stems = {first};
    if (model.family == ModelFamily::kGpt2) stems.push_back(first.substr(kGpt2Prefix.size()));
    for (const std::string& stem : stems) {
      std::vector<std::string> prefixes = PrefixesOf(stem);
      if (prefixes.empty()) continue;
      if (prefixes.size() > 1) {
        return Bad("the source has several models: " + prefixes[0] + stem + ", " + prefixes[1] + stem);
      }
      drop_ = first.size() - stem.size();
      prefix_ = prefixes[0];
      return {};
    }
    return Bad("there is no tensor " + first + " in the source: it is of another model than config.json");
  }

  std::string Foreign(const std::string& ours) const {
    const bool shortened = drop_ > 0 && ours.starts_with(kGpt2Prefix);
    return prefix_ + (shortened ? ours.substr(drop_) : ours);
  }

 private:
  static constexpr std::string_view kGpt2Prefix = "transformer.";

  // What stands before `stem` in names of the source; only "" where that is one of them.
  std::vector<std::string> PrefixesOf(const std::string& stem) const {
    if (source_.all().contains(stem)) return {""};
    std::vector<std::string> prefixes;
    for (const auto& [name, tensor] : source_.all()) {
      if (name.ends_with("." + stem)) prefixes.push_back(name.substr(0, name.size() - stem.size()));
    }
    return prefixes;
  }

  const ForeignTensors& source_;
  std::string prefix_;
  size_t drop_ = 0;  // characters that the source has not before ours
};

class Importer {
 public:
  Importer(const ImportOptions& options, const ForeignTensors& source, const ModelDescription& model, FileSystem& fs)
      : options_(options), source_(source), names_(source), model_(model), ours_(TensorsOf(model)), fs_(fs) {}

  // That everything is there in the right shape, before anything is written.
  Status Check() {
    if (Status s = names_.Learn(model_); !s) return s;
    for (const TensorInfo& tensor : ours_) {
      const std::string foreign = names_.Foreign(tensor.name);
      const auto found = source_.all().find(foreign);
      if (found == source_.all().end()) return Bad("tensor " + foreign + " is missing in " + options_.source);
      if (found->second.shape != tensor.global_shape) {
        return Bad("tensor " + foreign + " is " + Words(found->second.shape) + ", by config.json it is " +
                   Words(tensor.global_shape));
      }
      if (!IsFloat(found->second.dtype)) return Bad("tensor " + foreign + " is " + found->second.dtype + ", no float");
    }
    return {};
  }

  Result<ImportInfo> Run() {
    if (Status s = CheckUnused(); !s) return Fail(s.error());
    Result<ImportInfo> info = Write();
    if (info) return info;
    // What is left of it would be in the way of the next try.
    const std::string staging = options_.root + "/" + std::string(kStagingDirectory);
    if (Status s = RemoveTree(fs_, staging); !s) return Fail(info.error().Wrap(s.error().message));
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
    const Result<CommitInfo> info = Commit(Request(0, static_cast<int>(ranks.size())), TrainState(), reports, fs_);
    if (!info) return Fail(info.error());
    const auto tensors = static_cast<int64_t>(ours_.size());
    return ImportInfo{info->path, model_, tensors, info->bytes, static_cast<int64_t>(source_.all().size()) - tensors};
  }

  static std::string Words(const std::vector<int64_t>& shape) {
    return Box{std::vector<int64_t>(shape.size(), 0), shape}.ToString();
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
    for (const TensorInfo& tensor : ours_) {
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
    std::vector<char> foreign;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorInfo& tensor = *tensors[i];
      const ForeignTensors::Tensor& from = source_.all().at(names_.Foreign(tensor.name));
      memory[i].resize(static_cast<size_t>(Bytes(tensor)));
      if (Status s = source_.Read(from, foreign); !s) return Fail(s.error());
      if (Status s = ConvertFloats(from.dtype, foreign.data(), Bytes(tensor) / 4, "F32", memory[i].data()); !s) {
        return Fail(s.error());
      }
      request.model.push_back({tensor.name, tensor.dtype, tensor.global_shape,
                               std::vector<int64_t>(tensor.global_shape.size(), 0), tensor.global_shape,
                               memory[i].data()});
    }
    Result<RankReport> report = WriteShards(request, fs_);
    if (!report) return Fail(report.error());
    return std::move(report->manifest);
  }

  std::string TrainState() const {
    const nlohmann::ordered_json state = {{"version", 1},
                                          {"step", 0},
                                          {"weightsOnly", true},
                                          {"maxPositions", model_.max_positions},
                                          {"model", ModelIdentity(model_)}};
    return state.dump(2);
  }

  const ImportOptions& options_;
  const ForeignTensors& source_;
  NameMap names_;
  const ModelDescription& model_;
  const std::vector<TensorInfo> ours_;
  FileSystem& fs_;
};

}  // namespace

Result<ImportInfo> ImportWeights(const ImportOptions& options, FileSystem& fs) {
  const Result<ModelDescription> model = ReadConfig(options, fs);
  if (!model) return Fail(model.error());
  const Result<ForeignTensors> source = ForeignTensors::Open(options.source, fs);
  if (!source) return Fail(source.error());
  Importer importer(options, *source, *model, fs);
  if (Status s = importer.Check(); !s) return Fail(s.error());
  return importer.Run();
}

}  // namespace trainyard::checkpoint
