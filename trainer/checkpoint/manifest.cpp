#include "trainer/checkpoint/manifest.h"

#include <charconv>
#include <set>

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/fence.h"

namespace trainyard::checkpoint {
namespace {

using nlohmann::json;

constexpr int kMaxWorld = 1'000'000;
constexpr int kMaxNesting = 16;  // ours has six levels
constexpr size_t kMaxMessage = 400;
constexpr int64_t kMaxBytes = int64_t{1} << 58;  // of one thing; twice that is still a number

// A parser builds a tree of whatever it is given, and what walks the tree calls itself level by level: text that is
// nested without end is refused before that.
bool NestsTooDeep(const std::string& text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxNesting) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// Text that may be anything is parsed up to here, so that what is wrong with it can be told in words: a tree takes up
// to 25 times the text. Larger text is parsed only if it is as it was written.
constexpr size_t kMaxUnchecked = size_t{4} << 20;

// Whether the text without its digest has that digest: as EncodeManifest writes it, which sorts the keys, so that only
// numbers come before.
bool IsAsWritten(const std::string& text) {
  constexpr std::string_view kKey = "\"digest\":\"", kNext = "\",";
  constexpr size_t kBefore = 256, kDigits = 16;
  const size_t at = std::string_view(text).substr(0, kBefore).find(kKey);
  const size_t after = at + kKey.size() + kDigits;
  if (at == std::string_view::npos || text.compare(after, kNext.size(), kNext) != 0 || !text.ends_with("}\n")) {
    return false;
  }
  const std::string rest = text.substr(0, at) + text.substr(after + kNext.size());
  return text.compare(at + kKey.size(), kDigits,
                      HexDigest(Digest(std::string_view(rest).substr(0, rest.size() - 1)))) == 0;
}

// Names in a manifest may be anything; what is said about them is one line.
std::string OneLine(std::string message) {
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return message.size() > kMaxMessage ? message.substr(0, kMaxMessage) + "..." : message;
}

uint64_t ParseHex(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 16) {
    throw json::other_error::create(501, "\"" + text + "\" is not a digest", nullptr);
  }
  return value;
}

json ToJson(const Manifest& m) {
  json tensors = json::array(), files = json::array();
  for (const TensorInfo& t : m.tensors) {
    tensors.push_back({{"name", t.name}, {"group", t.group}, {"dtype", t.dtype}, {"shape", t.global_shape}});
  }
  for (const ShardFile& f : m.files) {
    json chunks = json::array();
    for (const Chunk& c : f.chunks) {
      chunks.push_back(
          {{"tensor", c.tensor}, {"offset", c.box.offset}, {"shape", c.box.shape}, {"begin", c.begin}, {"end", c.end}});
    }
    files.push_back({{"path", f.path},
                     {"rank", f.rank},
                     {"bytes", f.bytes},
                     {"dataBegin", f.data_begin},
                     {"hashBytes", f.hash_bytes},
                     {"digest", HexDigest(f.digest)},
                     {"chunks", std::move(chunks)}});
  }
  return {{"format", kFormat},
          {"step", m.step},
          {"world", m.world},
          {"jobUid", m.fence.job_uid},
          {"attempt", m.fence.attempt},
          {"round", m.fence.round},
          {"createdMs", m.created_ms},
          {"trainState", {{"bytes", m.train_state_bytes}, {"digest", HexDigest(m.train_state_digest)}}},
          {"tensors", std::move(tensors)},
          {"files", std::move(files)}};
}

// Throws json::exception for a missing or mistyped member; the rules of the format are checked by CheckRules.
Manifest FromJson(const json& j) {
  if (j.at("format").get<std::string>() != kFormat) {
    throw json::other_error::create(501, "format is " + j.at("format").dump() + ", not " + std::string(kFormat),
                                    nullptr);
  }
  Manifest m;
  m.step = j.at("step").get<int64_t>();
  m.world = j.at("world").get<int>();
  m.fence = {j.at("jobUid").get<std::string>(), j.at("attempt").get<int64_t>(), j.at("round").get<int64_t>()};
  m.created_ms = j.at("createdMs").get<int64_t>();
  m.train_state_bytes = j.at("trainState").at("bytes").get<int64_t>();
  m.train_state_digest = ParseHex(j.at("trainState").at("digest").get<std::string>());
  for (const json& t : j.at("tensors")) {
    m.tensors.push_back({t.at("name").get<std::string>(), t.at("group").get<std::string>(),
                         t.at("dtype").get<std::string>(), t.at("shape").get<std::vector<int64_t>>()});
  }
  for (const json& f : j.at("files")) {
    ShardFile file;
    file.path = f.at("path").get<std::string>();
    file.rank = f.at("rank").get<int>();
    file.bytes = f.at("bytes").get<int64_t>();
    file.data_begin = f.at("dataBegin").get<int64_t>();
    file.hash_bytes = f.at("hashBytes").get<int64_t>();
    file.digest = ParseHex(f.at("digest").get<std::string>());
    for (const json& c : f.at("chunks")) {
      Chunk chunk;
      chunk.tensor = c.at("tensor").get<int64_t>();
      chunk.box = {c.at("offset").get<std::vector<int64_t>>(), c.at("shape").get<std::vector<int64_t>>()};
      chunk.begin = c.at("begin").get<int64_t>();
      chunk.end = c.at("end").get<int64_t>();
      file.chunks.push_back(std::move(chunk));
    }
    m.files.push_back(std::move(file));
  }
  return m;
}

// Empty, or the rule that a file breaks: its name is the one its rank writes (so it cannot lead out of the directory),
// its chunks lie end to end, and each has the bytes of its box.
std::string FileProblem(const Manifest& m, const ShardFile& f) {
  if (f.rank < 0 || f.rank >= m.world) return "rank " + std::to_string(f.rank) + " of " + std::to_string(m.world);
  if (f.path != ShardPath(kModelGroup, f.rank) && f.path != ShardPath(kOptimGroup, f.rank)) return "unexpected path";
  const std::string group = f.path.substr(0, f.path.find('/'));
  if (f.data_begin <= 0 || f.data_begin % kDataAlignment != 0 || f.hash_bytes <= 0 || f.data_begin > kMaxBytes ||
      f.hash_bytes > kMaxBytes) {
    return "impossible sizes";
  }
  int64_t at = f.data_begin;
  for (const Chunk& c : f.chunks) {
    if (c.tensor < 0 || c.tensor >= static_cast<int64_t>(m.tensors.size())) return "unknown tensor index";
    const TensorInfo& t = m.tensors[static_cast<size_t>(c.tensor)];
    if (t.group != group) return "tensor " + t.name + " is of group " + t.group;
    if (Status s = CheckSlice({t.name, t.dtype, t.global_shape, c.box.offset, c.box.shape, nullptr}); !s) {
      return s.error().message;
    }
    if (c.box.elements() > kMaxBytes / 16 || at > kMaxBytes) return "impossible sizes";
    const int64_t bytes = c.box.elements() * *DtypeBytes(t.dtype);
    if (bytes == 0 || c.begin != at || c.end != at + bytes) return "tensor " + t.name + ": wrong byte range";
    at = c.end;
  }
  if (at != f.bytes) return "its size is not that of its chunks";
  return "";
}

// Empty, or the first broken rule.
std::string RuleProblem(const Manifest& m) {
  if (m.step < 0 || m.world < 1 || m.world > kMaxWorld || m.train_state_bytes < 0 || m.train_state_bytes > kMaxBytes)
    return "impossible numbers";
  if (Status s = CheckFence(m.fence); !s) return s.error().message;
  std::set<std::string> names, paths;
  for (const TensorInfo& t : m.tensors) {
    const std::vector<int64_t> zeros(t.global_shape.size(), 0);
    if (Status s = CheckSlice({t.name, t.dtype, t.global_shape, zeros, t.global_shape, nullptr}); !s) {
      return s.error().message;
    }
    if (t.group != kModelGroup && t.group != kOptimGroup) return "tensor " + t.name + ": group " + t.group;
    if (!names.insert(t.name).second) return "tensor " + t.name + " is listed twice";
  }
  int64_t total = m.train_state_bytes;
  for (const ShardFile& f : m.files) {
    if (!paths.insert(f.path).second) return f.path + " is listed twice";
    if (std::string problem = FileProblem(m, f); !problem.empty()) return f.path + ": " + problem;
    total += f.bytes + f.hash_bytes;
    if (total > kMaxBytes) return "impossible sizes";
  }
  return "";
}

Result<Manifest> Decode(const json& j) {
  try {
    Manifest m = FromJson(j);
    if (std::string problem = RuleProblem(m); !problem.empty()) return Fail(ErrorCode::kDataLoss, OneLine(problem));
    return m;
  } catch (const json::exception& e) {
    return Fail(ErrorCode::kDataLoss, OneLine(e.what()));
  }
}

}  // namespace

