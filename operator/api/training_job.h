// The TrainingJob (trainyard.dev/v1alpha1): what the user asks for and what the operator answers. Field names, nesting
// and defaults equal crds/trainingjobs.yaml; a test holds the two equal. The minimal manifest means the defaults
// written here and in training.h. Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/checkpoint.h"
#include "operator/api/pod_template.h"
#include "operator/api/progress.h"
#include "operator/api/training.h"
#include "operator/base/clock.h"

namespace trainyard::api {

inline constexpr const char* kGroup = "trainyard.dev";
inline constexpr const char* kVersion = "v1alpha1";
inline constexpr const char* kApiVersion = "trainyard.dev/v1alpha1";
inline constexpr const char* kKind = "TrainingJob";
inline constexpr const char* kPlural = "trainingjobs";
// What spec.managedBy means when it is left out: this operator.
inline constexpr const char* kManagedByUs = "trainyard.dev/operator";
// Volumes of the operator's own are called so; users' volumes may not be.
inline constexpr const char* kReservedVolumePrefix = "trainyard-";
// A job's name is a DNS label of at most this many characters, so that every child's name fits into 63.
inline constexpr int kMaxNameLength = 45;

// ---- spec ---------------------------------------------------------------------------------------------------

enum class Family { kLlama, kMistral, kQwen2, kQwen3, kGpt2 };
enum class AdapterType { kLora };
enum class QuantizeBase { kNone, kNf4 };
enum class DataFormat { kText, kTokens };
enum class Strategy { kAuto, kDdp, kZero1, kZero2, kFsdp, kHsdp };
enum class OffloadTo { kNone, kCpu, kNvme };
enum class NvLink { kRequired, kPreferred, kAny };
enum class TopologyMode { kRequired, kPreferred };
enum class Goal { kCheapest, kFastest };

struct Architecture {
  Family family = Family::kLlama;
  int64_t layers = 0;
  int64_t hidden_size = 0;
  int64_t attention_heads = 0;
  int64_t kv_heads = 0;    // 0: attentionHeads
  int64_t head_size = 0;   // 0: hiddenSize / attentionHeads; not of GPT2
  int64_t ffn_size = 0;    // 0: 8/3 of hiddenSize, rounded up to a multiple of 16; of GPT2: 4 times hiddenSize
  int64_t vocab_size = 0;  // 0: 256 for Text, required for Tokens
  bool tied_embeddings = false;
  int64_t max_positions = 0;  // 0: training.sequenceLength
};

// Low-rank matrices beside frozen ones: only they are trained.
struct Adapter {
  AdapterType type = AdapterType::kLora;
  int64_t rank = 16;
  double alpha = 32;                 // what the adapter gives is multiplied by alpha / rank
  double dropout = 0;                // share of what goes into the adapter
  std::vector<std::string> targets;  // last words of the names of the matrices that get one, such as q_proj; empty:
                                     // all of the blocks
  QuantizeBase quantize_base = QuantizeBase::kNone;
};

struct Model {
  std::string parameters;  // "7B"; empty when an architecture is given. Kept as text, read by ParseCount
  std::optional<Architecture> architecture;
  std::optional<VolumeDirectory> pretrained;  // a Hugging Face directory to start from; one of the others is beside it
  std::optional<Adapter> adapter;             // needs pretrained
};

struct DataFile {
  std::string volume;
  std::string path;
};

struct TrainFile {
  std::string volume;
  std::string path;
  std::optional<double> weight;  // share of the sequences; where any file has one, one without counts 1
};

struct Data {
  DataFormat format = DataFormat::kText;
  std::vector<TrainFile> train;
  std::vector<DataFile> validation;
  std::optional<int64_t> document_separator;  // the token that ends a document
};

struct Parallelism {
  Strategy strategy = Strategy::kAuto;
  OffloadTo offload = OffloadTo::kNone;  // where master weights and the optimizer's states are kept instead of the GPU
  std::string offload_volume;            // of kNvme and the bundled trainer: where their files are
};

// The domain that should hold the whole gang.
struct GangTopology {
  std::string level;  // one of the operator's topology levels, such as rack; empty: not asked for
  TopologyMode mode = TopologyMode::kPreferred;
};

struct Gpus {
  int64_t count = 0;      // 0: sized from the model
  int64_t min_count = 0;  // elastic range; 0: not elastic
  int64_t max_count = 0;
  int64_t per_node = 0;               // 0: chosen
  std::vector<std::string> products;  // short names; empty: any that fits
  NvLink nvlink = NvLink::kPreferred;
  GangTopology topology;
  Goal goal = Goal::kCheapest;  // without prices the fewest GPU-hours
  bool allow_overcommit = false;
};

// Limits of the plan; 0: none.
struct Budget {
  double max_hours = 0;
  double max_cost = 0;  // needs a catalogue with prices
};

// A timeline of a few steps, of every rank.
struct Profile {
  int64_t from_step = 0;
  int64_t steps = 1;
  std::string volume;  // both empty: the run directory of the pod
  std::string path;
};

struct Observe {
  std::optional<VolumeDirectory> tensor_board;
  std::optional<Profile> profile;
};

struct Recovery {
  int64_t max_user_restarts = 3;             // recovery.maxRestarts.user
  int64_t max_infrastructure_restarts = 50;  // recovery.maxRestarts.infrastructure
  int64_t max_grace_seconds = 1800;
};

struct Volume {
  std::string name;
  std::string claim_name;  // persistentVolumeClaim.claimName
  std::string host_path;   // hostPath.path
  bool empty_dir = false;  // emptyDir: {}
};

struct EnvVar {
  std::string name;
  std::string value;
};

struct Spec {
  Model model;
  std::optional<Data> data;
  Training training;
  Parallelism parallelism;
  Gpus gpus;
  Budget budget;
  std::optional<Checkpoint> checkpoint;
  Observe observe;
  Recovery recovery;
  bool suspend = false;
  bool plan_only = false;
  std::string managed_by;           // empty: kManagedByUs
  std::string priority_class_name;  // of the job and its pods; empty: the cluster's default
  std::string image;                // a user's own program instead of the bundled trainer
  std::vector<std::string> command;
  std::vector<std::string> args;
  std::vector<EnvVar> env;
  std::vector<Volume> volumes;
  PodTemplate pod_template;

