"""The part of CEL that selectors of devices are written in: parser, operations, functions."""
