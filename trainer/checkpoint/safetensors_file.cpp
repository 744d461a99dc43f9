#include "trainer/checkpoint/safetensors_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/format.h"

namespace trainyard::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers on disk are little-endian");

using nlohmann::json;

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the limit of the safetensors library
constexpr int64_t kWritebackBytes = 8 << 20;
constexpr const char* kMetadataKey = "__metadata__";
constexpr const char* kShardingKey = "DCP_SHARDING_INFO";
// {name: {shape: [n]}} and no deeper, so that a header of brackets costs no stack and little memory.
constexpr int kMaxDepth = 4;

tl::unexpected<Error> Loss(const std::string& what) { return Fail(ErrorCode::kDataLoss, what); }

// For messages: ASCII, on one line, of bounded length.
std::string Words(const json& value) {
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

bool IsPrintable(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c < 0x7f; });
}

// A number of 63 bits; throws for what is none.
int64_t Whole(const json& j) {
  if (!j.is_number_integer() || (j.is_number_unsigned() && j.get<uint64_t>() > INT64_MAX)) {
    throw json::other_error::create(501, Words(j) + " is not a whole number of 63 bits", nullptr);
  }
  return j.get<int64_t>();
}

std::vector<int64_t> Wholes(const json& j) {
  if (!j.is_array()) throw json::other_error::create(501, "a list of numbers is expected", nullptr);
  std::vector<int64_t> out;
  for (const json& x : j) out.push_back(Whole(x));
  return out;
}

// What the parser's callback sees: depth and repeated keys.
class Watcher {
 public:
  bool operator()(int depth, json::parse_event_t event, json& value) {
    if (depth > kMaxDepth) return too_deep = true, false;
    if (event == json::parse_event_t::key && depth == 1 && !names_.insert(value.get<std::string>()).second) {
      repeated = value.get<std::string>();
    }
    return true;
  }
  bool too_deep = false;
  std::string repeated;

 private:
  std::set<std::string> names_;
};

Result<json> ParseText(std::string_view text) {
  Watcher watcher;
  json parsed = json::parse(
      text.begin(), text.end(),
      [&](int depth, json::parse_event_t event, json& value) { return watcher(depth, event, value); },
      /*allow_exceptions=*/false);
  if (watcher.too_deep) return Loss("its header is nested too deeply to be one of safetensors");
  if (!parsed.is_object()) return Loss("its header is not a JSON object");
  if (!watcher.repeated.empty()) return Loss("its header has " + Words(watcher.repeated) + " twice");
  return parsed;
}

class HeaderReader {
 public:
  HeaderReader(int64_t data_begin, int64_t file_bytes) : data_bytes_(file_bytes - data_begin) {
    out_.data_begin = data_begin;
  }

  // Throws json::exception.
  Result<SafetensorsHeader> Read(const json& header) {
    json sharding;
    if (const auto found = header.find(kMetadataKey); found != header.end()) {
      out_.metadata = found->get<std::map<std::string, std::string>>();
      if (const auto info = out_.metadata.find(kShardingKey); info != out_.metadata.end()) {
        Result<json> parsed = ParseText(info->second);
        if (!parsed) return Loss(std::string(kShardingKey) + ": " + parsed.error().message);
        sharding = std::move(*parsed);
        out_.sharded = true;
      }
    }
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadataKey) continue;
      if (!IsPrintable(name)) return Loss("the name " + Words(name) + " is not printable ASCII");
      if (Status s = Entry(name, value, sharding); !s) return Fail(s.error().Wrap("tensor " + Words(name)));
    }
    return Ordered();
  }

 private:
  Status Entry(const std::string& name, const json& value, const json& sharding) {
    SafetensorsEntry entry;
    entry.name = name;
    entry.dtype = value.at("dtype").get<std::string>();
    entry.box.shape = Wholes(value.at("shape"));
    entry.box.offset.assign(entry.box.shape.size(), 0);
    if (out_.sharded) entry.box.offset = Wholes(sharding.at(name).at("saved_offsets"));
    const std::vector<int64_t> range = Wholes(value.at("data_offsets"));
    const std::optional<int64_t> element = DtypeBytes(entry.dtype), count = ElementCount(entry.box.shape);
    if (!element) return Loss("dtype " + Words(entry.dtype) + " is not one of safetensors");
    if (!count || *count > (int64_t{1} << 48)) return Loss("its shape is negative or too large");
    if (entry.box.offset.size() != entry.box.shape.size()) return Loss("its offsets are of other dimensions");
    for (int64_t at : entry.box.offset) {
      if (at < 0 || at > (int64_t{1} << 48)) return Loss("its offsets are negative or too large");
    }
    if (range.size() != 2 || range[0] < 0 || range[1] < range[0] || range[1] > data_bytes_ ||
        range[1] - range[0] != *count * *element) {
      return Loss("its byte range is not that of its shape, or leaves the file");
    }
    entry.begin = out_.data_begin + range[0];
    entry.end = out_.data_begin + range[1];
    out_.entries.push_back(std::move(entry));
    return {};
  }

  Result<SafetensorsHeader> Ordered() {
    std::sort(out_.entries.begin(), out_.entries.end(), [](const SafetensorsEntry& x, const SafetensorsEntry& y) {
      return std::tie(x.begin, x.end, x.name) < std::tie(y.begin, y.end, y.name);
    });
    int64_t at = out_.data_begin;
    for (const SafetensorsEntry& entry : out_.entries) {
      if (entry.begin != at) return Loss("bytes before tensor " + Words(entry.name) + " are of none, or of two");
      at = entry.end;
    }
    if (at != out_.data_begin + data_bytes_) return Loss("bytes at its end are of no tensor");
    return std::move(out_);
  }

  const int64_t data_bytes_;
  SafetensorsHeader out_;
};

