#include "tests/operator/api/sample_jobs.h"

#include "operator/api/defaults.h"
#include "operator/api/json.h"

namespace trainyard::api {

TrainingJob FullJob() {
  TrainingJob job;
  TimePoint noon = ParseTime("2026-01-31T12:00:00Z").value();
  job.meta = {.ns = "team",
              .name = "tiny",
              .uid = "0f6c1f5e-0000-4000-8000-000000000001",
              .resource_version = "41",
              .generation = 3,
              .creation_time = noon,
              .deletion_time = noon + Milliseconds(60'000),
              .labels = {{"team", "a"}},
              .annotations = {{"note", "first\nsecond"}}};
  Spec& s = job.spec;
  s.model.parameters = "7B";
  s.model.architecture = Architecture{.layers = 6,
                                      .hidden_size = 256,
                                      .attention_heads = 8,
                                      .kv_heads = 4,
                                      .head_size = 64,
                                      .ffn_size = 688,
                                      .vocab_size = 256,
                                      .tied_embeddings = true,
                                      .max_positions = 512};
  s.model.pretrained = VolumeDirectory{"corpus", "models/llama"};
  s.model.adapter = Adapter{
      .rank = 8, .alpha = 24.5, .dropout = 0.125, .targets = {"q_proj", "v_proj"}, .quantize_base = QuantizeBase::kNf4};
  s.data = Data{.format = DataFormat::kTokens,
                .train = {{"corpus", "a.bin", 2.5}, {"corpus", "b.bin", 0.5}},
                .validation = {{"corpus", "valid.bin"}},
                .document_separator = 0};
  s.training = {.device = DeviceKind::kCpu,
                .sequence_length = 128,
                .global_batch_size = 16,
                .micro_batch_size = 4,
                .steps = 400,
                .precision = Precision::kFp32,
                .optimizer = {.name = OptimizerKind::kSgd,
                              .learning_rate = 0.001,
                              .betas = {0.8, 0.99},
                              .epsilon = 1e-9,
                              .weight_decay = 0.01,
                              .momentum = 0.75,
                              .nesterov = true},
                .schedule = {.type = ScheduleType::kWarmupStableDecay,
                             .warmup_steps = 20,
                             .min_learning_rate_ratio = 0.25,
                             .decay_steps = 40,
                             .decay_shape = DecayShape::kSqrt},
                .gradient_clip_norm = 0.5,
                .on_non_finite_loss = NonFiniteLoss::kSkipStep,
                .evaluation = {.every_steps = 100,
                               .batches = 8,
                               .sample = Sample{.prompt = "Once upon a time", .tokens = 32, .temperature = 0.75}},
                .activation_checkpointing = ActivationCheckpointing::kSelective,
                .seed = 9223372036854775807,
                .determinism = Determinism::kWorldSize};
  s.parallelism = {.strategy = Strategy::kZero2, .offload = OffloadTo::kNvme, .offload_volume = "scratch"};
  s.gpus = {.count = 2,
            .min_count = 1,
            .max_count = 4,
            .per_node = 1,
            .products = {"H100-SXM"},
            .nvlink = NvLink::kRequired,
            .topology = {.level = "rack", .mode = TopologyMode::kRequired},
            .goal = Goal::kFastest,
            .allow_overcommit = true};
  s.budget = {.max_hours = 60.5, .max_cost = 30'000.5};
  s.checkpoint = Checkpoint{.volume = "checkpoints",
                            .path = "elsewhere",
                            .every_steps = 50,
                            .every_minutes = 7.5,
                            .keep_last = 5,
                            .keep_every_steps = 1000,
                            .verify = VerifyCheckpoints{.after_save = false, .every_hours = 12},
                            .resume = Resume::kStep,
                            .resume_step = 100,
                            .resume_from = ResumeFrom{"checkpoints", "base", 200, true},
                            .on_delete = OnDelete::kDelete,
                            .export_on_success = VolumeDirectory{"checkpoints", "out"}};
  s.observe = {.tensor_board = VolumeDirectory{"checkpoints", "events"},
               .profile = Profile{.from_step = 10, .steps = 3, .volume = "checkpoints", .path = "traces"}};
  s.recovery = {.max_user_restarts = 1, .max_infrastructure_restarts = 9, .max_grace_seconds = 60};
  s.suspend = true;
  s.plan_only = true;
  s.managed_by = "example.com/other";
  s.priority_class_name = "research";
  s.image = "example.com/me/train:1";
  s.command = {"torchrun", "train.py"};
  s.args = {"--fast"};
  s.env = {{"NCCL_DEBUG", "INFO"}};
  s.volumes = {{.name = "corpus", .claim_name = "corpus-claim", .host_path = "/data", .empty_dir = true}};
  s.pod_template.labels = {{"team", "a"}};
  s.pod_template.annotations = {{"example.com/note", "b c"}};
  s.pod_template.nodes = {
      .node_selector = {{"pool", "training"}},
      .affinity = {{.expressions = {{"zone", "In", {"a", "b"}}}, .fields = {{"metadata.name", "NotIn", {"node-x"}}}}},
      .tolerations = {{"dedicated", "Equal", "training", "NoExecute", 60}}};
  s.pod_template.preferences =
      R"([{"weight": 10, "preference": {"matchExpressions": [{"key": "new", "operator": "Exists"}]}}])";
  s.pod_template.rest = R"({
    "serviceAccountName": "trainer", "automountServiceAccountToken": true, "imagePullSecrets": [{"name": "registry"}],
    "securityContext": {"runAsUser": 1000}, "hostNetwork": true, "hostIPC": true,
    "dnsPolicy": "ClusterFirstWithHostNet", "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
    "runtimeClassName": "nvidia", "schedulerName": "other-scheduler",
    "initContainers": [{"name": "warm", "image": "warm:1"}],
    "containers": [{"name": "logs", "image": "logs:1"}], "volumes": [{"name": "keys", "secret": {"secretName": "k"}}]})";
  JobStatus& t = job.status;
  t.phase = Phase::kRecovering;
  t.reason = "rank 1 was killed";
  t.observed_generation = 3;
  t.conditions = {{"Planned", "True", "Fits", "2 GPUs", 3, noon}};
  t.gpus = 2;
  t.selector = "trainyard.dev/job-uid=x";
  t.plan = PlanStatus{.strategy = "ZeRO2",
                      .gpus = 2,
                      .per_node = 1,
                      .product = "H100-SXM",
                      .micro_batch_size = 4,
                      .accumulation = 2,
                      .parameters = 3030272,
                      .bytes_per_gpu = 48484352,
                      .capacity_bytes = 85899345920,
                      .checkpoint_bytes = 36363264,
                      .why = "smallest that fits",
                      .generation = 3,
                      .activation_checkpointing = "Full",
                      .gradient_reduction = "LastMicroBatch",
                      .offload = "NVMe",
                      .host_bytes_per_gpu = 1024,
                      .disk_bytes_per_gpu = 2048,
                      .bytes = {1, 2, 3, 4, 5, 6, 7, 8},
                      .efficiency = 0.9,
                      .expected_efficiency = 0.95,
                      .step_seconds = 0.5,
                      .tokens_per_second = 4096.5,
                      .hours = 12.5,
                      .cost = 99.5,
                      .currency = "EUR",
                      .alternatives = {{"L40S", 4, "FSDP", 20.5, 88.5, "4 x L40S: 8.00 h later, but costs 11.00 less"}},
                      .advice = {"Two GPUs are the easiest to debug."},
                      .corrections = {.states = 1.5, .activations = 0.75, .buffers = 1.25, .step_seconds = 0.5}};
  t.placement = PlacementStatus{.nodes = {{"node-a", 1}, {"node-b", 1}},
                                .domain = "rack-3",
                                .domains = {{"zone-a/rack-3", 2}},
                                .fabric = "infiniband",
                                .environment = {{"NCCL_IB_HCA", "mlx5"}},
                                .resources = {{"rdma/hca", 1}}};
  t.trainer = TrainerStatus{"example.com/me/train:1", 1000, 2147483648, 3};
  t.attempt = 7;
  t.started = true;
  t.stop = StopStatus{"Resize", 6, noon + Milliseconds(9)};
  t.undone_generation = 3;
  t.restarts = {1, 2};
  t.consecutive_failures = 1;
  t.retry_after = noon + Milliseconds(1'234);
  t.placing_since = noon + Milliseconds(5);
  t.ungated_at = noon + Milliseconds(6);
  t.progress_time = noon + Milliseconds(7);
  t.told_at = noon + Milliseconds(8);
  t.start_time = noon;
  t.completion_time = noon + Milliseconds(3'600'000);
  t.excluded_nodes = {{"node-c", 2}};
  t.excluded_at = {{"node-c", noon}};
  t.progress = Progress{.step = 120,
                        .steps = 400,
                        .loss = 2.5,
                        .validation_loss = 2.75,
                        .initial_validation_loss = 5.55,
                        .validation_perplexity = 15.6,
                        .tokens_per_second = 1234.5,
                        .mfu = 0.4,
                        .step_seconds = 0.25,
                        .step_time = StepTime{0.01, 0.2, 0.02, 0.01, 0.5},
                        .step_gpus = 4,
                        .trainer_phase = "Training",
                        .resumed_from_step = 100,
                        .parameter_hash = "0123456789abcdef",
                        .state_hash = "0123456789abcdef",
                        .loaded_state_hash = "fedcba9876543210",
                        .load_seconds = 0.5,
                        .load_bytes = 123456,
                        .memory = MemoryStatus{1, 2, 3, 4, 5, 6, 7},
                        .rank_memory = RankMemory{9, 3, 8},
                        .loss_spike = LossSpike{77, 9.5, 2.5},
                        .skipped_steps = 2};
  t.checkpoint = CheckpointStatus{.step = 100,
                                  .bytes = 36363264,
                                  .seconds = 0.5,
                                  .time = "2026-01-31T12:00:00Z",
                                  .stall_seconds = 0.01,
                                  .write_seconds = 0.4,
                                  .verify_seconds = 0.3,
                                  .verified = true,
                                  .damage = "step 50: model/shard-00001: tensor a of rank 0",
                                  .every_seconds = 600.5,
                                  .cost_seconds = 0.02,
                                  .next_step = 200,
                                  .free_bytes = 1'000'000'000,
                                  .directory_bytes = 109'000'000,
                                  .failures = 2,
                                  .failure = "step 150, rank 1: disk full",
                                  .mean_failure_hours = 695.5,
                                  .failure_source = "nothing was seen yet",
                                  .full_at = noon};
  t.exposure = Exposure{12.5, 3};
  t.resize = ResizeStatus{.from = 2,
                          .to = 4,
                          .why = "spec.gpus",
                          .attempt = 7,
                          .wanted_at = noon + Milliseconds(10),
                          .stopped_at = noon + Milliseconds(11),
                          .gone_at = noon + Milliseconds(12),
                          .loaded_at = noon + Milliseconds(13),
                          .seconds = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6},
                          .bytes_read_per_rank = 123456,
                          .saved_hash = "0123456789abcdef",
                          .loaded_hash = "0123456789abcdef"};
  t.removing_since = noon + Milliseconds(14);
  t.measured = PlanCorrections{.states = 1.5, .activations = 0.75, .buffers = 1.25, .step_seconds = 0.5};
  t.advice = {"use FSDP"};
  return job;
}

nlohmann::json MinimalTrainerManifest() {
  return nlohmann::json::parse(R"({
    "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "tiny"},
    "spec": {
      "model": {"architecture": {"layers": 6, "hiddenSize": 256, "attentionHeads": 8}},
      "data": {"train": [{"volume": "corpus", "path": "train.txt"}]},
      "checkpoint": {"volume": "checkpoints"},
      "volumes": [{"name": "corpus", "hostPath": {"path": "/data"}},
                  {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}}]}})");
}

nlohmann::json MinimalImageManifest() {
  return nlohmann::json::parse(R"({
    "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "tune"},
    "spec": {"model": {"parameters": "7B"}, "parallelism": {"strategy": "FSDP"}, "image": "me/finetune:1",
             "command": ["torchrun", "train.py"]}})");
}

TrainingJob SmallJob() {
  TrainingJob job = JobFromJson(MinimalTrainerManifest()).value();
  ApplyDefaults(job);
  return job;
}

}  // namespace trainyard::api
