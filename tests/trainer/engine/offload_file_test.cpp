// The scratch file by itself: what it keeps, that nothing is left of it, and what it says when the storage fails.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "trainer/engine/offload_file.h"

namespace trainyard::engine {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kBlock = OffloadFile::kAlignment;

// A directory of its own, gone with the test; optionally a small file system.
class Scratch {
 public:
  explicit Scratch(const char* tmpfs_options = nullptr) {
    std::string name = ::testing::TempDir() + "offload-XXXXXX";
    path_ = mkdtemp(name.data());
    mounted_ = tmpfs_options != nullptr && mount("trainyard-test", path_.c_str(), "tmpfs", 0, tmpfs_options) == 0;
  }
  ~Scratch() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
    std::filesystem::remove_all(path_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }
  bool mounted() const { return mounted_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
  bool mounted_ = false;
};

struct Free {
  void operator()(char* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<char, Free>;
Buffer Random(int64_t bytes, uint64_t seed) {
  Buffer buffer(static_cast<char*>(std::aligned_alloc(kBlock, static_cast<size_t>(bytes))));
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < bytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(buffer.get() + i, &word, 8);
  }
  return buffer;
}

std::string ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const OffloadError& error) {
    return error.what();
  }
  return "";
}

TEST(OffloadFile, KeepsWhatIsWrittenAndIsZeroBefore) {
  const Scratch scratch;
  constexpr int64_t kBytes = 40 << 20;  // more than one request
  OffloadFile file(scratch.path(), 0, kBytes + kBlock);
  const Buffer data = Random(kBytes, 1), back = Random(kBytes, 2), zeros(static_cast<char*>(std::calloc(1, kBlock)));
  file.Read(0, back.get(), kBlock, {}).get();
  EXPECT_EQ(std::memcmp(back.get(), zeros.get(), kBlock), 0);
  const OffloadFile::Ticket written = file.Write(kBlock, data.get(), kBytes);
  file.Read(kBlock, back.get(), kBytes, written).get();
  EXPECT_EQ(std::memcmp(back.get(), data.get(), kBytes), 0);
  EXPECT_TRUE(scratch.empty()) << "it has no name";
}

TEST(OffloadFile, CopiesAnyBytesAfterTheWritesBefore) {
  const Scratch scratch;
  constexpr int64_t kBytes = 12 << 20;
  OffloadFile file(scratch.path(), 0, kBytes);
  const Buffer data = Random(kBytes, 1), back = Random(kBytes, 2);
  for (const auto& [offset, bytes] :
       {std::pair<int64_t, int64_t>{0, kBytes}, {1, 3}, {4095, 2}, {5000, kBytes - 9000}, {kBytes - 1, 1}, {7, 0}}) {
    file.Write(0, data.get(), kBytes);
    file.Copy(offset, back.get(), bytes);
    EXPECT_EQ(std::memcmp(back.get(), data.get() + offset, static_cast<size_t>(bytes)), 0) << offset << " " << bytes;
  }
}

// Also where there is no file without a name (NFS), or no way past the page cache (some file systems).
class OldSystem final : public OffloadCalls {
 public:
  explicit OldSystem(int error) : error_(error) {}
  int OpenUnnamed(const char*, int) override {
    errno = error_;
    return -1;
  }
  ssize_t Write(int fd, const void* from, size_t bytes, off_t at) override {
    if ((fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
      errno = EINVAL;
      return -1;
    }
    return OffloadCalls::Write(fd, from, bytes, at);
  }

 private:
  const int error_;
};

TEST(OffloadFile, WorksOnFileSystemsThatCanDoLess) {
  for (const int error : {EOPNOTSUPP, EISDIR, EINVAL}) {
    const Scratch scratch;
    OldSystem old(error);
    OffloadFile file(scratch.path(), 0, 4 * kBlock, &old);
    EXPECT_FALSE(file.direct());
    EXPECT_TRUE(scratch.empty());
    const Buffer data = Random(2 * kBlock, 1), back = Random(2 * kBlock, 2);
    file.Read(kBlock, back.get(), 2 * kBlock, file.Write(kBlock, data.get(), 2 * kBlock)).get();
    EXPECT_EQ(std::memcmp(back.get(), data.get(), 2 * kBlock), 0);
  }
}

// Interrupted calls and calls that move less than was asked for.
class Piecewise final : public OffloadCalls {
 public:
  ssize_t Read(int fd, void* to, size_t bytes, off_t at) override {
    return Interrupted() ? -1 : OffloadCalls::Read(fd, to, std::min<size_t>(bytes, kBlock), at);
  }
  ssize_t Write(int fd, const void* from, size_t bytes, off_t at) override {
    return Interrupted() ? -1 : OffloadCalls::Write(fd, from, std::min<size_t>(bytes, kBlock), at);
  }

