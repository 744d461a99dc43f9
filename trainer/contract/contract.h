// Names that operator, launcher and trainer share: environment, exit codes, status and termination JSON, annotation of
// the resolved job. Header only, no dependencies, so that users' images can carry the launcher alone. Retold in
// docs/contract.md. Thread-safety: constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trainyard::contract {

// Version of everything in this header. The operator accepts its own and the previous one.
inline constexpr int kVersion = 1;

// ---- environment of a trainer process (set by the operator unless marked) ------------------------------
inline constexpr const char* kEnvMasterAddr = "MASTER_ADDR";
inline constexpr const char* kEnvMasterPort = "MASTER_PORT";
inline constexpr const char* kEnvNnodes = "NNODES";
inline constexpr const char* kEnvNodeRank = "NODE_RANK";
inline constexpr const char* kEnvNprocPerNode = "NPROC_PER_NODE";
inline constexpr const char* kEnvWorldSize = "WORLD_SIZE";  // processes
inline constexpr const char* kEnvRank = "RANK";             // by the launcher, per process
inline constexpr const char* kEnvLocalRank = "LOCAL_RANK";  // by the launcher, per process
inline constexpr const char* kEnvJobUid = "TRAINYARD_JOB_UID";
inline constexpr const char* kEnvAttempt = "TRAINYARD_ATTEMPT";
inline constexpr const char* kEnvRound =
    "TRAINYARD_ROUND";  // by the launcher: restarts of processes inside one attempt
// File that holds the resolved job (JSON). In a cluster a downward-API file of the annotation below.
inline constexpr const char* kEnvJobFile = "TRAINYARD_JOB_FILE";
inline constexpr std::string_view kDefaultJobFile = "/etc/trainyard/job.json";
// Directory under which each volume of the job appears by its name; "/volumes" unless set.
inline constexpr const char* kEnvVolumeRoot = "TRAINYARD_VOLUME_ROOT";
inline constexpr std::string_view kDefaultVolumeRoot = "/volumes";
// Scratch directory of the pod: status.json, step log, per-rank records. "/run/trainyard" unless set.
inline constexpr const char* kEnvRunDir = "TRAINYARD_RUN_DIR";
inline constexpr std::string_view kDefaultRunDir = "/run/trainyard";
// Port on which the launcher of node rank 0 serves GET /status; 0: any free port, written to RUN_DIR/status.port.
inline constexpr const char* kEnvStatusPort = "TRAINYARD_STATUS_PORT";
inline constexpr int kDefaultStatusPort = 8471;
inline constexpr int kDefaultMasterPort = 29500;
inline constexpr const char* kEnvTerminationLog = "TRAINYARD_TERMINATION_LOG";
inline constexpr std::string_view kDefaultTerminationLog = "/dev/termination-log";
// Token that POST requests to the launcher must carry ("Authorization: Bearer ..."); unset: POST is refused.
inline constexpr const char* kEnvToken = "TRAINYARD_TOKEN";
// Seconds between the stop signal and SIGKILL for the ranks; a few less than the pod's grace period.
inline constexpr const char* kEnvGraceSeconds = "TRAINYARD_GRACE_SECONDS";
inline constexpr int kDefaultGraceSeconds = 25;
// Seconds after which a collective that has not completed fails and names the rank that it waits for.
inline constexpr const char* kEnvCollectiveTimeout = "TRAINYARD_COLLECTIVE_TIMEOUT_SECONDS";
inline constexpr int kDefaultCollectiveTimeoutSeconds = 300;
// Bytes of host memory that each rank may take for the copy of its state from which a save is written; unset: as much
// as that has. What does not fit is written while training waits.
inline constexpr const char* kEnvCheckpointMemory = "TRAINYARD_CHECKPOINT_MEMORY_BYTES";
// This pod's own IP, to which Gloo binds.
inline constexpr const char* kEnvPodIp = "POD_IP";

