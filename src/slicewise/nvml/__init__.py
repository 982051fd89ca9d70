"""Edge: the only code that asks the driver about GPUs; it hands model values inward."""
