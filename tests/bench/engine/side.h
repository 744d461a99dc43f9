// Our side of the comparison: one rank that trains the given Llama, with nothing around the engine but what every
// training loop has (clip by global norm, AdamW). Thread-safety: one rank's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/device/device.h"
#include "trainer/dist/comm.h"
#include "trainer/engine/engine.h"
#include "trainer/model/llama.h"

namespace trainyard::bench {

// What both sides are told, as rows.py writes it.
struct Setting {
  model::LlamaConfig model;
  int stage = 0;               // 0..3
  bool bf16 = false;           // else fp32
  bool checkpointing = false;  // full activation checkpointing
  bool exact = false;          // exact sums of gradients
  int64_t bucket_bytes = 0;    // stage 0: the largest reduction; 0: as the engine has it
  int ranks = 1, rank = 0, port = 0;
  int64_t batch = 0, length = 0;  // sequences per rank and step, tokens of each
  double learning_rate = 0;
};

// Throws nlohmann::json::exception when a key is missing or of another type.
Setting ReadSetting(const nlohmann::json& json);

// The seed of weights and tokens on both sides.
inline constexpr uint64_t kSeed = 20261130;
// Steps go round so many batches, so that the loss falls within a short run.
inline constexpr int64_t kBatches = 4;

// Tokens of one rank in batch `index`: [batch, length + 1] int64. Small ids are frequent, as in text.
at::Tensor Tokens(const Setting& setting, int64_t index, int rank);

// Initial weights (F32, Hugging Face names) and "tokens" [kBatches, ranks, batch, length + 1] (I64) of all ranks as one
// safetensors file. Throws std::runtime_error when it cannot be written.
void Export(const Setting& setting, const std::string& file);

class Side {
 public:
  // Blocks until all ranks are connected. Throws std::runtime_error.
  explicit Side(const Setting& setting);
  ~Side();

  // One optimizer step; the mean loss of this rank's tokens before it.
  double Step();
  void Barrier();

  device::Device& device() { return *device_; }
  const engine::Engine& engine() const { return *engine_; }
  // Payload handed to the wire so far; see dist::Comm::payload_bytes.
  int64_t payload_bytes() const { return comm_->payload_bytes(); }

 private:
  const Setting setting_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<dist::Comm> comm_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<model::Llama> llama_;
  std::vector<at::Tensor> batches_;
  int64_t step_ = 0;
};

}  // namespace trainyard::bench
