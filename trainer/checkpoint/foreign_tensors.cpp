#include "trainer/checkpoint/foreign_tensors.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/format.h"

namespace trainyard::checkpoint {
namespace {

constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr std::string_view kSuffix = ".safetensors";
constexpr int64_t kMaxIndexBytes = 256 << 20;
constexpr int64_t kPieceBytes = 4 << 20;

tl::unexpected<Error> Bad(const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); }

// A name in the directory itself: an index must not lead elsewhere.
bool IsPlainName(const std::string& name) {
  return name.size() > kSuffix.size() && name.ends_with(kSuffix) && name.front() != '.' &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

// Tensor -> file. Error: kNotFound without an index.
Result<std::map<std::string, std::string>> ReadIndex(const std::string& directory, FileSystem& fs) {
  const std::string path = directory + "/" + kIndexFile;
  const Result<std::string> text = ReadFollowed(fs, path, kMaxIndexBytes);
  if (!text) return Fail(text.error());
  const nlohmann::json index = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object()) return Bad(path + ": it has no weight_map");
  std::map<std::string, std::string> out;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !IsPlainName(file.get<std::string>())) {
      return Bad(path + ": " + file.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
                 " is not the name of a safetensors file in that directory");
    }
    out[tensor] = file.get<std::string>();
  }
  return out;
}

Result<std::set<std::string>> AllFiles(const std::string& directory, FileSystem& fs) {
  const Result<std::vector<std::string>> names = fs.ListDirectory(directory);
  if (!names && names.error().code == ErrorCode::kNotFound) {
    return Fail(ErrorCode::kNotFound, directory + " does not exist");
  }
  if (!names) return Fail(names.error());
  std::set<std::string> files;
  std::copy_if(names->begin(), names->end(), std::inserter(files, files.end()), IsPlainName);
  if (files.empty()) {
    const bool pickled = std::any_of(names->begin(), names->end(), [](const std::string& name) {
      return name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".distcp");
    });
    return Fail(ErrorCode::kNotFound, "there is no *.safetensors file in " + directory +
                                          (pickled ? ": what is there is pickled; save it again as safetensors" : ""));
  }
  return files;
}

}  // namespace

Result<std::string> ReadFollowed(FileSystem& fs, const std::string& path, int64_t limit) {
  return ReadWholeFile(fs, FollowLinks(path), limit);
}

Result<ForeignTensors> ForeignTensors::Open(const std::string& directory, FileSystem& fs) {
  ForeignTensors out(fs);
  const Result<std::map<std::string, std::string>> index = ReadIndex(directory, fs);
  if (!index && index.error().code != ErrorCode::kNotFound) return Fail(index.error());
  std::set<std::string> files;
  if (index) {
    for (const auto& [tensor, file] : *index) files.insert(file);
  } else {
    Result<std::set<std::string>> all = AllFiles(directory, fs);
    if (!all) return Fail(all.error());
    files = std::move(*all);
  }
  for (const std::string& file : files) {
    const Status s = out.AddFile(directory + "/" + file);
    if (!s && s.error().code == ErrorCode::kNotFound && index) {
      return Fail(ErrorCode::kNotFound, directory + "/" + file + " is not there, but " + kIndexFile +
                                            " names it: a part of the model is missing");
    }
    if (!s) return Fail(s.error());
  }
  if (index) {
    for (const auto& [tensor, file] : *index) {
      const auto found = out.tensors_.find(tensor);
      const bool there =
          found != out.tensors_.end() && out.files_[found->second.parts[0].file] == directory + "/" + file;
      if (!there) return Bad(directory + "/" + kIndexFile + ": tensor " + tensor + " is not in " + file);
    }
  }
  if (Status s = out.CheckTiling(); !s) return Fail(s.error());
  return out;
}

Result<ForeignTensors> ForeignTensors::OfFile(const std::string& path, FileSystem& fs) {
  ForeignTensors out(fs);
  if (Status s = out.AddFile(path); !s) return Fail(s.error());
  if (Status s = out.CheckTiling(); !s) return Fail(s.error());
  return out;
}

