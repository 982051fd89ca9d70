"""What tenants may write, as policies that the API server evaluates by itself."""
