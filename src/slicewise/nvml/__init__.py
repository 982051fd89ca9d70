"""Edge: the only code that asks the driver about cards; it hands model values inward."""
