"""`make up`: which processes the platform is made of, how they are started, watched and ended."""