int64_t Manifest::bytes() const {
  int64_t total = train_state_bytes;
  for (const ShardFile& file : files) total += file.bytes + file.hash_bytes;
  return total;
}

std::string EncodePart(const RankPart& part) {
  return json{{"rank", part.rank}, {"part", ToJson(part.contents)}}.dump();
}

Result<RankPart> DecodePart(const std::string& text) {
  const json j = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto bad = [](const std::string& why) {
    return Fail(ErrorCode::kInvalidArgument, "a rank's report is not what WriteShards returned: " + why);
  };
  if (!j.is_object() || !j.contains("rank") || !j["rank"].is_number_integer() || !j.contains("part")) {
    return bad("not such JSON");
  }
  Result<Manifest> contents = Decode(j["part"]);
  if (!contents) return bad(contents.error().message);
  return RankPart{j["rank"].get<int>(), std::move(*contents)};
}

std::string EncodeManifest(const Manifest& manifest) {
  json j = ToJson(manifest);
  // Keys are sorted by nlohmann::json, so the dump without the digest is the same text for every reader of ours.
  j["digest"] = HexDigest(Digest(j.dump()));
  return j.dump() + "\n";
}

Result<Manifest> DecodeManifest(const std::string& text) {
  if (text.size() > kMaxUnchecked && !IsAsWritten(text)) {
    return Fail(ErrorCode::kDataLoss,
                "it is not what was written: its digest does not match its " + std::to_string(text.size()) + " bytes");
  }
  if (NestsTooDeep(text)) {
    return Fail(ErrorCode::kDataLoss, "it is nested more than " + std::to_string(kMaxNesting) + " levels deep");
  }
  json j = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (j.is_discarded() || !j.is_object()) return Fail(ErrorCode::kDataLoss, "it is not whole JSON");
  const auto found = j.find("digest");
  if (found == j.end() || !found->is_string()) return Fail(ErrorCode::kDataLoss, "it has no digest");
  const std::string digest = found->get<std::string>();
  j.erase(found);
  if (HexDigest(Digest(j.dump(-1, ' ', false, json::error_handler_t::replace))) != digest) {
    return Fail(ErrorCode::kDataLoss, "its digest does not match its contents");
  }
  return Decode(j);
}

