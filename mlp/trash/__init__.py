"""One trash of each user, with objects of every kind: its page and its REST calls."""
