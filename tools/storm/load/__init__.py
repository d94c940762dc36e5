"""The mixed load: what each kind of user does, from a seed, until the storm is over."""
