"""vLLM: the texts of its log, its info page, and its flags, from 0.8 to 0.33. Its metrics are a dialect's matter."""
