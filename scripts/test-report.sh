#!/bin/bash
# The report in headless Chromium; screenshots stay in out/report.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
rm -rf out/report
python3 scripts/report/test_report.py "$target/release/evenkeel" out/report
