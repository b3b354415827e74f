"""What the reader of a page has and a machine that builds documentation has not: engines that hold a model.

``python -m documentation.shell_blocks.stand_ins.llama_pair`` serves llama.cpp twice; ``vllm-for-cpus.sh``, sourced, makes
``vllm`` one for CPUs and names two models for it.
"""