// ---- files in the run directory ----------------------------------------------------------------------
inline constexpr std::string_view kStatusFile = "status.json";   // written by rank 0's trainer, renamed into place
inline constexpr std::string_view kStepLogFile = "steps.jsonl";  // JSON lines, rank 0
inline constexpr std::string_view kTextLogFile = "texts.jsonl";  // samples of evaluations, JSON lines, rank 0
// and flight.RANK: flight_record.h
inline constexpr std::string_view kStatusPortFile = "status.port";  // the port that the launcher got

// ---- labels, annotations, gates ------------------------------------------------------------------------
inline constexpr std::string_view kAnnotationJob = "trainyard.dev/job";
inline constexpr std::string_view kAnnotationRanks = "trainyard.dev/ranks";    // of the pod's processes: "8-15"
inline constexpr std::string_view kAnnotationDomain = "trainyard.dev/domain";  // topology path of its node, if known
inline constexpr std::string_view kLabelJobName = "trainyard.dev/job-name";
inline constexpr std::string_view kLabelJobUid = "trainyard.dev/job-uid";
inline constexpr std::string_view kLabelAttempt = "trainyard.dev/attempt";
inline constexpr std::string_view kLabelNodeRank = "trainyard.dev/node-rank";
inline constexpr std::string_view kLabelRole = "trainyard.dev/role";
inline constexpr std::string_view kGangGate = "trainyard.dev/gang";
inline constexpr std::string_view kContainerName = "trainer";

// ---- exit codes of trainer and launcher -----------------------------------------------------------------
// The launcher exits with the code of the first failing rank; that rank names the class of the failure.
enum ExitCode : int {
  kExitSucceeded = 0,      // the last step is done and saved
  kExitInternal = 1,       // a bug or an unclassified error
  kExitConfiguration = 2,  // the resolved job or the environment is wrong; does not retry
  kExitData = 3,           // training or validation data is missing or unreadable; does not retry
  kExitCheckpoint = 4,     // no readable checkpoint where one is required; does not retry
  kExitStorage = 5,        // disk full, read-only, vanished mount
  kExitCommunication =
      6,  // a peer is lost or a collective missed its deadline: the echo of another failure, unless alone
  kExitOutOfMemory = 7,  // host or GPU memory
  kExitNonFinite = 8,    // loss or gradients are not finite and the job says Stop; does not retry
  kExitFenced = 9,       // another job or a newer attempt owns the checkpoint directory; retried only above the latter
  kExitStopped = 10,     // stopped on purpose at a step boundary, checkpoint saved
  kExitPortInUse = 11,   // MASTER_PORT or the status port is taken by another program
};

// ---- status JSON (status.json and GET /status); absent means unknown ---------------------------------
// {"contract":1,"jobUid":s,"attempt":n,"round":n,"phase":s,"step":n,"steps":n,"loss":x,"validationLoss":x,
//  "initialValidationLoss":x,"validationPerplexity":x,"tokensPerSecond":x,"mfu":x,"stepSeconds":x,"dataSeconds":x,
//  "computeSeconds":x,"communicationSeconds":x,"optimizerSeconds":x,"checkpointSeconds":x,
//  "rankMemory":{"most":n,"mostRank":n,"least":n},"slowestRank":{"rank":n,"excess":x},
//  "lossSpike":{"step":n,"loss":x,"median":x},"resumedFromStep":n,
//  "restored":{"seconds":x,"bytesRead":n,"mostBytesRead":n,"firstStepSeconds":x},"skippedSteps":n,"worldSize":n,
//  "parameterHash":"hex","stateHash":"hex","loadedStateHash":"hex",
//  "checkpoint":{"step":n,"bytes":n,"seconds":x,"time":"RFC3339","stallSeconds":x,"writeSeconds":x,
//  "verified":b,"verifySeconds":x,"damage":s,"everySeconds":x,"costSeconds":x,"nextStep":n,"freeBytes":n,
//  "directoryBytes":n,"failures":n,"failure":s},"message":s}
namespace phase {
inline constexpr std::string_view kStarting = "Starting";    // rendezvous, reading configuration
inline constexpr std::string_view kRestoring = "Restoring";  // reading a checkpoint
inline constexpr std::string_view kTraining = "Training";
inline constexpr std::string_view kEvaluating = "Evaluating";
inline constexpr std::string_view kCheckpointing = "Checkpointing";
inline constexpr std::string_view kStopping = "Stopping";  // a stop was agreed; the checkpoint is being written
inline constexpr std::string_view kSucceeded = "Succeeded";
inline constexpr std::string_view kStopped = "Stopped";
inline constexpr std::string_view kFailed = "Failed";
}  // namespace phase

