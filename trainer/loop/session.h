// One rank's training run: everything that setup builds once and the loop uses. The order of members is the order of
// construction; destruction runs backwards, so that the engine goes before the groups and the device it uses.
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/adapter.h"
#include "trainer/checkpoint/model_description.h"
#include "trainer/config/config.h"
#include "trainer/data/background_reader.h"
#include "trainer/data/batch.h"
#include "trainer/data/dataset.h"
#include "trainer/device/device.h"
#include "trainer/dist/comm.h"
#include "trainer/dist/mesh.h"
#include "trainer/engine/engine.h"
#include "trainer/loop/failure.h"
#include "trainer/loop/report.h"
#include "trainer/loop/sample_log.h"
#include "trainer/loop/save.h"
#include "trainer/loop/step_watch.h"
#include "trainer/loop/text_sample.h"
#include "trainer/model/family.h"

namespace trainyard::loop {

// How far training has come. All of it is in train_state.json.
struct Progress {
  int64_t step = 0;              // optimizer steps done
  int64_t cursor = 0;            // sequences consumed by all ranks together
  int64_t tokens = 0;            // the same in tokens
  int64_t skipped = 0;           // of the steps done, those without an update
  int64_t skipped_in_a_row = 0;  // until the last step
  std::optional<double> loss;
  std::optional<double> initial_validation_loss;
  std::optional<double> validation_loss;
  std::optional<int64_t> saved_step;  // newest checkpoint of this state's history
};

// The model that an adapter is trained on, as it was read.
struct Base {
  checkpoint::BaseReference reference;  // the same on every rank
  int64_t bytes_read = 0;               // by this rank
  double seconds = 0;
};

struct Session {
  config::Job job;
  checkpoint::ModelDescription description;               // of job.model
  std::optional<checkpoint::AdapterDescription> adapter;  // of job.model.adapter, with its targets
  std::optional<Base> base;                               // only with an adapter, once it has been read
  config::RankEnv env;
  int threads = 1;
  std::unique_ptr<Report> report;
  std::vector<std::unique_ptr<data::TokenSource>> train_sources;
  std::unique_ptr<data::TokenSource> validation_source;
  std::optional<data::BatchReader> train, validation;
  std::unique_ptr<data::BackgroundReader> feed;  // of `train`: this rank's micro-batches
  std::unique_ptr<TextSample> text_sample;       // null unless the job wants one
  std::optional<SampleLog> sample_log;           // debugging aid, off unless asked for
  std::shared_ptr<StepWatch> watch;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<dist::Comm> world;  // for host memory: what ranks tell each other
  std::unique_ptr<dist::Comm> gpus;   // the same ranks for GPU memory; null on the CPU
  std::unique_ptr<dist::Mesh> mesh;   // over tensors()
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<TracedHost> traced;  // only with job.training.profile
  std::unique_ptr<model::Model> model;
  Progress progress;
  std::chrono::steady_clock::time_point loaded_at;  // with report->status().restored
  std::unique_ptr<Saver> saver;                     // only with job.checkpoint; Save and the loop make it

  // The group for tensors of the device.
  dist::Comm& tensors() const { return gpus ? *gpus : *world; }
  // Directory of the job's checkpoints; only with job.checkpoint.
  std::string CheckpointRoot() const { return job.checkpoint->directory.Resolve(env.volume_root); }
};

}  // namespace trainyard::loop
