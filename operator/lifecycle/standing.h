// Where a job stands among those that wait for GPUs and those that hold them. Private to the room, but for what
// lifecycle.h offers of it. Pure. Thread-safety: pure functions.
#pragma once

#include "operator/lifecycle/lifecycle.h"
#include "operator/placement/place.h"

namespace trainyard::lifecycle {

// What the next attempt's pods run and ask for. Every pod of every attempt of a generation runs the image of the first
// one and asks for the same, whatever the operator's defaults are by then, and whatever the spec says while the pods of
// an attempt are being created.
api::TrainerStatus FrozenTrainer(const api::TrainingJob& job, const Options& options);

// What `plan` of the job asks of the yard at `now`.
placement::GangRequest RequestOf(const api::TrainingJob& job, const api::PlanStatus& plan, const Options& options,
                                 TimePoint now);

// How long an attempt by `plan` has left to run from where the job is; nullopt: nobody knows.
std::optional<Milliseconds> TimeLeft(const api::TrainingJob& job, const api::PlanStatus& plan);

// The class, or the default of a cluster without any where it is not known.
api::PriorityClass PriorityOr(const Result<api::PriorityClass>& found);

}  // namespace trainyard::lifecycle
