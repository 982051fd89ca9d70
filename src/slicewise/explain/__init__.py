"""Pure answers for people: why a pod waits, what would fit, what-if; values in, values out."""