Result<Manifest> MergeParts(const std::vector<RankPart>& parts) {
  const auto bad = [](const std::string& what) { return Fail(ErrorCode::kInvalidArgument, what); };
  if (parts.empty()) return bad("no rank reported");
  Manifest out;
  out.step = parts[0].contents.step;
  out.world = parts[0].contents.world;
  out.fence = parts[0].contents.fence;
  std::set<int> ranks;
  std::unordered_map<std::string, int64_t> index;
  for (const auto& [rank, part] : parts) {
    if (part.step != out.step || part.world != out.world || part.fence.job_uid != out.fence.job_uid ||
        part.fence.attempt != out.fence.attempt || part.fence.round != out.fence.round) {
      return bad("ranks report different saves: step " + std::to_string(part.step) + " and " +
                 std::to_string(out.step));
    }
    if (!ranks.insert(rank).second) return bad("rank " + std::to_string(rank) + " reported twice");
    std::vector<int64_t> mapped;
    for (const TensorInfo& t : part.tensors) {
      const auto [at, fresh] = index.try_emplace(t.name, static_cast<int64_t>(out.tensors.size()));
      if (fresh) out.tensors.push_back(t);
      const TensorInfo& known = out.tensors[static_cast<size_t>(at->second)];
      if (known.dtype != t.dtype || known.group != t.group || known.global_shape != t.global_shape) {
        return bad("tensor " + t.name + ": rank " + std::to_string(rank) +
                   " has another shape, dtype or group than others");
      }
      mapped.push_back(at->second);
    }
    for (ShardFile file : part.files) {
      for (Chunk& chunk : file.chunks) chunk.tensor = mapped[static_cast<size_t>(chunk.tensor)];
      out.files.push_back(std::move(file));
    }
  }
  if (static_cast<int>(ranks.size()) != out.world || *ranks.begin() != 0 || *ranks.rbegin() != out.world - 1) {
    return bad(std::to_string(ranks.size()) + " of " + std::to_string(out.world) + " ranks reported");
  }
  for (const Untiled& untiled : FindUntiled(out)) return bad("tensor " + untiled.tensor + ": " + untiled.reason);
  return out;
}

std::vector<Untiled> FindUntiled(const Manifest& manifest) {
  std::vector<std::vector<Box>> boxes(manifest.tensors.size());
  for (const ShardFile& file : manifest.files) {
    for (const Chunk& chunk : file.chunks) boxes[static_cast<size_t>(chunk.tensor)].push_back(chunk.box);
  }
  std::vector<Untiled> out;
  for (size_t i = 0; i < boxes.size(); ++i) {
    std::string reason = TilingProblem(manifest.tensors[i].global_shape, boxes[i]);
    if (!reason.empty()) out.push_back({manifest.tensors[i].name, std::move(reason)});
  }
  return out;
}

}  // namespace trainyard::checkpoint