Result<std::string> HeaderText(const std::vector<SafetensorsTensor>& tensors, bool sharded, int64_t& data_bytes) {
  nlohmann::ordered_json header;
  header[kMetadataKey] = {{"format", "pt"}};
  if (sharded) {
    nlohmann::ordered_json offsets = nlohmann::ordered_json::object();
    for (const SafetensorsTensor& t : tensors) offsets[t.name] = {{"saved_offsets", t.offset}};
    header[kMetadataKey]["DCP_VERSION"] = "1.0";
    header[kMetadataKey][kShardingKey] = offsets.dump();
  }
  data_bytes = 0;
  for (const SafetensorsTensor& t : tensors) {
    const TensorSlice slice{t.name, t.dtype, t.shape, std::vector<int64_t>(t.shape.size(), 0), t.shape, nullptr};
    if (Status s = CheckSlice(slice); !s) return Fail(s.error());
    if (header.contains(t.name)) return Fail(ErrorCode::kInvalidArgument, "tensor \"" + t.name + "\" is given twice");
    const int64_t end = data_bytes + *ElementCount(t.shape) * *DtypeBytes(t.dtype);
    header[t.name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {data_bytes, end}}};
    data_bytes = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + text;
}

}  // namespace

std::string FollowLinks(const std::string& path) {
  std::error_code missing;
  const std::filesystem::path real = std::filesystem::canonical(path, missing);
  return missing ? path : real.string();
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text, int64_t file_bytes) {
  uint64_t length = 0;
  if (text.starts_with("version ")) {  // as a length, far too large
    return Loss("it is a pointer of Git LFS and not the file: fetch it with git lfs pull");
  }
  if (text.size() < 8) return Loss("it is too short for a safetensors file");
  std::memcpy(&length, text.data(), 8);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes) || static_cast<int64_t>(length) > file_bytes - 8 ||
      length > text.size() - 8) {
    return Loss("the length of its header, " + std::to_string(length) +
                ", is impossible: not a safetensors file, or cut short");
  }
  Result<json> header = ParseText(text.substr(8, length));
  if (!header) return Fail(header.error());
  try {
    return HeaderReader(8 + static_cast<int64_t>(length), file_bytes).Read(*header);
  } catch (const json::exception& e) {
    return Loss("its header: " + std::string(e.what()).substr(0, 200));
  }
}

