// What a Hugging Face directory has besides weights, carried along with the checkpoints that come of it: config.json,
// generation_config.json, tokenizer, chat template, and how the weights were split into files. It lies in
// DIRECTORY/huggingface beside the checkpoints, once, so that saves neither copy nor lose it. Thread-safety: free
// functions; one writer at a time, which the fence sees to.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/foreign_model.h"
#include "trainer/checkpoint/safetensors_file.h"

namespace trainyard::checkpoint {

inline constexpr std::string_view kSourceDirectory = "huggingface";

// Where they come from.
struct SourceFiles {
  std::string directory;
  std::string config;         // a config.json elsewhere; empty: that of the directory
  const ForeignModel& model;  // opened from it
};

// Makes root/huggingface, staged by the owner `fence` and renamed into place. One that is there already stays as it is.
// Of the weights the headers of the files are kept, unless they are parts of tensors (DCP) or under a prefix that
// transformers does not know. Errors: of the file system; kResourceExhausted for a file that is no tokenizer's size.
Status KeepSourceFiles(const SourceFiles& source, const std::string& root, const Fence& fence, FileSystem& fs);
// The same from root/huggingface of other checkpoints; nothing where there is none.
Status CopySourceFiles(const std::string& from_root, const std::string& root, const Fence& fence, FileSystem& fs);

// Visits the small files of a Hugging Face directory that go along with its weights: those that are there, by name and
// text, config.json last. Errors: of `visit`; kResourceExhausted for a file that is no tokenizer's size; of the file
// system.
using ModelFileVisit = std::function<Status(const std::string& name, const std::string& text)>;
Status ForEachModelFile(const std::string& directory, FileSystem& fs, const ModelFileVisit& visit);

// A file of weights as it was, without the weights.
struct SourceHeader {
  std::string file;   // "model-00001-of-00002.safetensors"
  std::string bytes;  // of the file, up to the first tensor
  SafetensorsHeader header;
};
// What KeepSourceFiles kept. Nothing is there: all empty.
struct CarriedFiles {
  std::string directory;           // root/huggingface
  std::vector<std::string> names;  // to be copied as they are: without config.json and the index
  std::string config;              // text of config.json
  std::string index;               // text of model.safetensors.index.json
  std::vector<SourceHeader> headers;
};
// Error: kDataLoss for a header that is none; of the file system.
Result<CarriedFiles> ReadCarriedFiles(const std::string& root, FileSystem& fs);

}  // namespace trainyard::checkpoint
