#include "trainer/checkpoint/manifest_file.h"

namespace trainyard::checkpoint {
namespace {

// Up to 95 bytes per tensor and rank: enough for 3,300 ranks of a model of 405B with AdamW (3,411 tensors). What is not
// as it was written is not parsed at any such size (DecodeManifest).
constexpr int64_t kMaxManifestBytes = int64_t{1} << 30;

// The file itself is wrong, as opposed to not being reachable at this moment.
bool IsDamage(const Error& error) {
  return error.code == ErrorCode::kDataLoss || error.code == ErrorCode::kFailedPrecondition ||
         error.code == ErrorCode::kResourceExhausted || error.code == ErrorCode::kInvalidArgument;
}

}  // namespace

Result<Manifest> LoadManifest(const std::string& path, FileSystem& fs, int64_t& bytes_read) {
  Result<FileStat> stat = fs.Stat(path);
  if (!stat && stat.error().code == ErrorCode::kNotFound) {
    return Fail(ErrorCode::kNotFound, "checkpoint " + path + " does not exist");
  }
  if (!stat) return Fail(stat.error());
  const std::string file = path + "/" + std::string(kManifestFile);
  if (stat->kind == FileKind::kSymlink) {
    return Fail(ErrorCode::kDataLoss, path + " is a symbolic link; checkpoints are directories");
  }
  if (stat->kind != FileKind::kDirectory) return Fail(ErrorCode::kDataLoss, path + " is not a directory");
  Result<std::string> text = ReadWholeFile(fs, file, kMaxManifestBytes);
  if (!text && text.error().code == ErrorCode::kNotFound) {
    return Fail(ErrorCode::kDataLoss, file + ": the file is missing, so this is not a whole checkpoint");
  }
  // Too large, or not a regular file: damage. A full table of open files or a vanished mount is not.
  if (!text && IsDamage(text.error())) return Fail(ErrorCode::kDataLoss, text.error().message);
  if (!text) return Fail(text.error());
  bytes_read += static_cast<int64_t>(text->size());
  Result<Manifest> manifest = DecodeManifest(*text);
  if (!manifest) return Fail(manifest.error().Wrap(file));
  return manifest;
}

Result<nlohmann::json> LoadTrainState(const std::string& path, const Manifest& manifest, FileSystem& fs,
                                      int64_t& bytes_read) {
  const std::string file = path + "/" + std::string(kTrainStateFile);
  const auto loss = [&](const std::string& what) { return Fail(ErrorCode::kDataLoss, file + ": " + what); };
  Result<std::string> text = ReadWholeFile(fs, file, manifest.train_state_bytes);
  if (!text && text.error().code == ErrorCode::kNotFound) return loss("the file is missing");
  if (!text && !IsDamage(text.error())) return Fail(text.error());
  if (!text && text.error().code != ErrorCode::kResourceExhausted) return loss(text.error().message);
  if (text) bytes_read += static_cast<int64_t>(text->size());
  if (!text || Digest(*text) != manifest.train_state_digest)
    return loss("it does not match its digest in the manifest");
  nlohmann::json state = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!state.is_object()) return loss("it is not a JSON object");
  return state;
}

}  // namespace trainyard::checkpoint
