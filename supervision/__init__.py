"""`make up`: the processes of the platform, and how they are started, watched and stopped."""
