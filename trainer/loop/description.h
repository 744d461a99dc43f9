// What the job's model is, down to what its config.json says. Thread-safety: pure but for reading a file.
#pragma once

#include <optional>

#include "trainer/checkpoint/adapter.h"
#include "trainer/checkpoint/model_description.h"
#include "trainer/config/config.h"
#include "trainer/loop/failure.h"

namespace trainyard::loop {

// From the sizes of the job, with what its family has, or from the config.json of model.pretrained. Failures:
// kExitConfiguration for a config.json that is not there, cannot be trained here, or says other sizes than the job: the
// field is named, with both values; and for tokens or lengths of the job that do not fit the model.
Outcome<checkpoint::ModelDescription> Describe(const config::Job& job, const std::string& volume_root);

// The adapter that the job trains on such a model; nothing without one. Failure: kExitConfiguration for a target that
// the model has not.
Outcome<std::optional<checkpoint::AdapterDescription>> DescribeAdapter(const config::Job& job,
                                                                       const checkpoint::ModelDescription& model);

}  // namespace trainyard::loop
