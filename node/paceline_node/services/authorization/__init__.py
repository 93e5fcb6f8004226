"""Who may: the policy's question, and what each request needs (DESIGN 1)."""
