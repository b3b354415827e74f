"""The speculation length of a server, from Python: what a drafter is worth at each load, and the schedule for it.

python examples/library.py
"""

from adaptive_gamma import (
    AcceptanceCurve,
    AutoregressiveDrafter,
    LinearStep,
    PassFraction,
    ScheduleOptions,
    ServerOptions,
    SpeculationCost,
    compute_bound_batch,
    export_policy,
    load_policy,
)

# A server of your own: 20.6 ms a step, 0.105 ms for each token in it, 62.6 ns for each token of context; a drafter pass
# takes a tenth of a step.
step = LinearStep(fixed_seconds=0.0206, token_seconds=1.05e-4, kv_token_seconds=6.26e-8)
cost = SpeculationCost(step, AutoregressiveDrafter(PassFraction(0.1)))

# vLLM's rates per position are unconditional: accepted at the position, over drafts.
code = AcceptanceCurve.from_unconditional([0.89, 0.71, 0.57, 0.46, 0.36])
prose = AcceptanceCurve.from_unconditional([0.73, 0.50, 0.34, 0.23, 0.16])

print("batch  gamma that is worth most, and its speed-up over plain")
for batch in (1, 8, 32, 128, 512):
    row = []
    for curve in (code, prose):
        speedups = [float(cost.speedup(batch, gamma, 1024, curve)) for gamma in range(1, 9)]
        best = max(speedups)
        row.append(f"{speedups.index(best) + 1} ({best:.2f}x)" if best > 1 else f"none ({best:.2f}x)")
    print(f"{batch:5d}  code {row[0]:14s} prose {row[1]}")

bound = compute_bound_batch(step.fixed_seconds, step.token_seconds, 1024 * step.kv_token_seconds, gamma=4)
print(f"\nverifying 4 draft tokens takes as long as reading the weights from batch {bound:.0f}")

# A policy that ships, as vLLM's own schedule.
policy = load_policy("h200-llama3-70b-fp8")
made = export_policy(policy, "vllm", ServerOptions(version="0.33"), ScheduleOptions(mix={"chat": 1.0}))
print(f"\n{policy.name} for chat: {made.table}")
