"""Pure findings of doctor and audit: what was read comes in, findings with their fixes go out."""
