"""The commands of the playground; the only folder that imports click."""
