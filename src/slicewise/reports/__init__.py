"""Edge: what agents tell the server over one long connection each, and how both ends speak."""
