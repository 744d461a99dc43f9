// What one rank is told: the resolved job (JSON written by the operator) and the environment of its process, read and
// checked once. Thread-safety: plain values; the functions may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::config {

// A path inside a volume of the job.
struct VolumePath {
  std::string volume;
  std::string path;  // relative; "" is the volume itself

  // "<volume_root>/<volume>/<path>".
  std::string Resolve(const std::string& volume_root) const;
};

struct Identity {
  std::string namespace_name;
  std::string name;
  std::string uid;
};

enum class Family { kLlama, kMistral, kQwen2, kQwen3, kGpt2 };

// Low-rank adapters (Hu et al., "LoRA", 2021) on frozen matrices of the blocks.
struct Adapter {
  int64_t rank = 0;
  double alpha = 0;                  // what an adapter gives is multiplied by alpha / rank
  double dropout = 0;                // of what goes into an adapter
  std::vector<std::string> targets;  // last words of names, such as q_proj; empty: all matrices of the blocks
  bool nf4 = false;                  // the frozen matrices of the blocks are kept in 4 bits (QLoRA)
};

struct Model {  // sizes as in a Hugging Face config.json
  Family family = Family::kLlama;
  int64_t layers = 0;
  int64_t hidden_size = 0;
  int64_t attention_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;  // 0: hiddenSize / attentionHeads
  int64_t ffn_size = 0;
  int64_t vocab_size = 0;
  bool tied_embeddings = false;
  int64_t max_positions = 0;
  double rope_theta = 10000.0;  // not of GPT2
  double norm_epsilon = 1e-5;
  // A Hugging Face directory to start from. Its config.json says what the model is; sizes that are given beside it must
  // be the same, and all may be left out (layers is 0 then).
  std::optional<VolumePath> pretrained;
  std::optional<Adapter> adapter;  // needs pretrained

  bool HasSizes() const { return layers > 0; }
};

enum class DataFormat { kText, kTokens };

struct TrainFile : VolumePath {
  std::optional<double> weight;  // share of the sequences, relative to the other files
};

struct Data {
  DataFormat format = DataFormat::kText;
  std::vector<TrainFile> train;
  std::vector<VolumePath> validation;         // may be empty: no evaluation
  std::optional<int64_t> document_separator;  // the token that ends a document

  // One weight per training file where at least one has a weight (the others count 1), else none: the files are one
  // sequence of tokens.
  std::vector<double> Weights() const;
};

enum class OptimizerKind { kAdamW, kAdamW8bit, kAdafactor, kSgd };

struct Optimizer {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double learning_rate = 0;
  double weight_decay = 0;
  // Of AdamW and AdamW8bit.
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  // Of SGD.
  double momentum = 0;
  bool nesterov = false;
};

enum class ScheduleType { kCosine, kLinear, kConstant, kWarmupStableDecay };
enum class DecayShape { kLinear, kCosine, kSqrt };

struct Schedule {
  ScheduleType type = ScheduleType::kCosine;
  int64_t warmup_steps = 0;
  double min_learning_rate_ratio = 0;
  // Of WarmupStableDecay.
  int64_t decay_steps = 0;
  DecayShape decay_shape = DecayShape::kLinear;
};

// A timeline of some steps.
struct Profile {
  int64_t from_step = 0;
  int64_t steps = 0;
  std::optional<VolumePath> directory;  // absent: the run directory
};

enum class DeviceType { kCpu, kCuda };
enum class Precision { kFp32, kBf16 };
enum class ActivationCheckpointing { kNone, kSelective, kFull };

// What is the same, bit by bit, between runs of the same job: docs/determinism.md.
enum class Determinism { kNone, kLayout, kWorldSize };
enum class NonFinite { kStop, kSkipStep };  // what to do when a loss or a gradient norm is not finite

// What the model says to a prompt, written at each evaluation.
struct Sample {
  std::string prompt;
  int64_t tokens = 0;      // at most
  double temperature = 0;  // 0: always the likeliest token
};

struct Training {
  DeviceType device = DeviceType::kCpu;
  int64_t sequence_length = 0;
  int64_t global_batch_size = 0;  // sequences per optimizer step
  int64_t micro_batch_size = 0;   // sequences per forward
  int64_t steps = 0;
  Precision precision = Precision::kFp32;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::kNone;
  Optimizer optimizer;
  Schedule schedule;
  double gradient_clip_norm = 0;  // 0: no clipping
  NonFinite on_non_finite_loss = NonFinite::kStop;
  int64_t evaluation_every_steps = 0;  // 0: none
  int64_t evaluation_batches = 0;
  std::optional<Sample> sample;
  std::optional<Profile> profile;
  uint64_t seed = 0;
  Determinism determinism = Determinism::kNone;
  int threads = 0;  // of arithmetic in each rank; 0: chosen by the trainer
};

