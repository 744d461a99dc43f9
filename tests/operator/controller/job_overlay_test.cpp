#include "operator/controller/job_overlay.h"

#include <gtest/gtest.h>

namespace trainyard::controller {
namespace {

JobPtr Job(const std::string& version, const std::string& uid = "u") {
  return std::make_shared<const JobRecord>(
      MakeJobRecord({{"metadata", {{"namespace", "ns"}, {"name", "a"}, {"uid", uid}, {"resourceVersion", version}}}}));
}

const cluster::ObjectKey kKey{"ns", "a"};

void Write(JobOverlay& overlay, const std::string& base, const std::string& written) {
  overlay.Begin(kKey, base);
  overlay.Put(Job(written));
}

TEST(JobOverlay, ShowsWhatWasWrittenUntilTheCacheHasIt) {
  JobOverlay overlay;
  const JobPtr v1 = Job("v1");
  EXPECT_EQ(overlay.Latest(kKey, v1), v1);
  Write(overlay, "v1", "v2");
  EXPECT_EQ(overlay.Latest(kKey, v1)->version, "v2");
  overlay.Observe(kKey, v1);  // the handler of the version that the write stood on may run late
  EXPECT_EQ(overlay.Latest(kKey, v1)->version, "v2");
  const JobPtr v2 = Job("v2");
  overlay.Observe(kKey, v2);
  EXPECT_EQ(overlay.Latest(kKey, v2), v2);
}

TEST(JobOverlay, FollowsAChainOfWrites) {
  JobOverlay overlay;
  const JobPtr v1 = Job("v1");
  Write(overlay, "v1", "v2");
  Write(overlay, "v2", "v3");
  overlay.Observe(kKey, Job("v2"));
  EXPECT_EQ(overlay.Latest(kKey, v1)->version, "v3");
  overlay.Observe(kKey, Job("v3"));
  EXPECT_EQ(overlay.Latest(kKey, v1), v1);
}

TEST(JobOverlay, TheCacheMayBeFasterThanTheAnswer) {
  JobOverlay overlay;
  overlay.Begin(kKey, "v1");
  overlay.Observe(kKey, Job("v2"));
  overlay.Observe(kKey, Job("v3"));  // a user's change on top of it
  overlay.Put(Job("v2"));
  const JobPtr v3 = Job("v3");
  EXPECT_EQ(overlay.Latest(kKey, v3), v3) << "an old answer must not hide a newer version for ever";

  Write(overlay, "v3", "v4");
  overlay.Begin(kKey, "v4");
  overlay.Observe(kKey, Job("v4"));
  overlay.Observe(kKey, Job("v5"));
  overlay.Put(Job("v5"));
  const JobPtr v5 = Job("v5");
  EXPECT_EQ(overlay.Latest(kKey, v5), v5);
}

TEST(JobOverlay, ALateOldVersionDoesNotCountAsNew) {
  JobOverlay overlay;
  overlay.Begin(kKey, "v1");
  overlay.Observe(kKey, Job("v1"));
  overlay.Put(Job("v2"));
  EXPECT_EQ(overlay.Latest(kKey, Job("v1"))->version, "v2");
}

TEST(JobOverlay, AVersionOutsideTheChainIsNewer) {
  JobOverlay overlay;
  Write(overlay, "v1", "v2");
  const JobPtr v9 = Job("v9");  // the watch was cut and listed again
  overlay.Observe(kKey, v9);
  EXPECT_EQ(overlay.Latest(kKey, v9), v9);
}

TEST(JobOverlay, ADeletedOrReplacedJobIsForgotten) {
  JobOverlay overlay;
  const JobPtr v1 = Job("v1");
  Write(overlay, "v1", "v2");
  overlay.Observe(kKey, nullptr);
  EXPECT_EQ(overlay.Latest(kKey, v1), v1);
  Write(overlay, "v1", "v2");
  overlay.Observe(kKey, Job("v7", "another"));
  EXPECT_EQ(overlay.Latest(kKey, v1), v1);
  overlay.Begin(kKey, "v1");
  overlay.Drop(kKey);
  EXPECT_EQ(overlay.Latest(kKey, v1), v1);
}

TEST(JobOverlay, ARefusedWriteDoesNotForgetTheOneBefore) {
  JobOverlay overlay;
  const JobPtr v1 = Job("v1");
  Write(overlay, "v1", "v2");  // claims GPUs; the cache does not have it yet
  overlay.Begin(kKey, "v2");
  overlay.Drop(kKey);  // someone else changed the job
  EXPECT_EQ(overlay.Latest(kKey, v1)->version, "v2") << "another job could take the same GPUs";
  overlay.Observe(kKey, Job("v2"));
  const JobPtr v3 = Job("v3");
  overlay.Observe(kKey, v3);
  EXPECT_EQ(overlay.Latest(kKey, v3), v3);

  Write(overlay, "v3", "v4");
  overlay.Begin(kKey, "v4");
  overlay.Observe(kKey, Job("v5"));  // the change that made the server refuse arrives first
  overlay.Drop(kKey);
  const JobPtr v5 = Job("v5");
  EXPECT_EQ(overlay.Latest(kKey, v5), v5);
}

}  // namespace
}  // namespace trainyard::controller