  bool UsesBundledTrainer() const { return image.empty() && command.empty(); }
  // False: another controller runs the job, and the operator writes nothing of it.
  bool IsOurs() const { return managed_by.empty() || managed_by == kManagedByUs; }
};

// ---- status -------------------------------------------------------------------------------------------------

enum class Phase {
  kPending,
  kQueued,
  kPlacing,
  kStarting,
  kRunning,
  kResizing,
  kRecovering,
  kSuspended,
  kSucceeded,
  kFailed
};

struct Condition {
  std::string type;    // Planned, Placed, Ready, Suspended, Complete, Failed, CheckpointHealthy
  std::string status;  // True, False, Unknown
  std::string reason;  // CamelCase
  std::string message;
  int64_t observed_generation = 0;
  TimePoint last_transition_time;
};

// Estimated bytes on each GPU, term by term.
struct PlanBytes {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t master = 0;
  int64_t optimizer = 0;
  int64_t activations = 0;
  int64_t logits = 0;
  int64_t buffers = 0;
  int64_t overhead = 0;
};

// What measured runs of the job made of its estimates: measured / estimated for each group of terms, between 0.5 and 2.
struct PlanCorrections {
  double states = 1;  // of weights, gradients, master and optimizer; measured on the latter two
  double activations = 1;
  double buffers = 1;
  double step_seconds = 1;

