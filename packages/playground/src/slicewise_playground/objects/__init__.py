"""Objects as the API keeps them: their store, shapes, rules and patches."""