 private:
  bool Interrupted() {
    errno = EINTR;
    return calls_++ % 3 == 2;
  }
  std::atomic<int> calls_ = 0;
};

TEST(OffloadFile, GoesOnAfterInterruptionsAndShortTransfers) {
  const Scratch scratch;
  Piecewise calls;
  OffloadFile file(scratch.path(), 0, 8 * kBlock, &calls);
  const Buffer data = Random(8 * kBlock, 1), back = Random(8 * kBlock, 2);
  file.Read(0, back.get(), 8 * kBlock, file.Write(0, data.get(), 8 * kBlock)).get();
  EXPECT_EQ(std::memcmp(back.get(), data.get(), 8 * kBlock), 0);
}

TEST(OffloadFile, AFullDiskShowsAtTheStart) {
  const Scratch scratch("size=1m");
  if (!scratch.mounted()) GTEST_SKIP() << "may not mount a tmpfs";
  const std::string said = ErrorOf([&] { OffloadFile(scratch.path(), 3, 4 << 20); });
  EXPECT_THAT(said, StartsWith("offload of rank 3 to " + scratch.path() + ": cannot reserve 4194304 bytes"));
  EXPECT_THAT(said, HasSubstr("bytes are free"));
  EXPECT_THAT(said, EndsWith(": No space left on device"));
  EXPECT_TRUE(scratch.empty());
  struct statvfs room{};
  ASSERT_EQ(statvfs(scratch.path().c_str(), &room), 0);
  EXPECT_EQ(room.f_bfree, room.f_blocks) << "what was reserved is given back";
}

TEST(OffloadFile, ADirectoryThatIsNotThereOrReadOnlyIsNamed) {
  const std::string gone = ::testing::TempDir() + "no/such/place";
  EXPECT_THAT(ErrorOf([&] { OffloadFile(gone, 1, kBlock); }),
              AllOf(StartsWith("offload of rank 1 to " + gone + ": cannot make a file there"),
                    EndsWith(": No such file or directory")));
  const Scratch scratch("size=1m,ro");
  if (!scratch.mounted()) GTEST_SKIP() << "may not mount a tmpfs";
  if (mount("trainyard-test", scratch.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") != 0) {
    GTEST_SKIP() << "may not make a tmpfs read-only";
  }
  EXPECT_THAT(ErrorOf([&] { OffloadFile(scratch.path(), 1, kBlock); }), EndsWith(": Read-only file system"));
}

class Fails final : public OffloadCalls {
 public:
  ssize_t Read(int fd, void* to, size_t bytes, off_t at) override {
    if (at < 2 * kBlock) return OffloadCalls::Read(fd, to, bytes, at);
    errno = EIO;
    return at == 2 * kBlock ? -1 : 0;
  }
  ssize_t Write(int fd, const void* from, size_t bytes, off_t at) override {
    if (at < 2 * kBlock) return OffloadCalls::Write(fd, from, bytes, at);
    errno = ENOSPC;
    return -1;
  }
};

TEST(OffloadFile, ErrorsNameRankFileAndOffset) {
  const Scratch scratch;
  Fails calls;
  OffloadFile file(scratch.path(), 2, 4 * kBlock, &calls);
  const Buffer data = Random(kBlock, 1);
  const std::string place = "offload of rank 2 to " + scratch.path() + ": ";
  EXPECT_EQ(ErrorOf([&] { file.Read(2 * kBlock, data.get(), kBlock, {}).get(); }),
            place + "cannot read 4096 bytes at offset 8192: Input/output error");
  EXPECT_EQ(ErrorOf([&] { file.Read(3 * kBlock, data.get(), kBlock, {}).get(); }),
            place + "cannot read 4096 bytes at offset 12288: the file ends there, although it was reserved");
  const OffloadFile::Ticket write = file.Write(2 * kBlock, data.get(), kBlock);
  const std::string full = place + "cannot write 4096 bytes at offset 8192: No space left on device";
  EXPECT_EQ(ErrorOf([&] { write.get(); }), full);
  EXPECT_EQ(ErrorOf([&] { file.Read(0, data.get(), kBlock, write).get(); }), full) << "who reads after it is told";
  EXPECT_EQ(ErrorOf([&] { file.Read(0, data.get(), kBlock, {}).get(); }), full);
  EXPECT_EQ(ErrorOf([&] { file.Write(0, data.get(), kBlock).get(); }), full);
  EXPECT_EQ(ErrorOf([&] { file.Copy(0, data.get(), 1); }), full);
}

// Killed without a chance to clean up, while it writes: no file is left, and its space is free again.
TEST(OffloadFile, NothingIsLeftOfAKilledProcess) {
  const Scratch scratch("size=8m");
  if (!scratch.mounted()) GTEST_SKIP() << "may not mount a tmpfs";
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    OffloadFile file(scratch.path(), 0, 4 << 20);
    const Buffer data = Random(1 << 20, 1);
    for (int64_t i = 0;; ++i) {
      file.Write(i % 4 << 20, data.get(), 1 << 20).get();
      if (i == 4 && write(ready[1], "x", 1) != 1) _exit(1);
    }
  }
  close(ready[1]);
  char x = 0;
  ASSERT_EQ(read(ready[0], &x, 1), 1);
  close(ready[0]);
  EXPECT_TRUE(scratch.empty()) << "it has no name while it is used either";
  struct statvfs room{};
  ASSERT_EQ(statvfs(scratch.path().c_str(), &room), 0);
  EXPECT_LE(room.f_bfree * room.f_frsize, 4u << 20);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(scratch.empty());
  ASSERT_EQ(statvfs(scratch.path().c_str(), &room), 0);
  EXPECT_EQ(room.f_bfree, room.f_blocks);
}

}  // namespace
}  // namespace trainyard::engine
