// A hash of a model by its parameters as their files have them, so that an adapter finds the model that it belongs to.
// It is a sum over rows (trainer/contract/row_hash.h) under our names: ranks add up the rows that each of them reads,
// at every number of ranks, and a tool that reads the directory from end to end comes to the same. Thread-safety:
// functions of their arguments.
#pragma once

#include <string>

#include "trainer/checkpoint/adapter.h"
#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/foreign_model.h"

namespace trainyard::checkpoint {

// How many tensors and bytes the model has in these files; without a hash.
BaseReference SizeOfBase(const ForeignModel& source, const ModelDescription& model, const std::string& directory);

// The same with the hash: reads every parameter once. Memory: pieces of 32 MiB, or a row where that is more. Errors: as
// ForeignModel::Read.
Result<BaseReference> HashBase(ForeignModel& source, const ModelDescription& model, const std::string& directory);

// One line that says that a base is another than an adapter's; empty: they are the same.
std::string BaseDifference(const BaseReference& adapters, const BaseReference& found);

}  // namespace trainyard::checkpoint
