#include "trainer/checkpoint/merge.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "trainer/checkpoint/adapter_source.h"
#include "trainer/checkpoint/base_hash.h"
#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/export_directory.h"
#include "trainer/checkpoint/foreign_model.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/source_files.h"
#include "trainer/contract/row_hash.h"

namespace trainyard::checkpoint {
namespace {

constexpr int64_t kPieceBytes = 32 << 20;

// The two factors of what is added to a matrix as it is stored: B and A, of GPT-2, which stores the transposed matrix,
// the transposed A and the transposed B.
struct Factors {
  std::vector<float> left, right;  // [rows, rank], [rank, columns]
};

std::vector<float> Transposed(const std::vector<float>& matrix, int64_t rows, int64_t columns) {
  std::vector<float> out(matrix.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      out[static_cast<size_t>(c * rows + r)] = matrix[static_cast<size_t>(r * columns + c)];
  }
  return out;
}

class Merger {
 public:
  Merger(const ModelDescription& model, const ForeignModel& base, AdapterSource& adapter, ExportDirectory& out,
         FileSystem& fs)
      : adapter_(adapter), out_(out), fs_(fs) {
    // A tied head that is stored again is no parameter of the model, and part of no hash.
    for (const TensorInfo& tensor : TensorsOf(model)) ours_[base.names().Of(tensor.name)] = tensor.name;
    for (const BlockMatrix& matrix : AdaptedMatrices(model, adapter.adapter())) {
      matrices_[matrix.name + ".weight"] = matrix;
    }
  }

  Status WriteFile(const std::string& path) {
    const Result<SafetensorsHeader> header = ReadSafetensorsHeader(path, fs_);
    if (!header) return Fail(header.error());
    if (header->sharded) {
      return Fail(
          ErrorCode::kFailedPrecondition,
          path + " has parts of tensors, as torch.distributed.checkpoint writes them: import and export it first");
    }
    const Result<std::string> bytes = ReadHeaderBytes(path, fs_);
    if (!bytes) return Fail(bytes.error());
    Result<int> fd = fs_.OpenRead(FollowLinks(path));
    if (!fd) return Fail(fd.error());
    const OpenFile file(fs_, *fd, path);
    std::vector<SafetensorsTensor> tensors;
    for (const SafetensorsEntry& entry : header->entries)
      tensors.push_back({entry.name, entry.dtype, entry.box.shape, {}});
    Result<SafetensorsWriter> writer =
        SafetensorsWriter::CreateWith(out_.NewFile(path.substr(path.rfind('/') + 1)), *bytes, tensors, fs_);
    if (!writer) return Fail(writer.error());
    for (const SafetensorsEntry& entry : header->entries) {
      if (Status s = WriteTensor(file, entry, *writer); !s) return s;
      ++info_.written.tensors;
    }
    info_.written.bytes += writer->bytes();
    return writer->Finish();
  }

  uint64_t hash() const { return hash_; }
  MergeInfo& info() { return info_; }

 private:
  // Row by row, in pieces.
  Status WriteTensor(const OpenFile& file, const SafetensorsEntry& entry, SafetensorsWriter& writer) {
    const int64_t bytes = entry.end - entry.begin;
    if (bytes == 0) return {};
    const auto ours = ours_.find(entry.name);
    const auto matrix = ours == ours_.end() ? matrices_.end() : matrices_.find(ours->second);
    if (matrix != matrices_.end()) {
      if (Status s = ReadFactors(matrix->second); !s) return s;
      ++info_.matrices;
    }
    const int64_t rows = entry.box.shape.empty() ? 1 : entry.box.shape[0];
    const int64_t row_bytes = bytes / rows, most = std::max<int64_t>(1, kPieceBytes / row_bytes);
    for (int64_t row = 0; row < rows; row += most) {
      const int64_t n = std::min(most, rows - row);
      piece_.resize(static_cast<size_t>(n * row_bytes));
      const Result<int64_t> got =
          fs_.ReadAt(file.fd(), piece_.data(), n * row_bytes, entry.begin + row * row_bytes, file.path());
      if (!got) return Fail(got.error());
      if (*got != n * row_bytes) return Fail(ErrorCode::kDataLoss, file.path() + ": the file has become shorter");
      if (ours != ours_.end()) hash_ += contract::HashRows(ours->second, row, n, row_bytes, piece_.data());
      if (matrix != matrices_.end()) {
        if (Status s = Add(entry, row, n); !s) return s;
      }
      if (Status s = writer.Append(piece_.data(), n * row_bytes); !s) return s;
    }
    return {};
  }

