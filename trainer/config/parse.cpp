#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "trainer/config/checkpoint_json.h"
#include "trainer/config/config.h"
#include "trainer/config/json_reader.h"
#include "trainer/config/model_json.h"
#include "trainer/contract/contract.h"

namespace trainyard::config {
namespace {

using nlohmann::json;

std::string JoinProblems(const Problems& problems) {
  std::string text;
  for (const std::string& problem : problems) {
    text += (text.empty() ? "" : "; ") + problem;
  }
  return text;
}

// Calls `more` with the reader of each file, for keys besides volume and path.
std::vector<VolumePath> ReadFiles(JsonReader& r, const char* key, bool optional, Problems& problems,
                                  const std::function<void(JsonReader&)>& more) {
  std::vector<VolumePath> files;
  const auto elements = r.Array(key, optional);
  for (const json* element : elements.value_or(std::vector<const json*>{})) {
    JsonReader file(element, r.Path(key) + "[" + std::to_string(files.size()) + "]", problems);
    files.push_back(ReadVolumePath(file));
    if (file.present() && files.back().path.empty()) {
      file.Add("path", "is empty; name a file");
    }
    more(file);
    file.Finish();
  }
  return files;
}

Data ReadData(JsonReader r, Problems& problems) {
  Data d;
  d.format = r.Enum<DataFormat>("format", {{"Text", DataFormat::kText}, {"Tokens", DataFormat::kTokens}});
  std::vector<std::optional<double>> weights;
  const std::vector<VolumePath> train = ReadFiles(r, "train", false, problems, [&](JsonReader& file) {
    const double weight = file.Number("weight", 0, 1e12, true, -1);
    weights.push_back(weight > 0 ? std::optional(weight) : std::nullopt);
  });
  for (size_t i = 0; i < train.size(); ++i) d.train.push_back({train[i], weights[i]});
  d.validation = ReadFiles(r, "validation", true, problems, [](JsonReader&) {});
  const int64_t separator = r.Int("documentSeparator", 0, kLargeSize, -1);
  if (separator >= 0) d.document_separator = separator;
  r.Finish();
  return d;
}

void ReadAdamW(JsonReader& r, Optimizer& o) {
  if (const auto betas = r.Array("betas")) {
    const bool two = betas->size() == 2 && (*betas)[0]->is_number() && (*betas)[1]->is_number();
    o.beta1 = two ? (*betas)[0]->get<double>() : -1;
    o.beta2 = two ? (*betas)[1]->get<double>() : -1;
    if (!(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1)) {
      r.Add("betas", "give two numbers from 0 to below 1");
    }
  }
  o.epsilon = r.Number("epsilon", 0, 1, true);
}

void ReadSgd(JsonReader& r, Optimizer& o) {
  o.momentum = r.Fraction("momentum");
  o.nesterov = r.Bool("nesterov");
}

Optimizer ReadOptimizer(JsonReader r) {
  Optimizer o;
  o.kind = r.Enum<OptimizerKind>("name", {{"AdamW", OptimizerKind::kAdamW},
                                          {"AdamW8bit", OptimizerKind::kAdamW8bit},
                                          {"Adafactor", OptimizerKind::kAdafactor},
                                          {"SGD", OptimizerKind::kSgd}});
  o.learning_rate = r.Number("learningRate", 0, 1e3, true);
  o.weight_decay = r.Number("weightDecay", 0, 1e3, false);
  if (o.kind == OptimizerKind::kAdamW || o.kind == OptimizerKind::kAdamW8bit) ReadAdamW(r, o);
  if (o.kind == OptimizerKind::kSgd) ReadSgd(r, o);
  r.Finish();
  return o;
}

Schedule ReadSchedule(JsonReader r) {
  Schedule s;
  s.type = r.Enum<ScheduleType>("type", {{"Cosine", ScheduleType::kCosine},
                                         {"Linear", ScheduleType::kLinear},
                                         {"Constant", ScheduleType::kConstant},
                                         {"WarmupStableDecay", ScheduleType::kWarmupStableDecay}});
  s.warmup_steps = r.Int("warmupSteps", 0, kManySteps);
  s.min_learning_rate_ratio = r.Number("minLearningRateRatio", 0, 1, false);
  if (s.type == ScheduleType::kWarmupStableDecay) {
    s.decay_steps = r.Int("decaySteps", 0, kManySteps);
    s.decay_shape = r.Enum<DecayShape>(
        "decayShape", {{"Linear", DecayShape::kLinear}, {"Cosine", DecayShape::kCosine}, {"Sqrt", DecayShape::kSqrt}});
  }
  r.Finish();
  return s;
}

std::optional<Sample> ReadSample(JsonReader r) {
  if (!r.present()) return std::nullopt;
  Sample s;
  s.prompt = r.String("prompt");
  s.tokens = r.Int("tokens", 1, kLargeSize);
  s.temperature = r.Number("temperature", 0, 1e3, false);
  r.Finish();
  return s;
}

std::optional<Profile> ReadProfile(JsonReader r) {
  if (!r.present()) return std::nullopt;
  Profile p;
  p.from_step = r.Int("fromStep", 1, kManySteps);
  p.steps = r.Int("steps", 1, kManySteps);
  if (r.Has("volume")) p.directory = ReadVolumePath(r);
  r.Finish();
  return p;
}

Observe ReadObserve(JsonReader r) {
  Observe o;
  if (!r.present()) return o;
  JsonReader tensorboard = r.Object("tensorboard", true);
  if (tensorboard.present()) {
    o.tensorboard = ReadVolumePath(tensorboard);
    tensorboard.Finish();
  }
  o.peak_flops = r.Number("peakFlops", 0, 1e21, false, 0);
  r.Finish();
  return o;
}

Training ReadTraining(JsonReader r) {
  Training t;
  t.device = r.Enum<DeviceType>("device", {{"CPU", DeviceType::kCpu}, {"CUDA", DeviceType::kCuda}});
  t.sequence_length = r.Int("sequenceLength", 1, kLargeSize);
  t.global_batch_size = r.Int("globalBatchSize", 1, kLargeSize);
  t.micro_batch_size = r.Int("microBatchSize", 1, kLargeSize);
  t.steps = r.Int("steps", 1, kManySteps);
  t.precision = r.Enum<Precision>("precision", {{"FP32", Precision::kFp32}, {"BF16", Precision::kBf16}});
  if (r.Has("activationCheckpointing")) {
    t.activation_checkpointing =
        r.Enum<ActivationCheckpointing>("activationCheckpointing", {{"None", ActivationCheckpointing::kNone},
                                                                    {"Selective", ActivationCheckpointing::kSelective},
                                                                    {"Full", ActivationCheckpointing::kFull}});
  }
  t.optimizer = ReadOptimizer(r.Object("optimizer"));
  t.schedule = ReadSchedule(r.Object("schedule"));
  t.gradient_clip_norm = r.Number("gradientClipNorm", 0, 1e12, false);
  if (r.Has("onNonFiniteLoss")) {
    t.on_non_finite_loss =
        r.Enum<NonFinite>("onNonFiniteLoss", {{"Stop", NonFinite::kStop}, {"SkipStep", NonFinite::kSkipStep}});
  }
  JsonReader evaluation = r.Object("evaluation", true);
  if (evaluation.present()) {
    t.evaluation_every_steps = evaluation.Int("everySteps", 0, kManySteps);
    t.evaluation_batches = evaluation.Int("batches", 0, kManySteps);
    t.sample = ReadSample(evaluation.Object("sample", true));
    evaluation.Finish();
  }
  t.profile = ReadProfile(r.Object("profile", true));
  t.seed = r.Unsigned("seed");
  t.determinism = r.Enum<Determinism>(
      "determinism",
      {{"None", Determinism::kNone}, {"Layout", Determinism::kLayout}, {"WorldSize", Determinism::kWorldSize}},
      Determinism::kNone);
  t.threads = static_cast<int>(r.Int("threads", 0, 4096, 0));
  r.Finish();
  return t;
}

Parallelism ReadParallelism(JsonReader r) {
  Parallelism p;
  p.strategy = r.Enum<Strategy>("strategy", {{"DDP", Strategy::kDdp},
                                             {"ZeRO1", Strategy::kZero1},
                                             {"ZeRO2", Strategy::kZero2},
                                             {"FSDP", Strategy::kFsdp},
                                             {"HSDP", Strategy::kHsdp}});
  p.shard_size = static_cast<int>(r.Int("shardSize", 0, std::numeric_limits<int32_t>::max(), 0));
  if (p.shard_size > 0 && p.strategy != Strategy::kHsdp) {
    r.Add("shardSize", "is for strategy HSDP only; remove it");
  }
  p.gradient_reduction = r.Enum<GradientReduction>(
      "gradientReduction",
      {{"EachMicroBatch", GradientReduction::kEachMicroBatch}, {"LastMicroBatch", GradientReduction::kLastMicroBatch}},
      GradientReduction::kEachMicroBatch);
  if (r.Has("offload")) p.offload = r.Enum<Offload>("offload", {{"CPU", Offload::kCpu}, {"NVMe", Offload::kNvme}});
  if (r.Has("offloadVolume")) p.offload_volume = ReadVolumeName(r, "offloadVolume");
  if (p.offload == Offload::kNvme && p.offload_volume.empty()) {
    r.Add("offloadVolume", "is missing with offload NVMe; name a volume on a local disk");
  }
  if (p.offload != Offload::kNvme && !p.offload_volume.empty()) {
    r.Add("offloadVolume", "is for offload NVMe only; remove it");
  }
  r.Finish();
  return p;
}

// What single fields cannot tell.
void CheckCombinations(const Job& job, Problems& problems) {
  const auto require = [&](bool holds, const std::string& problem) {
    if (!holds) {
      problems.push_back(problem);
    }
  };
  const auto n = [](int64_t value) { return std::to_string(value); };
  if (job.model.HasSizes()) {
    CheckModel(job.model, problems);
    CheckModelFits(job, problems);
  }
  const Training& t = job.training;
  require(t.micro_batch_size <= t.global_batch_size, "training.microBatchSize: " + n(t.micro_batch_size) +
                                                         " is more than training.globalBatchSize " +
                                                         n(t.global_batch_size));
  // As many as exact sums have room for (engine/fixed_point.h).
  require(t.determinism != Determinism::kWorldSize || (t.global_batch_size - 1) / t.micro_batch_size < int64_t{1} << 20,
          "training.microBatchSize: " + n(t.micro_batch_size) + " cuts training.globalBatchSize " +
              n(t.global_batch_size) + " into more than 1048576, too many for training.determinism WorldSize");
  require(t.determinism != Determinism::kWorldSize || t.optimizer.kind != OptimizerKind::kAdafactor,
          "training.determinism: WorldSize cannot be had with training.optimizer.name Adafactor, whose statistics are "
          "floating-point sums over ranks; use AdamW or AdamW8bit, or determinism Layout");
  require(!t.optimizer.nesterov || t.optimizer.momentum > 0,
          "training.optimizer.nesterov: true needs training.optimizer.momentum above 0");
  require(t.schedule.warmup_steps <= t.steps, "training.schedule.warmupSteps: " + n(t.schedule.warmup_steps) +
                                                  " is more than training.steps " + n(t.steps));
  require(t.schedule.warmup_steps > t.steps || t.schedule.decay_steps <= t.steps - t.schedule.warmup_steps,
          "training.schedule.decaySteps: " + n(t.schedule.decay_steps) + " after warmupSteps " +
              n(t.schedule.warmup_steps) + " is more than training.steps " + n(t.steps));
  require(!job.data.train.empty(), "data.train: is empty; name at least one file");
  const bool evaluates = t.evaluation_every_steps > 0;
  require(!evaluates || t.evaluation_batches > 0,
          "training.evaluation.batches: 0 with everySteps " + n(t.evaluation_every_steps) + "; give a positive number");
  require(!evaluates || !job.data.validation.empty(),
          "data.validation: is empty although training.evaluation.everySteps is " + n(t.evaluation_every_steps) +
              "; name a file or set everySteps to 0");
  require(!t.sample || (!job.data.validation.empty() && t.evaluation_batches > 0),
          "training.evaluation.sample: samples are written at evaluations, and data.validation is empty; name a file");
  require(!t.sample || job.data.format == DataFormat::kText || job.model.pretrained,
          "training.evaluation.sample: needs model.pretrained, whose tokenizer reads the prompt, or data.format Text");
  require(!job.model.adapter || job.model.pretrained,
          "model.adapter: needs model.pretrained, the weights that it is trained beside");
  if (job.checkpoint.has_value()) {
    CheckCheckpoint(*job.checkpoint, problems);
  }
}

}  // namespace

std::string VolumePath::Resolve(const std::string& volume_root) const {
  return volume_root + "/" + volume + (path.empty() ? "" : "/" + path);
}

std::vector<double> Data::Weights() const {
  std::vector<double> weights;
  bool given = false;
  for (const TrainFile& file : train) {
    weights.push_back(file.weight.value_or(1));
    given = given || file.weight.has_value();
  }
  return given ? weights : std::vector<double>();
}

std::string DeviceName(DeviceType device) { return device == DeviceType::kCpu ? "CPU" : "CUDA"; }

Result<Job> Parse(const std::string& text) {
  json document;
  try {
    document = json::parse(text);
  } catch (const json::parse_error& e) {
    return Fail(ErrorCode::kInvalidArgument, "resolved job: not JSON at byte " + std::to_string(e.byte) +
                                                 "; it is written by the operator and not to be edited");
  }
  Problems problems;
  JsonReader r(&document, "", problems);
  Job job;
  if (r.present() && document.contains("contract") && document["contract"] != contract::kVersion) {
    return Fail(ErrorCode::kInvalidArgument, "contract: " + Show(document["contract"]) + " is not " +
                                                 std::to_string(contract::kVersion) +
                                                 "; use the trainer that belongs to this operator");
  }
  r.Int("contract", contract::kVersion, contract::kVersion);
  JsonReader identity = r.Object("job");
  job.identity = {identity.String("namespace"), identity.String("name"), identity.String("uid")};
  identity.Finish();
  job.model = ReadModel(r.Object("model"));
  job.data = ReadData(r.Object("data"), problems);
  job.training = ReadTraining(r.Object("training"));
  job.parallelism = ReadParallelism(r.Object("parallelism"));
  job.checkpoint = ReadCheckpoint(r.Object("checkpoint", true));
  job.observe = ReadObserve(r.Object("observe", true));
  r.Finish();
  // Combinations of values that are themselves wrong would only repeat the complaint.
  if (problems.empty()) {
    CheckCombinations(job, problems);
  }
  if (!problems.empty()) {
    return Fail(ErrorCode::kInvalidArgument, JoinProblems(problems));
  }
  return job;
}

Result<Job> Load(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) {
    const int why = errno;
    return Fail(why == EACCES ? ErrorCode::kPermissionDenied : ErrorCode::kNotFound,
                "resolved job " + file + " cannot be read: " + std::strerror(why) + "; see " + contract::kEnvJobFile);
  }
  Result<Job> job = Parse(text.str());
  return job ? std::move(job) : Result<Job>(Fail(job.error().Wrap(file)));
}

