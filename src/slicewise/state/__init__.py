"""The cluster as it is now, from the API server's watches, and what that means for one pod."""
