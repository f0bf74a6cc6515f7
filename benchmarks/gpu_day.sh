#!/usr/bin/env bash
# Measures training on one GPU in phases of under nine minutes, each of which leaves its figures in OUT:
#   tests    the tests that need a GPU
#   speed    products of matrices; base at 128 and 512 tokens, beside transformers; what `train` computes
#   ab       what makes updates fast, each on and off in turns: kernels of attention, the last layer, CUDA graphs
#   xxlarge  the same of xxlarge at 512 tokens
#   base     base for three minutes by each of the recipes quick and muon: validation loss, and score if there are PAIRS
#   windows  base by muon again, with attention to whole rows from the start
#   mini     mini for three minutes each with batches of 2,048 and of 32,768 tokens
#
# usage: benchmarks/gpu_day.sh PHASE OUT [--wheels DIR] [--corpus PATH] [--pairs FILE] [--tiny]
#   --wheels  packages that the machine lacks, as wheels: installed in OUT, without an index
#   --corpus  text to train on; by default sample_corpus, which says nothing about losses
#   --pairs   pairs of sentences for `albert-data score`
#   --tiny    toy sizes, to try the script on a CPU
set -euo pipefail

fail() {
    echo "gpu_day.sh: $1" >&2
    exit 2
}

[[ $# -ge 2 ]] || fail "usage: benchmarks/gpu_day.sh PHASE OUT [--wheels DIR] [--corpus PATH] [--pairs FILE] [--tiny]"
phase=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
wheels="" corpus="" pairs="" tiny=""
while [[ $# -gt 0 ]]; do
    case $1 in
        --tiny) tiny=yes ;;
        --wheels | --corpus | --pairs)
            [[ $# -ge 2 && -e $2 ]] || fail "$1 needs a path that exists, not '${2:-}'"
            declare "${1#--}=$(realpath "$2")"
            shift
            ;;
        *) fail "unknown option $1; allowed are --wheels, --corpus, --pairs, --tiny" ;;
    esac
    shift
done
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD:$out/packages"
if [[ -n $wheels && ! -d $out/packages ]]; then
    python3 -m pip install --quiet --no-index --no-deps --target "$out/packages" "$wheels"/*.whl
fi
albert=(python3 -m albert_data)

make_shards() { # length
    local size=30000 passes=1
    [[ -n $corpus ]] || size=4000 passes=10
    [[ -d $out/vocab ]] || "${albert[@]}" vocab "${corpus:-sample_corpus}" --vocab-size $size -o "$out/vocab"
    "${albert[@]}" build "${corpus:-sample_corpus}" --tokenizer "$out/vocab" --max-seq-len "$1" \
        --validation-fraction 0.02 --dupe-factor $passes -o "$out/shards-$1"
}

measure() { # parts, model
    local options=(--runs 3 --seconds 1 --models "$2")
    [[ -z $tiny ]] || options=(--runs 1 --seconds 0.1 --models tiny --batch-cells 512 --no-compile)
    make_shards 512
    python3 -m benchmarks train "$out/shards-512" --only "$1" "${options[@]}" -o "$out/speed.md"
}

train() { # name of the run, preset, further options
    local name=$1 options=(--preset "$2" --minutes 3 "${@:3}")
    [[ -z $tiny ]] || options=(--preset tiny --steps 4 "${@:3}")
    "${albert[@]}" train "$out/shards-128" -o "$out/$name" "${options[@]}"
    [[ -z $pairs ]] || "${albert[@]}" score "$out/$name" "$pairs" --json | tee "$out/$name-score.json"
}

run_phase() {
    case $phase in
        tests) python3 -m pytest -m gpu -rs --durations 0 tests/train ;;
        speed) measure ceiling,speed-128,speed-512,update base ;;
        ab)
            make_shards 512
            make_shards 128
            options=(--runs 5 --seconds 1)
            [[ -z $tiny ]] || options=(--runs 1 --seconds 0.1 --device cpu --tiny)
            python3 -m benchmarks.gpu_ab "$out/shards-512" "$out/shards-128" "${options[@]}" -o "$out/ab.json"
            ;;
        xxlarge) measure speed-512,update xxlarge ;;
        base)
            make_shards 128
            train base-quick base
            train base-muon base --recipe muon
            ;;
        windows)
            make_shards 128
            train base-muon-whole base --recipe muon --first-window 0
            ;;
        mini)
            make_shards 128
            train mini-2048 mini --batch-tokens 2048
            train mini-32768 mini --batch-tokens 32768
            ;;
        *) fail "unknown phase $phase; allowed are tests, speed, ab, xxlarge, base, windows, mini" ;;
    esac
}

began=$SECONDS
run_phase 2>&1 | tee "$out/$phase.txt"
echo "$phase took $((SECONDS - began)) seconds; its figures are in $out" | tee -a "$out/$phase.txt"
