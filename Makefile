# make deps | deps-TASK | bench | bench-compare | bars | compare | test | test-release | plugin | install | deb | sql | profile | check | docs. See README.md.
SHELL := /bin/bash
.PHONY: deps bench bench-compare bars compare test test-release plugin install deb sql profile check docs

deps:
	@bash scripts/deps.sh

# What one task needs: make deps-bench, deps-plugin, ... (scripts/deps.sh lists them).
deps-%:
	@bash scripts/deps.sh $*

# The insert benchmark with its defaults and a report, out/bench.html; pass more with ARGS="--rows 8M,2M --report x.html".
bench: deps-bench
	cargo build --release -p evenkeel-cli
	@mkdir -p out
	target/release/evenkeel bench $(if $(findstring --report,$(ARGS)),,--report out/bench.html) $(ARGS)

# Evenkeel beside other embedded engines in alternating rounds; ARGS="--engines evenkeel,null,redb".
bench-compare:
	@bash scripts/deps.sh compare
	cargo run --release -p evenkeel-bench-compare -- $(ARGS)

# The acceptance figures of the embedded engine at their full length (hours), beside the control and RocksDB;
# ARGS="--only io --rounds 1 --seconds 60 --scale 0.2" for less.
bars:
	@bash scripts/deps.sh compare
	python3 scripts/bars.py $(ARGS)

# ENGINE=EVENKEEL beside InnoDB and MyRocks: sysbench, the insert benchmark, DDL, restart, KILL; a line for each
# figure and out/compare.html. ARGS="--scale 1" has the sizes of the bars, "--only ddl,long,open,queue" what takes hours.
compare: deps-servers plugin
	cargo build --quiet --release -p evenkeel-cli
	python3 scripts/compare $(ARGS)

# ENGINE=EVENKEEL for the MariaDB server that is installed: target/plugin/ha_evenkeel.so.
plugin:
	@bash plugin/mariadb/build.sh

# The plugin into the system's server, with a config file and a hook that builds it again after an
# upgrade; as root. DESTDIR=... puts it elsewhere.
install:
	@bash scripts/install.sh

# The Debian package mariadb-plugin-evenkeel, for the server that is installed: target/deb.
deb: deps-deb plugin
	cargo build --quiet --release -p evenkeel-cli
	@bash scripts/deb.sh

# A private server with the engine loaded, and a client on it.
sql: deps-plugin plugin
	@bash scripts/sql.sh

# Everything a change must pass.
test: deps
	@bash scripts/test.sh

# What takes longer than a change can wait for, before a release.
test-release: test
	@bash scripts/test-release.sh

# A flame graph of the benchmark: out/flame.svg.
profile:
	@bash scripts/profile.sh $(ARGS)

# The quick checks alone: formatting, lints, tidy.
check:
	cargo fmt --all --check
	cargo xtask tidy
	cargo clippy --workspace --all-targets -- -D warnings

# Regenerates docs/reference, and builds the manual, target/manual/html, if mdbook is there (make deps-docs).
docs:
	cargo xtask docs
	@if command -v mdbook >/dev/null; then python3 scripts/manual.py; else echo "no manual: make deps-docs"; fi
