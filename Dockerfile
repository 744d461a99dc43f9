# Trainyard's two images.
#   docker build --target operator -t trainyard-operator .
#   docker build --target trainer  -t trainyard-trainer .
#
# BASE      a Debian 12 image; where no registry can be reached, a local one (tests/cluster/images.sh makes one with debootstrap)
# BUILD     source:   compiles here; needs the network, 6 GB of disk and, on 2 cores, about 25 minutes
#           prebuilt: takes build/image from the context, which tests/cluster/image_root.sh fills from programs built outside
# ACCELERATOR  cpu, or nccl: the trainer's image carries NCCL as well (200 MB); with BUILD=source
ARG BASE=docker.io/library/debian:bookworm-slim
ARG BUILD=source
ARG ACCELERATOR=cpu

# ---- the programs with the libraries that they load, as two directory trees ----------------------------------------
# One stage for both ways to BUILD: buildah does not find a stage whose name holds an argument's default.
FROM ${BASE} AS build
ARG BUILD ACCELERATOR
ENV DEBIAN_FRONTEND=noninteractive TRAINYARD_CACHE=/cache
WORKDIR /src
# Set-up first, so that its layer outlives changes of the sources. A prebuilt context has neither script nor crates.
COPY Dockerfile tests/setup.s[h] tests/
COPY Dockerfile trainer/tokenizer/Cargo.* trainer/tokenizer/
RUN [ "$BUILD" = prebuilt ] || TRAINYARD_SETUP=build bash tests/setup.sh
COPY . .
RUN [ "$BUILD" = prebuilt ] || { \
      cmake --preset release -DTRAINYARD_BUILD_TESTS=OFF -DTRAINYARD_BUILD_BENCH=OFF \
   && cmake --build --preset release --target trainyard-operator trainyard trainyard-launch trainyard-trainer trainyard-generate \
   && bash tests/cluster/image_root.sh --bin build/release/bin --accelerator "$ACCELERATOR" --out build/image; }

# ---- the operator: one program, its libraries, certificates; no shell -----------------------------------------------
FROM scratch AS operator
COPY --from=build /src/build/image/operator /
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/trainyard-operator"]

# ---- the trainer: launcher, trainer, command line (for checkpoints), LibTorch; runs on a read-only root ---------------
FROM ${BASE} AS trainer
COPY --from=build /src/build/image/trainer /
RUN ldconfig && echo 'trainyard:x:65532:65532:trainyard:/tmp:/usr/sbin/nologin' >>/etc/passwd \
 && echo 'trainyard:x:65532:' >>/etc/group
ENV HOME=/tmp
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/trainyard-launch"]