Status CheckTogether(const Job& job, const RankEnv& env) {
  if (env.world > job.training.global_batch_size) {
    return Fail(ErrorCode::kInvalidArgument,
                "training.globalBatchSize: " + std::to_string(job.training.global_batch_size) + " is less than " +
                    contract::kEnvWorldSize + " " + std::to_string(env.world) +
                    ", so some ranks would never train; use fewer ranks");
  }
  if (const int shard = ShardSize(job.parallelism, env); env.world % shard != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "parallelism.shardSize: groups of " + std::to_string(shard) +
                    (job.parallelism.shard_size > 0 ? "" : " ranks, as many as a node has,") + " do not divide " +
                    contract::kEnvWorldSize + " " + std::to_string(env.world) + "; give a divisor of it");
  }
  if (!env.uid.empty() && env.uid != job.identity.uid) {
    return Fail(ErrorCode::kInvalidArgument, std::string(contract::kEnvJobUid) + ": " + env.uid + " is not job.uid " +
                                                 job.identity.uid + "; the pod belongs to another job");
  }
  return {};
}

int ShardSize(const Parallelism& parallelism, const RankEnv& env) {
  switch (parallelism.strategy) {
    case Strategy::kDdp:
      return 1;
    case Strategy::kHsdp:
      return parallelism.shard_size > 0 ? parallelism.shard_size : env.local_world;
    default:
      return env.world;
  }
}

}  // namespace trainyard::config
