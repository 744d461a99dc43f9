#include "trainer/generate/source.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "operator/base/files.h"
#include "trainer/checkpoint/base_hash.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/source_files.h"
#include "trainer/model/family.h"
#include "trainer/tokenizer/tokenizer_file.h"

namespace trainyard::generate {
namespace {

bool Exists(const std::string& path) { return checkpoint::PosixFileSystem().Stat(path).has_value(); }

tl::unexpected<Error> Invalid(std::string message) { return Fail(ErrorCode::kInvalidArgument, std::move(message)); }

// "/a/b/" -> "/a"; "b" -> ".".
std::string Parent(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Result<Source> OpenForeign(const std::string& directory) {
  Source source{directory, directory, {}, std::nullopt, std::nullopt, {}};
  const Result<checkpoint::ModelDescription> model = checkpoint::ReadConfigJson(directory + "/config.json");
  if (!model) return Fail(model.error());
  source.model = *model;
  auto opened = checkpoint::ForeignModel::Open(directory, source.model);
  if (!opened) return Fail(opened.error());
  source.foreign = std::move(*opened);
  return source;
}

Result<Source> OpenCheckpoint(const std::string& directory) {
  Source source{directory,    Parent(directory) + "/" + std::string(checkpoint::kSourceDirectory),
                {},           std::nullopt,
                std::nullopt, {}};
  auto lock = checkpoint::UseLock::ToRead(directory);
  if (!lock) return Fail(lock.error());
  source.lock = std::move(*lock);
  auto opened = checkpoint::Reader::Open(directory);
  if (!opened) return Fail(opened.error());
  source.reader = std::move(*opened);
  const Result<checkpoint::ModelDescription> model = checkpoint::DescribeModel(*source.reader);
  if (!model) return Fail(model.error().Wrap(directory));
  source.model = *model;
  return source;
}

// Safetensors' name of what the tensor is stored in.
std::string StoredType(const Source& source, const std::string& name) {
  if (source.reader) return source.reader->Find(name)->dtype;
  return source.foreign->tensors().all().at(source.foreign->names().Of(name)).dtype;
}

std::vector<engine::UnitSpec> UnitsOf(const Source& source) { return model::Units(model::ConfigOf(source.model)); }

// Numbers of a member that is one, a list of them, or null. Throws nlohmann::json::exception for another one.
std::vector<int64_t> Ids(const nlohmann::json& value) {
  if (value.is_null()) return {};
  if (value.is_number()) return {value.get<int64_t>()};
  return value.get<std::vector<int64_t>>();
}

// Both sides of the question whether the adapter was trained on this base.
bool HasHashes(const checkpoint::AdapterSource& adapter, const Source& source) {
  return adapter.base().has_value() && source.foreign.has_value();
}

Result<at::Tensor> ReadAdapter(checkpoint::AdapterSource& adapter, const std::string& name, int64_t rows,
                               int64_t columns) {
  at::Tensor values = at::empty({rows, columns}, at::kFloat);
  const std::vector<int64_t> shape{rows, columns};
  const Status read = adapter.Read({{name, "F32", shape, {0, 0}, shape, values.mutable_data_ptr()}});
  if (!read) return Fail(read.error());
  return values;
}

// alpha / rank * B A for the matrices that have an adapter, [in, out] where the matrix is.
std::function<Result<at::Tensor>(const engine::ParamSpec&)> Additions(checkpoint::AdapterSource& adapter,
                                                                      const checkpoint::ModelDescription& model) {
  std::map<std::string, checkpoint::BlockMatrix> adapted;
  for (checkpoint::BlockMatrix& m : checkpoint::AdaptedMatrices(model, adapter.adapter())) {
    adapted.emplace(m.name + ".weight", std::move(m));
  }
  return [&adapter, adapted = std::move(adapted)](const engine::ParamSpec& spec) -> Result<at::Tensor> {
    const auto found = adapted.find(spec.name);
    if (found == adapted.end()) return at::Tensor();
    const checkpoint::BlockMatrix& m = found->second;
    const int64_t rank = adapter.adapter().rank;
    const Result<at::Tensor> a = ReadAdapter(adapter, m.a(), rank, m.in), b = ReadAdapter(adapter, m.b(), m.out, rank);
    if (!a) return a;
    if (!b) return b;
    const at::Tensor product = b->mm(*a).mul_(adapter.adapter().Scale());
    return m.transposed ? product.t() : product;
  };
}

}  // namespace

Result<Source> OpenSource(const Request& request) {
  const bool ours = !request.checkpoint.empty();
  return ours ? OpenCheckpoint(request.checkpoint) : OpenForeign(request.model);
}

UsedAdapter Describe(const checkpoint::AdapterSource& adapter, const Source& source) {
  const std::string name = std::filesystem::path(adapter.path() + "/").parent_path().filename().string();
  return {adapter.path(), checkpoint::ParseStepDirectory(name), HasHashes(adapter, source)};
}

Result<std::optional<checkpoint::AdapterSource>> OpenAdapter(const Request& request, Source& source) {
  if (request.adapter.empty()) return std::nullopt;
  auto adapter = checkpoint::AdapterSource::Open(request.adapter, source.model);
  if (!adapter) return Fail(adapter.error());
  if (HasHashes(*adapter, source)) {
    const auto found = checkpoint::HashBase(*source.foreign, source.model, source.path);
    if (!found) return Fail(found.error());
    const std::string difference = checkpoint::BaseDifference(*adapter->base(), *found);
    if (!difference.empty()) return Fail(ErrorCode::kFailedPrecondition, adapter->path() + ": " + difference);
  }
  return std::optional<checkpoint::AdapterSource>(std::move(*adapter));
}

at::ScalarType TypeOf(const Request& request, const Source& source) {
  if (request.precision == "FP32") return at::kFloat;
  if (request.precision == "BF16") return at::kBFloat16;
  for (const engine::UnitSpec& unit : UnitsOf(source)) {
    for (const engine::ParamSpec& spec : unit.params) {
      if (spec.shape.size() > 1 && StoredType(source, spec.name) != "BF16") return at::kFloat;
    }
  }
  return at::kBFloat16;
}

Result<std::unique_ptr<Weights>> LoadWeights(Source& source, at::ScalarType type, checkpoint::AdapterSource* adapter) {
  WeightReader reader;
  if (source.foreign) {
    reader.dtype = [](const std::string& /*name*/, const std::string& wanted) { return wanted; };
    reader.read = [&](const auto& slices) { return source.foreign->Read(slices); };
  } else {
    reader.dtype = [&](const std::string& name, const std::string& /*wanted*/) { return StoredType(source, name); };
    reader.read = [&](const auto& slices) { return source.reader->Read(slices); };
  }
  if (adapter != nullptr) reader.addition = Additions(*adapter, source.model);
  return Weights::Load(UnitsOf(source), type, reader);
}

Result<std::unique_ptr<tokenizer::Tokenizer>> OpenTokenizer(const Request& request, const Source& source) {
  std::string path = request.tokenizer;
  if (path.empty()) {
    const Result<std::optional<uint64_t>> there = tokenizer::HashIn(source.companions);
    if (!there) return Fail(there.error());
    if (*there) path = source.companions;
  }
  if (path.empty()) {
    if (source.model.vocab != 256) {
      return Invalid("there is no tokenizer in " + source.companions + ", and the " +
                     std::to_string(source.model.vocab) +
                     " tokens of the model are not bytes; name the model's own with --tokenizer");
    }
    path = tokenizer::kBytes;
  }
  auto opened = tokenizer::Tokenizer::Open(path);
  if (!opened) return opened;
  if ((*opened)->vocab() > source.model.vocab) {
    return Invalid("the tokenizer " + (*opened)->path() + " has " + std::to_string((*opened)->vocab()) +
                   " tokens, the model in " + source.path + " " + std::to_string(source.model.vocab) +
                   ": it is another model's");
  }
  return opened;
}

Result<std::vector<int64_t>> EndTokens(const std::string& directory, int64_t vocab,
                                       const tokenizer::Tokenizer& tokenizer) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = directory + "/" + name;
    if (!Exists(path)) continue;
    const Result<std::string> text = ReadFile(path);
    if (!text) return Fail(text.error());
    const nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return Invalid(path + " is not a JSON object");
    std::vector<int64_t> ids;
    try {
      ids = Ids(json.value("eos_token_id", nlohmann::json()));
    } catch (const nlohmann::json::exception&) {
      return Invalid(path + ": eos_token_id is neither a token nor a list of them");
    }
    for (const int64_t id : ids) {
      if (id < 0 || id >= vocab) {
        return Invalid(path + ": eos_token_id: " + std::to_string(id) + " is none of the model's " +
                       std::to_string(vocab) + " tokens");
      }
    }
    if (!ids.empty()) return ids;
  }
  if (const auto eos = tokenizer.eos()) return std::vector<int64_t>{*eos};
  return std::vector<int64_t>{};
}

}  // namespace trainyard::generate
