# syntax=docker/dockerfile:1
# The image of flash-sale: one binary, for every role. docs/operate.md says how to run it with Redis and Postgres.

ARG RUST_VERSION=1.95

FROM rust:${RUST_VERSION}-bookworm AS build
WORKDIR /src
COPY . .
# The crates and what was compiled of them stay in caches of the builder, so a change of the source compiles the source
# alone. A cache is no part of the image: the binary is copied out of it in the same step.
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --release --locked --bin flash-sale && cp target/release/flash-sale /usr/local/bin/

# No certificates are installed: the roots for TLS to Redis and Postgres are compiled into the binary.
FROM debian:bookworm-slim
RUN groupadd --gid 10001 flash-sale && \
    useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin flash-sale
COPY --from=build /usr/local/bin/flash-sale /usr/local/bin/
COPY --chmod=755 docker/healthy /usr/local/bin/
# By number, so that an orchestrator can see that it is not root.
USER 10001:10001
ENV FLASH_SALE_LISTEN=0.0.0.0:8080
EXPOSE 8080
# Of /livez and not of /readyz: no restart would bring an absent Redis back.
HEALTHCHECK --interval=5s --timeout=2s --start-period=10s --retries=3 CMD ["healthy"]
# Without a shell around it, so that SIGTERM reaches it.
ENTRYPOINT ["flash-sale"]
CMD ["serve"]