  Status ReadFactors(const BlockMatrix& m) {
    const int64_t rank = adapter_.adapter().rank;
    std::vector<float> a(static_cast<size_t>(rank * m.in)), b(static_cast<size_t>(m.out * rank));
    const Status read = adapter_.Read({{m.a(), "F32", {rank, m.in}, {0, 0}, {rank, m.in}, a.data()},
                                       {m.b(), "F32", {m.out, rank}, {0, 0}, {m.out, rank}, b.data()}});
    if (!read) return read;
    for (const auto& [name, values] : {std::pair(m.a(), &a), {m.b(), &b}}) {
      if (!FirstNotFinite("F32", values->data(), static_cast<int64_t>(values->size()))) continue;
      return Fail(ErrorCode::kFailedPrecondition,
                  adapter_.path() + ": tensor " + name + " holds numbers that are not finite: take another checkpoint");
    }
    factors_ = m.transposed ? Factors{Transposed(a, rank, m.in), Transposed(b, m.out, rank)}
                            : Factors{std::move(b), std::move(a)};
    return {};
  }

  // To the rows of the piece.
  Status Add(const SafetensorsEntry& entry, int64_t first, int64_t rows) {
    const AdapterDescription& adapter = adapter_.adapter();
    const int64_t columns = entry.box.shape[1], n = rows * columns;
    values_.resize(static_cast<size_t>(n));
    if (Status s = ConvertFloats(entry.dtype, piece_.data(), n, "F32", values_.data()); !s) return s;
    AddLowRank(factors_.left.data() + first * adapter.rank, factors_.right.data(), rows, adapter.rank, columns,
               static_cast<float>(adapter.Scale()), values_.data());
    merged_.resize(piece_.size());
    if (Status s = ConvertFloats("F32", values_.data(), n, entry.dtype, merged_.data()); !s) return s;
    // What the base itself has is not the adapter's doing.
    if (FirstOverflow(entry.dtype, piece_.data(), n, entry.dtype, merged_.data())) {
      return Fail(ErrorCode::kFailedPrecondition,
                  "tensor " + entry.name + ": with the adapter a number is too large for " + entry.dtype +
                      (entry.dtype == "F16" ? ": export the base with --dtype bfloat16 or float32 first"
                                            : ": take another checkpoint of the adapter"));
    }
    piece_.swap(merged_);
    return {};
  }

  AdapterSource& adapter_;
  ExportDirectory& out_;
  FileSystem& fs_;
  std::map<std::string, std::string> ours_;      // names in the files -> ours
  std::map<std::string, BlockMatrix> matrices_;  // our names of those that have an adapter
  Factors factors_;
  std::vector<char> piece_, merged_;
  std::vector<float> values_;
  uint64_t hash_ = 0;
  MergeInfo info_;
};

// What a reader of the base would take for a part of it, and a removal would take along.
bool LiesIn(const std::string& path, const std::string& directory) {
  std::error_code problem;  // of what is not there or may not be looked at: opening it says so
  const std::filesystem::path inner =
                                  std::filesystem::weakly_canonical(std::filesystem::absolute(path, problem), problem),
                              outer = std::filesystem::canonical(directory, problem);
  return !outer.empty() && std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace

Result<MergeInfo> MergeAdapter(const MergeOptions& options, FileSystem& fs) {
  if (LiesIn(options.directory, options.base)) {
    return Fail(ErrorCode::kInvalidArgument,
                options.directory + " lies in the base " + options.base + ": merge into a directory outside of it");
  }
  const Result<ModelDescription> model = ReadConfigJson(options.base + "/config.json", fs);
  if (!model) return Fail(model.error());
  Result<ForeignModel> base = ForeignModel::Open(options.base, *model, fs);
  if (!base) return Fail(base.error());
  Result<AdapterSource> adapter = AdapterSource::Open(options.adapter, *model, fs);
  if (!adapter) return Fail(adapter.error());
  Result<ExportDirectory> out = ExportDirectory::Open(options.directory, fs, "merge");
  if (!out) return Fail(out.error());
  Merger merger(*model, *base, *adapter, *out, fs);
  for (const std::string& file : base->tensors().files()) {
    if (Status s = merger.WriteFile(file); !s) return Fail(s.error());
  }
  MergeInfo& info = merger.info();
  if (adapter->base()) {
    BaseReference found = SizeOfBase(*base, *model, options.base);
    found.hash = merger.hash();
    const std::string difference = BaseDifference(*adapter->base(), found);
    if (!difference.empty()) return Fail(ErrorCode::kFailedPrecondition, difference);
    info.base_known = true;
  }
  const Status copied = ForEachModelFile(
      options.base, fs, [&](const std::string& name, const std::string& text) { return out->WriteText(name, text); });
  if (!copied) return Fail(copied.error());
  if (Status s = out->Finish(); !s) return Fail(s.error());
  info.written.files = out->files();
  info.adapter = adapter->adapter();
  info.adapter_path = adapter->path();
  return std::move(info);
}

}  // namespace trainyard::checkpoint