Result<SafetensorsHeader> ReadSafetensorsHeader(const std::string& path, FileSystem& fs) {
  const std::string real = FollowLinks(path);
  const Result<FileStat> stat = fs.Stat(real);
  if (!stat) return Fail(stat.error());
  if (stat->kind != FileKind::kFile) return Loss(path + ": it is not a regular file");
  Result<int> fd = fs.OpenRead(real);
  if (!fd) return Fail(fd.error());
  const OpenFile file(fs, *fd, path);
  std::string text(8, '\0');
  Result<int64_t> got = fs.ReadAt(*fd, text.data(), 8, 0, path);
  if (!got) return Fail(got.error());
  uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  const int64_t most = std::min(kMaxHeaderBytes, std::max<int64_t>(0, stat->bytes - 8));
  if (*got == 8 && length <= static_cast<uint64_t>(most)) {
    text.resize(8 + length);
    got = fs.ReadAt(*fd, text.data(), static_cast<int64_t>(text.size()), 0, path);
    if (!got) return Fail(got.error());
  }
  text.resize(static_cast<size_t>(*got));
  Result<SafetensorsHeader> header = ParseSafetensorsHeader(text, stat->bytes);
  if (!header) return Fail(header.error().Wrap(path));
  return header;
}

Result<std::string> ReadHeaderBytes(const std::string& path, FileSystem& fs) {
  Result<int> fd = fs.OpenRead(FollowLinks(path));
  if (!fd) return Fail(fd.error());
  const OpenFile file(fs, *fd, path);
  uint64_t length = 0;
  const Result<int64_t> got = fs.ReadAt(*fd, &length, sizeof length, 0, path);
  if (!got) return Fail(got.error());
  if (*got != sizeof length || length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    return Fail(ErrorCode::kDataLoss, path + ": the file has become another");
  }
  std::string bytes(sizeof length + length, '\0');
  const Result<int64_t> all = fs.ReadAt(*fd, bytes.data(), static_cast<int64_t>(bytes.size()), 0, path);
  if (!all) return Fail(all.error());
  if (*all != static_cast<int64_t>(bytes.size())) {
    return Fail(ErrorCode::kDataLoss, path + ": the file has become shorter");
  }
  return bytes;
}

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                    const std::vector<SafetensorsTensor>& tensors, bool sharded,
                                                    FileSystem& fs) {
  int64_t data_bytes = 0;
  const Result<std::string> header = HeaderText(tensors, sharded, data_bytes);
  if (!header) return Fail(header.error());
  return Begin(path, *header, data_bytes, fs);
}

Result<SafetensorsWriter> SafetensorsWriter::CreateWith(const std::string& path, const std::string& header,
                                                        const std::vector<SafetensorsTensor>& tensors, FileSystem& fs) {
  int64_t data_bytes = 0;
  for (const SafetensorsTensor& t : tensors) data_bytes += *ElementCount(t.shape) * *DtypeBytes(t.dtype);
  const Result<SafetensorsHeader> parsed =
      ParseSafetensorsHeader(header, static_cast<int64_t>(header.size()) + data_bytes);
  if (!parsed)
    return Fail(ErrorCode::kInternal, path + ": its header is not that of its tensors: " + parsed.error().message);
  return Begin(path, header, data_bytes, fs);
}

Result<SafetensorsWriter> SafetensorsWriter::Begin(const std::string& path, const std::string& header,
                                                   int64_t data_bytes, FileSystem& fs) {
  Result<int> fd = fs.OpenCreate(path);
  if (!fd) return Fail(fd.error());
  SafetensorsWriter writer(fs, OpenFile(fs, *fd, path), static_cast<int64_t>(header.size()) + data_bytes);
  if (Status s = writer.Append(header.data(), static_cast<int64_t>(header.size())); !s) return Fail(s.error());
  return writer;
}

Status SafetensorsWriter::Append(const void* data, int64_t bytes) {
  if (bytes > end_ - at_) return Fail(ErrorCode::kInternal, file_.path() + ": more bytes than its header has");
  if (Status s = fs_->WriteAt(file_.fd(), data, bytes, at_, file_.path()); !s) return s;
  at_ += bytes;
  if (at_ - started_ >= kWritebackBytes) {
    fs_->StartWriteback(file_.fd(), at_ - started_, started_);
    started_ = at_;
  }
  return {};
}

Status SafetensorsWriter::Finish() {
  if (at_ != end_) return Fail(ErrorCode::kInternal, file_.path() + ": fewer bytes than its header has");
  if (Status s = fs_->Sync(file_.fd(), file_.path()); !s) return s;
  return file_.Close();
}

}  // namespace trainyard::checkpoint
