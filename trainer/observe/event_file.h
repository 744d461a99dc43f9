// TensorBoard event files: scalars and texts by step. Our own few lines of its two formats, so that nothing has to be
// linked: the TFRecord framing (length, masked CRC-32C of the length, data, masked CRC-32C of the data) and the
// protocol-buffer wire form of tensorflow.Event {1: wall_time double, 2: step int64, 3: file_version string, 5: summary
// {1: value {1: tag string, 2: simple_value float, 8: tensor {1: dtype, 7 = STRING, 2: shape {2: dimension {1: size}},
// 8: string_val}, 9: metadata {1: plugin_data {1: plugin_name, "text"}}}}, 7: session_log {1: status, 1 = START}}
// (tensorflow/core/util/event.proto, framework/summary.proto and tensor.proto, lib/io/record_writer.h). Thread-safety:
// one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "operator/base/error.h"
#include "trainer/observe/append_file.h"

namespace trainyard::observe {

struct Scalar {
  std::string tag;  // "train/loss"
  double value = 0;
};

// CRC-32C (Castagnoli) of `data`: RFC 3720, B.4.
uint32_t Crc32c(std::string_view data);
// One record of the TFRecord framing.
std::string FrameRecord(std::string_view data);
// One Event with all scalars; those that are not finite are left out.
std::string EncodeEvent(double wall_time, int64_t step, const std::vector<Scalar>& scalars);
// One Event with a text, UTF-8, which viewers read as Markdown.
std::string EncodeTextEvent(double wall_time, int64_t step, std::string_view tag, std::string_view text);

class EventFile {
 public:
  // Makes `directory` where it is missing, and in it events.out.tfevents.SECONDS.SUFFIX, which begins with the version
  // record that TensorBoard expects. An attempt writes a file of its own (`suffix` tells them apart); TensorBoard reads
  // all files of the directory. Error: kUnavailable names the path.
  static Result<EventFile> Open(const std::string& directory, double wall_time, const std::string& suffix);

  // Appends one event, whole or not at all: it is in the kernel when this returns. Error: kUnavailable names the path.
  Status Append(double wall_time, int64_t step, const std::vector<Scalar>& scalars);
  Status AppendText(double wall_time, int64_t step, std::string_view tag, std::string_view text);
  // Says that the run begins (again) with `step`: viewers forget what earlier files have from there on.
  Status AppendStart(double wall_time, int64_t step);
  const std::string& path() const { return file_.path(); }

 private:
  explicit EventFile(AppendFile file) : file_(std::move(file)) {}
  Status Write(const std::string& event) { return file_.Append(FrameRecord(event)); }
  AppendFile file_;
};

}  // namespace trainyard::observe
