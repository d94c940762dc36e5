"""The language of filter expressions, and the values in them."""
