# The commands of this project; CONTRIBUTING.md says when each is of use.
# Every recipe is one shell command that ends in `exec`, so no shell or cargo stands between Ctrl-C and the program.

# Rust may be installed although the shell that calls make has not heard of it yet (a new login would have).
cargo_bin := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin
ifeq (,$(findstring :$(cargo_bin):,:$(PATH):))
export PATH := $(cargo_bin):$(PATH)
endif

# A DATABASE_URL that happens to be set must not decide how the SQL is checked: builds read .sqlx (see scripts/sqlx).
export SQLX_OFFLINE := true

# cargo would take make's job server for its own and warn that it cannot reach it.
unexport MAKEFLAGS

target_dir := $(or $(CARGO_TARGET_DIR),target)

# Written by a bench without arguments of its own.
bench_writes := --goals docs/performance.md

# Runs a program of crates/ladders that measures, in a profile of its own (Cargo.toml). CI looks at facts alone, in a debug build.
figures := cargo run --quiet --locked --profile figures --package flash-sale-ladders --bin

.DEFAULT_GOAL := help
.PHONY: help run release test size deny browser pictures faults explore model planted load contract events relay-engines cluster alerts observe bench locks ladder ids cache course check sqlx

help: ## List these targets.
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile | expand -t 16
	@echo 'Arguments go in ARGS, as in: make run ARGS=--help'

run: ## Install what is missing, build, and run the demo (Ctrl-C stops it).
	@scripts/setup && cargo build --locked --bin flash-sale && exec "$(target_dir)/debug/flash-sale" demo $(ARGS)

release: ## Install what is missing, and build the optimised binary, target/release/flash-sale (minutes).
	@scripts/setup && exec cargo build --release --locked --bin flash-sale

test: ## Install what is missing, and run the tests of the service and its libraries on private servers.
	@scripts/setup && exec scripts/test $(ARGS)

browser: ## Install what is missing, and look at the pages in a real Chromium (a minute).
	@scripts/setup && scripts/load-browser && cargo build --locked --bin flash-sale && exec cargo test --locked --package flash-sale-browser --test it -- --test-threads 3 $(ARGS)

pictures: ## Take the pictures of the documents anew, and a contact sheet of all states (minutes; needs Chromium).
	@scripts/setup && scripts/load-browser && cargo build --locked --bin flash-sale && exec cargo test --locked --package flash-sale-browser --test it -- pictures:: --ignored --nocapture

faults: ## Run the long fault tests, one after the other, and print what they saw (a quarter of an hour; more on a slow machine).
	@scripts/setup && exec env TEST_SECONDS_MAX=3600 cargo test --locked --package flash-sale --test it -- --ignored --test-threads 1 --nocapture $(ARGS)

explore: ## Break the service in ways that seeds decide, and prove that nothing is lost: SEEDS=N, MINUTES=M (docs/explorer.md).
	@scripts/setup && cargo build --locked --bin flash-sale && cargo build --locked --package flash-sale-explorer && exec "$(target_dir)/debug/flash-sale-explorer" $(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

model: ## Search the model of fence and recovery: all guards, and each one left out (crates/recovery-model; minutes).
	@scripts/setup && exec cargo test --locked --package recovery-model --test model -- --nocapture --include-ignored $(ARGS)

load: ## Install what is missing, build, and run the load scenarios (loadtest/README.md).
	@scripts/setup && scripts/load-tools && exec loadtest/run $(ARGS)

contract: ## Hold a running service against /openapi.json: validators, a generated client, schemathesis (minutes; --short: one).
	@scripts/setup && exec scripts/contract $(ARGS)

events: ## Install what is missing, and show feed, webhooks and the relay to NATS, killed in the middle (three minutes).
	@scripts/setup nats && cargo build --locked --bin flash-sale && cargo test --locked --package flash-sale --test it -- events:: && exec cargo test --locked --package flash-sale-relay --test relay -- --include-ignored --skip kafka --skip rocketmq --skip figures

relay-engines: ## Kill relay, Kafka and RocketMQ in the middle of a sale, and measure all engines (minutes; needs Java 17, Maven).
	@scripts/setup nats && cargo build --locked --bin flash-sale && cargo build --release --locked --manifest-path crates/relay-rocketmq/Cargo.toml --target-dir crates/relay-rocketmq/target && cargo test --locked --package flash-sale-relay --test relay -- --ignored kills::kafka kills::rocketmq && exec cargo test --release --locked --package flash-sale-relay --test relay -- --ignored figures --nocapture --test-threads 1

cluster: ## Break a Redis Cluster under a crowd, ROUNDS=N times, and print for how long its lanes are silent (minutes, and a build).
	@scripts/setup && exec env TEST_SECONDS_MAX=3600 cargo test --locked --profile figures --package flash-sale --test it -- fleet::storm --ignored --test-threads 1 --nocapture $(ARGS)

alerts: ## Check the alerts of deploy/prometheus, and that each fires when it should (seconds).
	@exec scripts/alerts

observe: ## Run the queries of dashboard and alerts on a real Prometheus that scrapes a real process (a minute).
	@scripts/setup && exec scripts/observe

check: ## Run every check: those of .ci/run, contract and browser.
	@exec .ci/run --all

bench: ## Measure the service on this machine, in about five minutes, and write its goals into docs/performance.md.
	@scripts/setup && cargo build --release --locked --bin flash-sale && cargo build --release --locked --package flash-sale-bench && exec "$(target_dir)/release/flash-sale-bench" $(or $(strip $(ARGS)),$(bench_writes))

locks: ## Measure the locks beside rslock and, where Java is, Redisson (a minute and a build).
	@scripts/setup && exec cargo run --release --locked --manifest-path crates/redisson-locks/benches/compare/Cargo.toml

ladder: ## Sell by every design of the tutorials, break each and measure it (docs/ladder.md; a minute, and a build of minutes).
	@scripts/setup nats && exec $(figures) sale_ladder -- $(ARGS)

ids: ## Number orders in every way of the tutorials, and break each (docs/ids.md; half a minute, and that build).
	@scripts/setup && exec $(figures) id_ladder -- $(ARGS)

cache: ## Keep coupons in every cache of the tutorials, and break each (docs/cache.md; half a minute, and that build).
	@scripts/setup && exec $(figures) cache_ladder -- $(ARGS)

course: ## Carry out the exercises of docs/tutorial.md: plant each bug, and see what the page says.
	@scripts/setup && exec scripts/course $(ARGS)

size: ## Count the code by module beside the budgets (scripts/size).
	@exec scripts/size $(ARGS)

deny: ## Check the licences, sources and advisories of the dependencies; before a release.
	@scripts/deny --fetch && scripts/deny && scripts/deny --fetch-advisories && exec scripts/deny --advisories

sqlx: ## Rewrite .sqlx after a query or a migration has changed.
	@scripts/setup && exec scripts/sqlx prepare

planted: ## Plant known bugs, and fail if the tests don't notice one (an hour on two cores).
	@scripts/setup && exec scripts/planted $(ARGS)

