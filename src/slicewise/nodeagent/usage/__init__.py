"""Who uses how much of which GPU: samples, metrics and the report to the metrics API."""
