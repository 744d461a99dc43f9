#include "trainer/checkpoint/adapter_source.h"

#include <limits>
#include <set>

#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/peft.h"

namespace trainyard::checkpoint {
namespace {

constexpr int64_t kMaxConfigBytes = 16 << 20;
constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

std::string Words(const std::vector<int64_t>& shape) {
  return Box{std::vector<int64_t>(shape.size(), 0), shape}.ToString();
}

Result<nlohmann::json> ReadConfig(const std::string& file, FileSystem& fs) {
  const Result<std::string> text = ReadFollowed(fs, file, kMaxConfigBytes);
  if (!text) return Fail(text.error());
  return nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
}

// The last words of the matrices that the tensors belong to.
Result<std::vector<std::string>> TargetsOf(const ForeignTensors& tensors, const std::string& file) {
  std::set<std::string> words;
  for (const auto& [name, tensor] : tensors.all()) {
    std::string_view rest = name;
    if (!rest.starts_with(kPeftPrefix) || !(rest.ends_with(kA) || rest.ends_with(kB))) {
      return Bad(file + ": tensor " + name + " is none of a LoRA adapter of linear layers");
    }
    rest.remove_suffix(kA.size());
    words.insert(std::string(rest.substr(rest.rfind('.') + 1)));
  }
  if (words.empty()) return Bad(file + " has no tensors");
  return std::vector<std::string>(words.begin(), words.end());
}

}  // namespace

bool IsPeft(const std::string& path, FileSystem& fs) { return fs.Stat(path + "/" + kPeftConfig).has_value(); }

Result<AdapterSource> AdapterSource::Open(const std::string& path, const ModelDescription& model, FileSystem& fs) {
  if (IsPeft(path, fs)) return OpenPeft(path, model, fs);
  if (fs.Stat(path + "/" + std::string(kManifestFile))) return OpenCheckpoint(path, model, fs);
  const Result<CheckpointInfo> newest = NewestValid(path, std::numeric_limits<int64_t>::max(), Check::kStructure, fs);
  if (newest) return OpenCheckpoint(newest->path, model, fs);
  if (newest.error().code != ErrorCode::kNotFound) return Fail(newest.error());
  return Fail(ErrorCode::kNotFound,
              "there is no adapter in " + path + ": neither " + kPeftConfig + " nor a checkpoint of ours");
}

Result<AdapterSource> AdapterSource::OpenPeft(const std::string& path, const ModelDescription& model, FileSystem& fs) {
  AdapterSource out;
  out.path_ = path;
  const std::string config_file = path + "/" + kPeftConfig;
  const Result<nlohmann::json> config = ReadConfig(config_file, fs);
  if (!config) return Fail(config.error());
  Result<AdapterDescription> adapter = ParsePeftConfig(*config, config_file);
  if (!adapter) return Fail(adapter.error());
  const std::string file = path + "/" + kPeftWeights;
  Result<ForeignTensors> tensors = ForeignTensors::OfFile(file, fs);
  if (!tensors && tensors.error().code == ErrorCode::kNotFound && fs.Stat(path + "/adapter_model.bin")) {
    return Fail(ErrorCode::kNotFound, path + "/adapter_model.bin is pickled: save the adapter again as safetensors");
  }
  if (!tensors) return Fail(tensors.error());
  const Result<std::vector<std::string>> targets = TargetsOf(*tensors, file);
  if (!targets) return Fail(targets.error());
  Result<std::vector<std::string>> resolved = ResolveTargets(model, *targets);
  if (!resolved) return Fail(resolved.error().Wrap(file + ": the adapter is of another model"));
  adapter->targets = std::move(*resolved);
  std::set<std::string> expected;
  for (const TensorInfo& tensor : AdapterTensorsOf(model, *adapter)) {
    const std::string name = std::string(kPeftPrefix) + tensor.name;
    const auto found = tensors->all().find(name);
    if (found == tensors->all().end()) return Bad(file + ": tensor " + name + " is missing");
    if (found->second.shape != tensor.global_shape) {
      return Bad(file + ": tensor " + name + " is " + Words(found->second.shape) + ", by r and the model it is " +
                 Words(tensor.global_shape));
    }
    if (!IsFloat(found->second.dtype))
      return Bad(file + ": tensor " + name + " is " + found->second.dtype + ", no float");
    expected.insert(name);
  }
  for (const auto& [name, tensor] : tensors->all()) {
    if (!expected.contains(name)) return Bad(file + ": tensor " + name + " is of no matrix of the model");
  }
  if (Status s = CheckPeftTargets(*config, config_file, model, *adapter); !s) return Fail(s.error());
  out.adapter_ = std::move(*adapter);
  out.peft_ = std::move(*tensors);
  return out;
}

Result<AdapterSource> AdapterSource::OpenCheckpoint(const std::string& path, const ModelDescription& model,
                                                    FileSystem& fs) {
  AdapterSource out;
  out.path_ = path;
  Result<Reader> reader = Reader::Open(path, fs);
  if (!reader) return Fail(reader.error());
  Result<AdapterState> state = DescribeAdapter(*reader);
  if (!state) return Fail(state.error().Wrap(path));
  std::string difference = IdentityDifference(ModelIdentity(state->model), ModelIdentity(model), "in the model");
  // Identities do not tell GPT-2 from a Llama of the same sizes; their tensors do.
  if (difference.empty() && state->model.family != model.family) {
    difference =
        "it is a " + FamilyName(state->model.family) + " there and a " + FamilyName(model.family) + " in the model";
  }
  if (!difference.empty()) return Bad(path + ": the adapter is of another model: " + difference);
  out.adapter_ = std::move(state->adapter);
  out.base_ = std::move(state->base);
  out.reader_ = std::move(*reader);
  return out;
}

Status AdapterSource::Read(const std::vector<TensorSlice>& wanted) {
  if (reader_) return reader_->Read(wanted);
  for (const TensorSlice& slice : wanted) {
    const auto found = peft_->all().find(std::string(kPeftPrefix) + slice.name);
    if (found == peft_->all().end()) return Bad("the adapter has no tensor " + slice.name);
    const Result<int64_t> read = peft_->ReadBox(found->second, {slice.offset, slice.shape}, slice.dtype, slice.data);
    if (!read) return Fail(read.error().Wrap("tensor " + slice.name));
  }
  return {};
}

}  // namespace trainyard::checkpoint
