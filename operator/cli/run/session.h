// One run of one job: the simulated cluster, the controller, the API on loopback, and the loop that follows the job to
// its end. Thread-safety: one thread.
#pragma once

#include <memory>
#include <string>

#include "operator/base/clock.h"
#include "operator/cli/run/interrupts.h"
#include "operator/cli/run/narrator.h"
#include "operator/cli/run/prepare.h"
#include "operator/cli/run/printer.h"
#include "operator/cli/run/state_dir.h"
#include "operator/controller/controller.h"
#include "operator/http/server.h"

namespace trainyard::cli {

class Session {
 public:
  // Starts everything and creates the job. Errors: kAlreadyExists when the port is taken; those of LocalCluster and
  // Controller.
  static Result<std::unique_ptr<Session>> Start(const RunSetup& setup, StateDir& state_dir, int port,
                                                const Clock& clock);
  // Stops the pods (politely unless the user stopped twice), the controller and the API.
  ~Session();

  // Follows the job until it ends, cannot be planned, or was interrupted; prints its story, and leaves the job as it
  // was last seen in STATE_DIR/jobs/NAMESPACE/NAME.json. Returns the exit code.
  int Follow(const Interrupts& interrupts, Printer& printer);

 private:
  Session(const RunSetup& setup, const std::string& state_dir, const Clock& clock);
  Result<api::TrainingJob> Read();
  // Asks the job to end its attempt with a checkpoint, as a person would in a cluster: spec.suspend.
  void Stop(const api::TrainingJob& job, Printer& printer);
  // The exit code once there is nothing more to wait for.
  std::optional<int> Ended(const api::TrainingJob& job, bool stopping, Printer& printer);
  void TellLogs(const api::TrainingJob& job, Printer& printer);
  Status Keep(const api::TrainingJob& job);

  const cluster::ObjectKey key_;
  const bool plan_only_;
  const std::string state_dir_;
  const Clock& clock_;
  Narrator narrator_{Milliseconds(5'000)};
  Milliseconds grace_{10'000};
  // In the order of their making: each uses the ones above.
  std::unique_ptr<local::LocalCluster> cluster_;
  std::unique_ptr<local::LocalProgressSource> progress_;
  std::unique_ptr<controller::Controller> controller_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace trainyard::cli
