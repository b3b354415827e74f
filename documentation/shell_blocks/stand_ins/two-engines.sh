# Sourced by bash: two simulated vLLM servers that answer, 8001 with a drafter of GAMMA tokens (3) and 8002 without, and
# config.yaml for a proxy in front of them, with SETTINGS in it.
adaptive-gamma simulate-engine --port 8001 --gamma "${GAMMA:-3}" --policy h100-llama3-8b-eagle3 > spec.log 2>&1 &
adaptive-gamma simulate-engine --port 8002 --plain --policy h100-llama3-8b-eagle3 > plain.log 2>&1 &
until curl -sf http://127.0.0.1:8001/health && curl -sf http://127.0.0.1:8002/health; do sleep 0.2; done
cat > config.yaml <<END
policy: h100-llama3-8b-eagle3
replicas:
  - {name: spec-0, url: "http://127.0.0.1:8001", gamma: auto}
  - {name: plain-0, url: "http://127.0.0.1:8002", gamma: 0}
${SETTINGS:-}
END
