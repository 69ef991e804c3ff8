#!/usr/bin/env bash
# Runs five coding agents, as npm has them, against what was built, and against llama-server: `make agents`. The agents
# take 1.5 GB in tests/agents/node_modules, which npm fills once.
#
#   scripts/agents.sh [AGENT]...   all of them, or only these: claude codex opencode qwen pi
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/packages.sh test
LLAMA_SERVER=$(scripts/llama.sh --server)
LLAMA_SOURCE=$(scripts/llama.sh)/source # its templates
export LLAMA_SERVER LLAMA_SOURCE HEARTH_BUILD=$PWD/build
for folder in tests/e2e tests/agents; do
    [ -e $folder/node_modules/.package-lock.json ] || (cd $folder && npm ci --silent --no-audit --no-fund)
done
"$(echo "$PWD"/tests/e2e/node_modules/node-linux-*/bin/node)" tests/agents/run.js "$@"
