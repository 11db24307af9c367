#!/bin/sh
# run.sh RESULTS: checks and times the packed models on the first GPU, and records what the simulator is held to.
# Every step writes RESULTS/NAME.out and has a limit in seconds; RESULTS/summary.txt says which ended well.
set -u
results=$(mkdir -p "${1:?a folder for the results}" && cd "$1" && pwd) || exit 2
cd "$(dirname "$0")" || exit 2
failed=0

step() {
    name=$1
    seconds=$2
    shift 2
    if timeout "$seconds" "$@" >"$results/$name.out" 2>&1; then
        echo "passed $name" | tee -a "$results/summary.txt"
    else
        echo "failed $name (exit $?)" | tee -a "$results/summary.txt"
        failed=$((failed + 1))
    fi
}

: >"$results/summary.txt"
chmod +x sardonyx-run gpu_goldens
step gpu 20 nvidia-smi
step goldens 60 ./gpu_goldens "$results/goldens.json"
for model in models/*; do
    net=$(basename "$model")
    step "$net-check" 40 ./sardonyx-run check "$model/model.sdx" --data "$model" --device cuda:0
    step "$net-bench" 30 ./sardonyx-run bench "$model/model.sdx" --device cuda:0 --json
done
if [ -f gpu.py ]; then
    step peers 240 python3 gpu.py
fi
echo "$(grep -c ^passed "$results/summary.txt") passed, $failed failed"
[ "$failed" -eq 0 ]