Status ForeignTensors::AddFile(const std::string& path) {
  const Result<SafetensorsHeader> header = ReadSafetensorsHeader(path, *fs_);
  if (!header) return Fail(header.error());
  files_.push_back(path);
  for (const SafetensorsEntry& entry : header->entries) {
    const auto [at, fresh] = tensors_.try_emplace(entry.name);
    Tensor& tensor = at->second;
    if (fresh) {
      tensor.dtype = entry.dtype;
      tensor.shape.assign(entry.box.shape.size(), 0);
    }
    if (tensor.dtype != entry.dtype || tensor.shape.size() != entry.box.shape.size()) {
      return Bad(path + ": tensor " + entry.name + " has another dtype or dimension than in other files");
    }
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      tensor.shape[d] = std::max(tensor.shape[d], entry.box.offset[d] + entry.box.shape[d]);
    }
    tensor.parts.push_back({files_.size() - 1, entry.box, entry.begin, entry.end});
  }
  return {};
}

Status ForeignTensors::CheckTiling() const {
  for (const auto& [name, tensor] : tensors_) {
    const std::optional<int64_t> count = ElementCount(tensor.shape);
    if (!count || *count > (int64_t{1} << 48)) return Bad("tensor " + name + ": its parts lie impossibly far apart");
    std::vector<Box> boxes;
    for (const Part& part : tensor.parts) {
      if (part.box.elements() > 0) boxes.push_back(part.box);
    }
    const std::string problem = TilingProblem(tensor.shape, boxes);
    if (!problem.empty()) return Bad("tensor " + name + " of " + files_[tensor.parts[0].file] + ": " + problem);
  }
  return {};
}

Status ForeignTensors::Read(const Tensor& tensor, std::vector<char>& out) const {
  const int64_t element = *DtypeBytes(tensor.dtype);
  const Box whole{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
  out.resize(static_cast<size_t>(whole.elements() * element));
  std::vector<char> scattered;
  for (const Part& part : tensor.parts) {
    const int64_t bytes = part.end - part.begin;
    if (bytes == 0) continue;
    const std::string& path = files_[part.file];
    Result<int> fd = fs_->OpenRead(FollowLinks(path));
    if (!fd) return Fail(fd.error());
    const OpenFile file(*fs_, *fd, path);
    const SharedRuns runs(part.box, whole, part.box);
    char* to = out.data() + runs.At(0).b * element;
    if (runs.count() > 1) {
      scattered.resize(static_cast<size_t>(bytes));
      to = scattered.data();
    }
    const Result<int64_t> got = fs_->ReadAt(*fd, to, bytes, part.begin, path);
    if (!got) return Fail(got.error());
    if (*got != bytes) return Fail(ErrorCode::kDataLoss, path + ": the file has become shorter");
    for (int64_t i = 0; runs.count() > 1 && i < runs.count(); ++i) {
      const SharedRuns::Start start = runs.At(i);
      std::memcpy(out.data() + start.b * element, scattered.data() + start.a * element,
                  static_cast<size_t>(runs.length() * element));
    }
  }
  return {};
}

Result<int64_t> ForeignTensors::ReadBox(const Tensor& tensor, const Box& box, const std::string& dtype,
                                        void* out) const {
  const int64_t from = *DtypeBytes(tensor.dtype);
  const std::optional<int64_t> to = DtypeBytes(dtype);
  if (!to) return Bad("no dtype is called " + dtype);
  std::vector<char> piece;
  int64_t bytes = 0;
  for (const Part& part : tensor.parts) {
    const std::optional<Box> common = Intersect(part.box, box);
    if (!common) continue;
    const std::string& path = files_[part.file];
    Result<int> fd = fs_->OpenRead(FollowLinks(path));
    if (!fd) return Fail(fd.error());
    const OpenFile file(*fs_, *fd, path);
    const SharedRuns runs(part.box, box, *common);
    const int64_t most = std::max<int64_t>(1, kPieceBytes / from);
    for (int64_t run = 0; run < runs.count(); ++run) {
      const SharedRuns::Start start = runs.At(run);
      for (int64_t done = 0; done < runs.length(); done += most) {
        const int64_t n = std::min(most, runs.length() - done);
        piece.resize(static_cast<size_t>(n * from));
        const Result<int64_t> got =
            fs_->ReadAt(*fd, piece.data(), n * from, part.begin + (start.a + done) * from, path);
        if (!got) return Fail(got.error());
        if (*got != n * from) return Fail(ErrorCode::kDataLoss, path + ": the file has become shorter");
        if (Status s =
                ConvertFloats(tensor.dtype, piece.data(), n, dtype, static_cast<char*>(out) + (start.b + done) * *to);
            !s) {
          return Fail(s.error());
        }
        bytes += n * from;
      }
    }
  }
  return bytes;
}

}  // namespace trainyard::checkpoint
