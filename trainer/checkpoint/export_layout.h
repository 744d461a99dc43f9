// Which tensors go into which files of an export, under which names and in which dtypes. Private to the room.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint/format.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/safetensors_file.h"
#include "trainer/checkpoint/source_files.h"

namespace trainyard::checkpoint {

struct LaidTensor {
  SafetensorsTensor tensor;  // as the file has it
  std::string ours;          // whose values it gets
};
struct LaidFile {
  std::string name;
  std::string header;  // its first bytes; empty: to be made
  std::vector<LaidTensor> tensors;
};
struct ExportLayout {
  std::vector<LaidFile> files;
  std::string index;  // text of model.safetensors.index.json; empty: to be made where there are several files
};

// `dtype` and `shard_bytes` as in HuggingFaceOptions. Where neither is given and files were carried along, theirs: byte
// for byte but for the values, except that what is no parameter of the model is left out. A tied head that they store
// again gets the values of the embedding.
ExportLayout LayOut(const ModelDescription& model, const CarriedFiles& carried, const std::string& dtype,
                    int64_t shard_bytes);

}  // namespace trainyard::checkpoint
