"""What other programs of a control plane do, in small: controllers and a scheduler."""
