"""What the reader of a page has and a machine that builds documentation has not: engines, and models for them.

``python -m documentation.shell_blocks.stand_ins.llama_pair`` serves llama.cpp twice. ``two-engines.sh``, sourced, has
two simulated ones serve, and ``vllm-for-cpus.sh`` makes ``vllm`` one for CPUs and names two models for it.
"""