enum class Strategy { kDdp = 0, kZero1 = 1, kZero2 = 2, kFsdp = 3, kHsdp = 4 };

// When stages 2 and 3 reduce gradients.
enum class GradientReduction { kEachMicroBatch, kLastMicroBatch };

// Where master weights and optimizer state are.
enum class Offload { kNone, kCpu, kNvme };

struct Parallelism {
  Strategy strategy = Strategy::kDdp;
  // Of HSDP: ranks that shard among themselves; replicas of such groups follow each other in rank order. 0: the ranks
  // of one node.
  int shard_size = 0;
  GradientReduction gradient_reduction = GradientReduction::kEachMicroBatch;

  Offload offload = Offload::kNone;
  std::string offload_volume;  // of kNvme: each rank makes a file in it

  int stage() const { return strategy == Strategy::kHsdp ? 3 : static_cast<int>(strategy); }  // of the engine
};

enum class Resume { kLatest, kNever, kStep };

// Where a job without a checkpoint of its own starts.
struct ResumeFrom {
  VolumePath directory;       // checkpoints of any job; only read
  int64_t step = 0;           // 0: the newest valid one
  bool weights_only = false;  // the optimizer, the data and the step start afresh
};

// Without any of the first three: only at the end and when stopped.
struct Checkpoint {
  VolumePath directory;
  int64_t every_steps = 0;
  double every_seconds = 0;
  double mean_seconds_between_failures = 0;  // as often as loses the least time: contract/cadence.h
  double cost_seconds = -1;                  // what a save took from training in an earlier attempt; below 0: not known
  double save_seconds = 0;                   // and from its beginning to the commit; 0: not known
  int64_t keep_last = 0;                     // 0: all
  int64_t keep_every_steps = 0;              // one for each multiple of it stays as well; 0: none
  bool verify_after_save = false;
  double verify_every_hours = 0;  // all that are there; 0: never
  Resume resume = Resume::kLatest;
  int64_t resume_step = 0;  // with kStep
  std::optional<ResumeFrom> resume_from;
  std::optional<VolumePath> export_on_success;  // where a Hugging Face directory is made of the last checkpoint
};

struct Observe {
  std::optional<VolumePath> tensorboard;  // directory of event files; absent: none
  double peak_flops = 0;                  // FLOP/s of one rank's device in the compute type; 0: unknown, so no MFU
};

struct Job {
  Identity identity;
  Model model;
  Data data;
  Training training;
  Parallelism parallelism;
  std::optional<Checkpoint> checkpoint;  // absent: no checkpoints
  Observe observe;
};

// Reads a resolved job. Unknown keys, wrong types, missing keys and impossible combinations are all reported at once,
// one line joined by "; ", each with its path: `training.steps: 0 is not positive; ...`. Errors: kInvalidArgument, and
// for Load kNotFound or kPermissionDenied when the file cannot be read.
Result<Job> Parse(const std::string& json);
Result<Job> Load(const std::string& file);

// "CPU" or "CUDA": the name that device::Open takes.
std::string DeviceName(DeviceType device);

// The environment of one trainer process; names and defaults are those of trainer/contract.
struct RankEnv {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 1;  // ranks of this node
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;
  std::string uid;
  int64_t attempt = 0;
  int64_t round = 0;
  std::string pod_ip;  // empty: not in a cluster
  std::string job_file;
  std::string volume_root;
  std::string run_dir;
  std::string termination_log;
  int64_t collective_timeout_seconds = 300;
  int64_t checkpoint_memory_bytes = -1;  // for the copy that a save is written from; below 0: as much as it takes

  // "<uid>/<attempt>/<round>": the prefix of rendezvous keys.
  std::string RendezvousPrefix() const;
};

// Returns the value of a variable or null, as std::getenv.
using GetEnv = std::function<const char*(const char*)>;

// All errors at once, as Parse: `RANK: "x" is not a whole number; ...`. RANK, WORLD_SIZE and, with more than one rank,
// MASTER_ADDR are required. Error: kInvalidArgument.
Result<RankEnv> ReadEnv(const GetEnv& get);

// What only job and environment together can tell: more ranks than sequences in a global batch, ranks that do not
// divide into shard groups, a job of another UID. Error: kInvalidArgument.
Status CheckTogether(const Job& job, const RankEnv& env);

// Ranks of one shard group: 1 with DDP, all with ZeRO and FSDP, with HSDP as the job says or those of one node.
int ShardSize(const Parallelism& parallelism, const RankEnv& env);

}  // namespace trainyard::config
