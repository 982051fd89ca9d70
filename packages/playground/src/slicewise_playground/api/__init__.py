"""The API itself: requests in, answers, lists and watches out."""