// ---- termination message JSON (termination log; at most 4,096 bytes) ------------------------------------
// {"contract":1,"class":s,"rank":n,"exitCode":n,"signal":n,"message":s,"step":n,"checkpointStep":n,
//  "status":{the status JSON above, from node rank 0 and where it fits}}
// `class` is the name of the failure class of the first failing rank:
namespace failure_class {
inline constexpr std::string_view kNone = "None";                    // exit 0 or kExitStopped
inline constexpr std::string_view kUser = "User";                    // bug, internal error, unknown exit
inline constexpr std::string_view kNonFinite = "NonFinite";          // a loss or a gradient is not finite
inline constexpr std::string_view kConfiguration = "Configuration";  // deterministic: configuration, data, checkpoint
inline constexpr std::string_view kOutOfMemory = "OutOfMemory";
inline constexpr std::string_view kCommunication = "Communication";
inline constexpr std::string_view kStorage = "Storage";
inline constexpr std::string_view kKilled = "Killed";  // SIGKILL or another signal from outside
}  // namespace failure_class

// A message of kExitFenced names the newer attempt that owns the checkpoint directory by these words:
// "... belongs to attempt N (round R) of this job...". The operator goes on above N.
inline constexpr std::string_view kOwnedByAttempt = " belongs to attempt ";
inline constexpr std::string_view kOwnedByRound = " (round ";
inline constexpr std::string_view kOwnedByThisJob = ") of this job";

// N of such a message; 0 where it has none, or one of more than 18 digits.
constexpr int64_t OwnerAttempt(std::string_view message) {
  const auto number = [&message]() -> int64_t {  // takes it off the front
    int64_t value = 0;
    size_t digits = 0;
    for (; digits < message.size() && message[digits] >= '0' && message[digits] <= '9'; ++digits) {
      if (digits == 18) return -1;
      value = value * 10 + (message[digits] - '0');
    }
    message.remove_prefix(digits);
    return digits == 0 ? -1 : value;
  };
  // From the end: the path before it may hold anything.
  const size_t start = message.rfind(kOwnedByAttempt);
  if (start == std::string_view::npos) return 0;
  message.remove_prefix(start + kOwnedByAttempt.size());
  const int64_t attempt = number();
  if (attempt < 0 || !message.starts_with(kOwnedByRound)) return 0;
  message.remove_prefix(kOwnedByRound.size());
  return number() >= 0 && message.starts_with(kOwnedByThisJob) ? attempt : 0;
}

// Name of the failure class for an exit code.
constexpr std::string_view ClassOfExit(int code) {
  switch (code) {
    case kExitSucceeded:
    case kExitStopped:
      return failure_class::kNone;
    case kExitConfiguration:
    case kExitData:
    case kExitCheckpoint:
    case kExitFenced:
      return failure_class::kConfiguration;
    case kExitStorage:
      return failure_class::kStorage;
    case kExitCommunication:
    case kExitPortInUse:
      return failure_class::kCommunication;
    case kExitOutOfMemory:
      return failure_class::kOutOfMemory;
    case kExitNonFinite:
      return failure_class::kNonFinite;
    default:
      return code > 128 ? failure_class::kKilled : failure_class::kUser;
  }
}

}  // namespace trainyard::contract
