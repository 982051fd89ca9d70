"""What several dialects read and write alike."""
