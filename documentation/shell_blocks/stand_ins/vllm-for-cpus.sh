# Sourced by bash. vllm: the one that `make test-vllm` installs, as it runs on a CPU, of random weights and short contexts.
# MODEL and DRAFTER: made on the spot, so that nothing is downloaded.
vllm_home=$(dirname "$(dirname "$(readlink -f "$(command -v vllm)")")")
export MODEL=$PWD/models/target DRAFTER=$PWD/models/drafter
if [ ! -e "$MODEL" ]; then
  python -c 'import pathlib, tests.vllm.models as models; models.make_pair(pathlib.Path("models"), noise=0.03)'
fi
vllm() {
  local more=()
  if [ "$1" = serve ]; then
    more=(--dtype float32 --enforce-eager --max-model-len 1024 --max-num-batched-tokens 2048 --host 127.0.0.1)
  fi
  env "PATH=$vllm_home/bin:$PATH" "LD_PRELOAD=$vllm_home/lib/libiomp5.so" VLLM_CPU_KVCACHE_SPACE=1 \
    VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_HOST_IP=127.0.0.1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 "$vllm_home/bin/vllm" "$@" "${more[@]}"
}
