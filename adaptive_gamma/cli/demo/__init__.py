"""The demonstration: two real llama.cpp servers on this machine, and real prompts routed between them."""
