// ExportPeft of export.h.
#include <nlohmann/json.hpp>

#include "trainer/checkpoint/adapter.h"
#include "trainer/checkpoint/dtype.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/export_directory.h"
#include "trainer/checkpoint/peft.h"
#include "trainer/checkpoint/safetensors_file.h"

namespace trainyard::checkpoint {
namespace {

Status WriteTensors(Reader& reader, const std::vector<TensorInfo>& tensors, const std::string& dtype,
                    SafetensorsWriter& writer) {
  std::vector<char> stored, converted;
  for (const TensorInfo& tensor : tensors) {
    // As it is stored, which is F32 or, of a job in double, F64. Of one tensor: adapters are small.
    const TensorInfo& info = *reader.Find(tensor.name);
    const int64_t n = *ElementCount(info.global_shape);
    stored.resize(static_cast<size_t>(n * *DtypeBytes(info.dtype)));
    converted.resize(static_cast<size_t>(n * *DtypeBytes(dtype)));
    const std::vector<int64_t> origin(info.global_shape.size(), 0);
    if (Status s = reader.Read({{info.name, info.dtype, info.global_shape, origin, info.global_shape, stored.data()}});
        !s) {
      return s;
    }
    if (Status s = NarrowFloats(info.dtype, stored.data(), n, dtype, converted.data()); !s) {
      return Fail(s.error().Wrap("tensor " + tensor.name));
    }
    if (Status s = writer.Append(converted.data(), static_cast<int64_t>(converted.size())); !s) return s;
  }
  return writer.Finish();
}

}  // namespace

Result<ExportInfo> ExportPeft(Reader& reader, const std::string& directory, const std::string& dtype, FileSystem& fs) {
  const std::string type = dtype.empty() ? "F32" : dtype;
  if (type != "F32" && type != "BF16" && type != "F16") {
    return Fail(ErrorCode::kInvalidArgument, "export is F32, BF16 or F16");
  }
  const Result<AdapterState> state = DescribeAdapter(reader);
  if (!state) return Fail(state.error());
  const std::vector<TensorInfo> tensors = AdapterTensorsOf(state->model, state->adapter);
  std::vector<SafetensorsTensor> written;
  for (const TensorInfo& tensor : tensors) {
    written.push_back({std::string(kPeftPrefix) + tensor.name, type, tensor.global_shape, {}});
  }
  Result<ExportDirectory> out = ExportDirectory::Open(directory, fs);
  if (!out) return Fail(out.error());
  Result<SafetensorsWriter> writer =
      SafetensorsWriter::Create(out->NewFile(kPeftWeights), written, /*sharded=*/false, fs);
  if (!writer) return Fail(writer.error());
  if (Status s = WriteTensors(reader, tensors, type, *writer); !s) return Fail(s.error());
  if (Status s = out->WriteText(kPeftConfig, PeftConfigJson(*state).dump(2) + "\n"); !s) return Fail(s.error());
  if (Status s = out->Finish(); !s) return Fail(s.error());
  return ExportInfo{static_cast<int64_t>(tensors.size()), writer->bytes(), out->files()};
}

}  // namespace trainyard::checkpoint