  bool operator==(const PlanCorrections&) const = default;
};

// What the plan was preferred to.
struct PlanAlternative {
  std::string product;
  int64_t gpus = 0;
  std::string method;  // "FSDP with full activation checkpointing"
  std::optional<double> hours;
  std::optional<double> cost;
  std::string why;  // why it lost, in one line
};

// The frozen plan of a generation; bytes are per GPU.
struct PlanStatus {
  std::string strategy;  // DDP, ZeRO1, ZeRO2, FSDP, HSDP
  int64_t gpus = 0;
  int64_t per_node = 0;
  std::string product;
  int64_t micro_batch_size = 0;
  int64_t accumulation = 0;  // micro-batches per rank and step, rounded up
  int64_t parameters = 0;
  int64_t bytes_per_gpu = 0;
  int64_t capacity_bytes = 0;
  int64_t checkpoint_bytes = 0;
  std::string why;
  int64_t generation = 0;                // of the spec that this plan answers
  std::string activation_checkpointing;  // None, Selective, Full
  std::string gradient_reduction;        // EachMicroBatch, LastMicroBatch
  std::string offload;                   // None, CPU, NVMe; empty: written by an older operator
  int64_t host_bytes_per_gpu = 0;        // of what is offloaded, in host memory
  int64_t disk_bytes_per_gpu = 0;        // of what is offloaded, on disk
  PlanBytes bytes;
  double efficiency = 0;           // planned, of `gpus` times one GPU; 0: written by an older operator
  double expected_efficiency = 0;  // by links and arithmetic alone
  std::optional<double> step_seconds;
  std::optional<double> tokens_per_second;  // of all GPUs
  std::optional<double> hours;
  std::optional<double> cost;
  std::string currency;
  std::vector<PlanAlternative> alternatives;  // at most 6
  std::vector<std::string> advice;            // sentences with their numbers, warnings first; at most 8
  PlanCorrections corrections;                // that the estimates contain
};

struct PlacedNode {
  std::string node;
  int64_t gpus = 0;
};

// A run of node ranks in one topology domain; the runs follow each other in rank order.
struct PlacedDomain {
  std::string path;   // values of the topology levels, far to near, "zone-a/rack-3"
  int64_t nodes = 0;  // how many ranks, from where the run before it ends
};

// Where attempt `attempt` runs, and with what; index in `nodes` is the node rank. Frozen by the claim.
struct PlacementStatus {
  std::vector<PlacedNode> nodes;
  std::string domain;                              // for people: "node local-0" or "rack-3"
  std::vector<PlacedDomain> domains;               // empty: the operator knows no topology of these nodes
  std::string fabric;                              // profile of the network between them; empty: none
  std::map<std::string, std::string> environment;  // that the fabric's profile gives every process
  std::map<std::string, int64_t> resources;        // that the fabric's profile makes each pod ask for, besides GPUs
};

// What the pods run, frozen at the first claim of a generation: an upgrade of the operator changes no job under way.
struct TrainerStatus {
  std::string image;
  int64_t cpu_milli_per_gpu = 0;     // requested by each pod
  int64_t memory_bytes_per_gpu = 0;  // requested by each pod, besides what the plan holds on the host
  int64_t generation = 0;            // of the spec that it was taken for
};

// Written before the first delete of an intended stop, so that exits after it never count as failures.
struct StopStatus {
  std::string reason;  // Resize, Suspend, Deleted, Failed, Undo, Preempted
  int64_t attempt = 0;
  std::optional<TimePoint> due;  // when its pods must be gone; absent: written by an older operator
};

struct Restarts {
  int64_t user = 0;
  int64_t infrastructure = 0;
};

struct JobStatus {
  Phase phase = Phase::kPending;
  std::string reason;  // one line for people
  int64_t observed_generation = 0;
  std::vector<Condition> conditions;
  int64_t gpus = 0;      // of the live attempt; for /scale
  std::string selector;  // for /scale
  std::optional<PlanStatus> plan;
  std::optional<PlacementStatus> placement;
  std::optional<TrainerStatus> trainer;  // absent before the first claim
  int64_t attempt = 0;                   // 0: none claimed yet
  bool started = false;                  // this attempt's pods may be un-gated (written before the first gate goes)
  std::optional<StopStatus> stop;
  // Generation of the spec whose last attempt ended before it ran; 0: none. Such a job stops nobody for itself.
  int64_t undone_generation = 0;
  Restarts restarts;
  int64_t consecutive_failures = 0;        // for back-off; reset after a healthy period
  std::optional<TimePoint> retry_after;    // no new attempt before
  std::optional<TimePoint> placing_since;  // claim time of this attempt, for the gang deadline
  std::optional<TimePoint> ungated_at;     // last decision to take gates off; a new value fences late ones out
  std::optional<TimePoint> start_time;
  std::optional<TimePoint> completion_time;
  std::map<std::string, int64_t> excluded_nodes;  // node -> failures that it caused, halved as time passes
  std::map<std::string, TimePoint> excluded_at;   // node -> when that number was last set
  std::optional<Progress> progress;
  std::optional<TimePoint> told_at;        // when the reason of a job that waits was last changed; limits how often
  std::optional<TimePoint> progress_time;  // when progress was last copied here; limits how often
  std::optional<CheckpointStatus> checkpoint;
  std::optional<Exposure> exposure;         // absent: nothing has run yet
  std::optional<ResizeStatus> resize;       // the last one, or the one under way
  std::optional<TimePoint> removing_since;  // when onDelete: Delete began: the pods were gone, and it has 10 minutes
  std::optional<PlanCorrections> measured;  // for the plan of the next attempt
  std::vector<std::string> advice;
};

// ---- object ---------------------------------------------------------------------------------------------------

struct Meta {
  std::string ns = "default";
  std::string name;
  std::string uid;
  std::string resource_version;
  int64_t generation = 0;
  std::optional<TimePoint> creation_time;
  std::optional<TimePoint> deletion_time;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  std::vector<std::string> finalizers;
};

struct TrainingJob {
  Meta meta;
  Spec spec;
  JobStatus status;
};

}  // namespace trainyard::api
